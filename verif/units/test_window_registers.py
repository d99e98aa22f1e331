# SPDX-License-Identifier: Apache-2.0
"""The registers of the window: fields, products, and when they are there."""

import cocotb
import pytest

from systola.arch.isa import BY_OPCODE, Opcode, encode
from systola.hdl.window_registers import WindowRegisters
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

FIELDS = BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields


def unit():
    return WindowRegisters()


def some(random):
    """Operands of a Set_Config_Window, at the ends of their ranges or between them."""
    return {
        field.name: random.choice((*field.range, random.randint(*field.range))) for field in FIELDS
    }


def word(operands):
    return int.from_bytes(encode(Opcode.SET_CONFIG_WINDOW, **operands), "little")


def products(o):
    """What the docstring of WindowProducts says, from the fields."""
    return {
        "pixels": o["out_height"] * o["out_width"],
        "taps": o["kernel_height"] * o["kernel_width"],
        "map_lines": o["height"] * o["pitch"],
        "row_step": o["stride_y"] * o["pitch"],
        "tap_step": o["dilation_y"] * o["pitch"],
        "origin": o["top"] * o["pitch"] + o["left"],
    }


def shown(bench, name, expected):
    view = bench.get(name)
    return {key: view[key] for key in expected} == expected


@cocotb.test
async def loads(dut):
    """Fields a cycle after `load`, products two; in between, other words mean nothing."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("window_registers")
    current = None
    for _ in range(400):
        for _ in range(random.choice((0, 0, 1, 3))):
            await bench.cycle(load=0, word=random.getrandbits(128))
            assert not bench.get("busy")
            assert bench.get("valid") == (current is not None)
            if current:
                assert shown(bench, "fields", current)
                assert shown(bench, "products", products(current))
        operands = some(random)
        await bench.cycle(load=1, word=word(operands))
        assert not bench.get("busy")
        if current:
            assert shown(bench, "fields", current)
            assert shown(bench, "products", products(current))
        current = operands
        await bench.cycle(load=0, word=random.getrandbits(128))
        assert bench.get("busy") and bench.get("valid")
        assert shown(bench, "fields", current)
    await bench.cycle(load=0)
    assert shown(bench, "products", products(current))


@cocotb.test
async def reset(dut):
    """A new program has no window."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("window_registers reset")
    await bench.cycle(load=1, word=word(some(random)))
    await bench.cycle(load=0)
    assert bench.get("valid") and bench.get("busy")
    dut.rst.value = 1
    await bench.cycle()
    dut.rst.value = 0
    await bench.cycle()
    assert not bench.get("valid") and not bench.get("busy")


@pytest.mark.parametrize("simulator", simulators())
def test_window_registers(simulator):
    run_unit("test_window_registers", simulator, unit())
