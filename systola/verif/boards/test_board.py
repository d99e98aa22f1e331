# SPDX-License-Identifier: Apache-2.0
"""Tests of a simulated board at its serial line's pins, with the host's driver and noise.

Every byte is compared. The driver blocks, so it runs in a thread beside the simulation.
"""

from importlib.resources import files

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, encode
from systola.boards.board_top import BoardTop
from systola.compiler.schedule import compile_chain
from systola.runtime import api
from systola.runtime.backend import BackendError, UnavailableError
from systola.runtime.iss import GoldenBackend
from systola.runtime.self_test import self_test
from systola.runtime.serial_backend import SerialBackend
from systola.verif.compiler.products import random_layer
from systola.verif.kit.images import make_image
from systola.verif.kit.launch import run_module
from systola.verif.kit.reset import begin_reset
from systola.verif.kit.serial_line import CLOCK_NS, SerialLine
from systola.verif.units.unit import convert, rng

CONFIG = preset("tiny")
DIVISOR = 8
MEMORY_BYTES = 24 << 10
CLOCK_HZ = 10**9 // CLOCK_NS
SILENCE_BITS = 600


class SimulatedLine:
    """A serial line to the board's pins that damages a fraction `noise` of all transfers."""

    name = "simulation"

    def __init__(self, line, noise=0.0):
        self.noise = noise
        self.damaged = 0
        self._line = line
        self._random = rng("line", noise)

    def _damage(self, content):
        if self._random.random() >= self.noise:
            return content
        self.damaged += 1
        content = bytearray(content)
        place = self._random.randrange(len(content))
        kind = self._random.randrange(4)
        if kind == 0:
            content[place] ^= 1 << self._random.randrange(8)
        elif kind == 1:
            del content[place:]
        elif kind == 2:
            del content[place]
        else:
            content[place:place] = self._random.randbytes(3)
        return bytes(content)

    def write(self, content):
        resume(self._line.send)(self._damage(content))

    def read(self, awaited):
        return self._damage(came) if (came := resume(self._read)()) else b""

    async def _read(self):
        """Wait until the line is quiet, and return the bytes received until then."""
        came = b""
        for _ in range(SILENCE_BITS // 20):
            await self._line.wait(20)
            if self._line.received:
                break
        while self._line.received:
            came += bytes(self._line.received)
            self._line.received.clear()
            await self._line.wait(20)
        return came


async def start(dut, *, noise=0.0, faster=0.0):
    """Reset the board, and return a simulated serial line to it."""
    begin_reset(dut.rst)
    Clock(dut.clk, CLOCK_NS, unit="ns").start()
    line = SerialLine(dut, divisor=DIVISOR, faster=faster)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await line.wait(3)
    return SimulatedLine(line, noise)


@cocotb.test
async def noisy_products(dut):
    """Check matrix products over a line that is too fast and damages a tenth of all frames.

    The bytes of each run must equal the golden model's. Content that the board already holds must
    not be sent again.
    """
    line = await start(dut, noise=0.1, faster=0.02)
    random = np.random.default_rng(rng("products").getrandbits(64))
    transferred = []

    def host():
        backend = SerialBackend(CONFIG, line, moved=transferred.append)
        golden = GoldenBackend(CONFIG)
        compiled = compile_chain(CONFIG, [random_layer(random, 11, 6)], 5)
        for _ in range(2):
            image = compiled.bind(random.integers(-128, 128, (5, 11), dtype=np.int8))
            result = backend.run(image)
            assert result.fault is None
            assert np.array_equal(result.host, golden.run(image).host)
            assert result.cycles == sum(result.counters.values()) > 0
        assert backend.clock_hz == CLOCK_HZ
        return len(image.host) + len(image.weights)

    size = await bridge(host)()
    assert transferred == sorted(transferred)
    assert size < transferred[-1] < 4 * size
    assert line.damaged > 0


@cocotb.test
async def network(dut):
    """Check that a quantised network on the board gives its reference results."""
    line = await start(dut)
    name = "mlp_odd_relu6_tanh_sigmoid"
    folder = files("systola.models")
    with np.load(str(folder / f"{name}.npz")) as stored:
        x, expected = stored["x"][:2], stored["y_ref"][:2]

    def host():
        model = api.compile((folder / f"{name}.tflite").read_bytes(), preset=CONFIG, batch=2)
        return model.run(x, backend=SerialBackend(CONFIG, line))

    result = await bridge(host)()
    assert np.array_equal(result.y, expected)


@cocotb.test
async def every_check(dut):
    """Check that a board passes `self_test`, and fails it if the host expects another preset."""
    line = await start(dut)

    def host():
        checks = list(self_test(CONFIG, line))
        assert not any(check.problem or check.skipped for check in checks), checks
        assert len(checks) == 6
        *_, machine = self_test(preset("6x10"), line)
        assert machine.name == "machine" and "an array of 4x4, which is not" in machine.problem

    await bridge(host)()


@cocotb.test
async def control(dut):
    """Check over the line that the host sees waits, interrupts, tags, faults and a busy machine."""
    line = await start(dut)
    tags = [encode(Opcode.DEBUG_TAG, tag=number) for number in (5, 6)]
    memory = np.zeros(4096, np.uint8)
    waits = make_image(
        [
            tags[0],
            encode(Opcode.SYNCHRONIZE_HOST),
            tags[1],
            encode(Opcode.INTERRUPT_HOST, code=77),
            encode(Opcode.HALT),
        ],
        host=memory,
    )
    stops = make_image([encode(Opcode.NOP), bytes([0xFF] * 16)], host=memory)

    def host():
        backend = SerialBackend(CONFIG, line)
        result = backend.run(waits)
        assert (result.fault, result.interrupts, result.missing_tags) == (None, (77,), 0)
        assert [tag for _, tag in result.tags] == [5, 6]
        assert result.counters["host_wait"] > 0
        fault = backend.run(stops).fault
        assert (fault.cause, fault.pc) == (Fault.ILLEGAL_OPCODE, 1)
        assert backend.run(waits).fault is None

    await bridge(host)()


@cocotb.test
async def refusals(dut):
    """Check the errors for a wrong configuration, too large a program, and a missing board."""
    line = await start(dut)
    program = compile_chain(CONFIG, [random_layer(np.random.default_rng(1), 400, 100)], 1)

    def host():
        with pytest.raises(UnavailableError, match=r"another machine than '6x10'.* 4x4"):
            SerialBackend(preset("6x10"), line)
        backend = SerialBackend(CONFIG, line)
        with pytest.raises(BackendError, match=r"needs [\d,]+ bytes .* the board has 24,576"):
            backend.run(program.bind(np.zeros((1, 400), np.int8)))
        line.noise = 1.0
        with pytest.raises(BackendError, match="no answer from the board on simulation"):
            SerialBackend(CONFIG, line)

    await bridge(host)()


@pytest.mark.thorough
def test_board():
    board = BoardTop(config=CONFIG, memory_bytes=MEMORY_BYTES, divisor=DIVISOR, clock_hz=CLOCK_HZ)
    run_module("boards.test_board", "verilator", verilog=convert(board, "board"), top="board")
