# SPDX-License-Identifier: Apache-2.0
"""The registers of the window: fields, products, and when they are there."""

import cocotb
import pytest

from systola.arch.isa import BY_OPCODE, Opcode, encode
from systola.hdl.control.window_registers import WindowRegisters
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit, small_config

FIELDS = BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields


def unit():
    return WindowRegisters(config=small_config())


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
        "row_origin": o["top"] * o["pitch"],
        "origin": o["top"] * o["pitch"] + o["left"],
    }


def first(o):
    """What the multipliers have made of the first operands."""
    return {
        "lines": o["height"] * o["pitch"],
        "results": o["out_height"] * o["out_width"],
        "tiles": o["kernel_height"] * o["kernel_width"],
        "spread": o["stride_y"] * o["pitch"],
    }


def second(o):
    """And of the second ones, `top` being taken without its sign."""
    return {
        "lines": o["top"] % (1 << 13) * o["pitch"],
        "results": 0,
        "tiles": 0,
        "spread": o["dilation_y"] * o["pitch"],
    }


def shown(bench, name, expected):
    view = bench.get(name)
    return {key: view[key] for key in expected} == expected


@cocotb.test
async def loads(dut):
    """Fields a cycle after `load`, products after they come; in between, nothing means anything."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("window_registers")
    for _ in range(400):
        operands = some(random)
        await bench.cycle(load=1, word=word(operands))
        await bench.cycle(load=0, word=random.getrandbits(128))
        assert bench.get("valid") and shown(bench, "fields", operands)
        await bench.cycle(first=1, multiplied=first(operands))
        await bench.cycle(first=0, second=1, multiplied=second(operands))
        now = products(operands)
        early = {name: now[name] for name in ("pixels", "taps", "map_lines", "row_step")}
        assert shown(bench, "products", early)
        await bench.cycle(second=0, multiplied=second(some(random)))
        late = {name: value for name, value in now.items() if name != "origin"}
        assert shown(bench, "products", late)
        for _ in range(random.choice((1, 2))):
            await bench.cycle(word=random.getrandbits(128), multiplied=first(some(random)))
            assert shown(bench, "products", now) and shown(bench, "fields", operands)


@cocotb.test
async def reset(dut):
    """A new program has no window."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("window_registers reset")
    await bench.cycle(load=1, word=word(some(random)))
    await bench.cycle(load=0)
    assert bench.get("valid")
    dut.rst.value = 1
    await bench.cycle()
    dut.rst.value = 0
    await bench.cycle()
    assert not bench.get("valid")


@pytest.mark.parametrize("simulator", simulators())
def test_window_registers(simulator):
    run_unit("test_window_registers", simulator, unit())
