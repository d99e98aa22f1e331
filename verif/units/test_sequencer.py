# SPDX-License-Identifier: Apache-2.0
"""The sequencer: program order, waiting, the two weight checks, and how a program ends."""

import cocotb
import pytest

from systola.arch.isa import Fault, Opcode
from systola.hdl.sequencer import Sequencer
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit, small_config

READS = 8
"""Read_Weights that may have tiles waiting."""
MOST = 4095 * 4095


def unit():
    return Sequencer(config=small_config())


class Program(Bench):
    """The unit, and the weight queue as the instruction set describes it."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.totals = []
        self.consumed = 0

    def expected_fault(self, opcode, tiles, cause, address):
        """Cause and address of the fault of an instruction."""
        waiting = (self.totals[-1] if self.totals else 0) - self.consumed
        if cause:
            return cause, address
        if opcode == Opcode.MATRIX_MULTIPLY and tiles > waiting:
            return Fault.WEIGHT_UNDERFLOW, waiting
        last = self.totals[-READS:]
        full = len(last) == READS and all(total > self.consumed for total in last)
        if opcode == Opcode.READ_WEIGHTS and full:
            return Fault.WEIGHT_OVERFLOW, address
        return Fault.NONE, 0

    async def step(self, opcode=None, *, tiles=0, cause=0, pc=0, address=0, **inputs):
        """One cycle with an instruction or none; returns whether it was issued."""
        now = {"enable": 1, "room": 1, "idle": 0, "exhausted": 0, **inputs}
        valid = opcode is not None
        payload = {"tiles": tiles, "cause": cause, "pc": pc, "address": address}
        if valid:
            payload["opcode"] = int(opcode)
            now["decoded__payload"] = payload
        await self.cycle(decoded__valid=valid, **now)
        found, where = self.expected_fault(opcode, tiles, cause, address)
        active = valid and now["enable"]
        faulted = bool(active and found)
        halted = bool(active and not found and opcode == Opcode.HALT)
        drains = opcode in (Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST) and not now["idle"]
        issued = active and not faulted and not halted and bool(now["room"]) and not drains
        shown = self.gets("issue", "halted", "decoded__ready", "waits", "interrupt")
        interrupts = issued and opcode == Opcode.INTERRUPT_HOST
        assert shown == (issued, halted, issued, active and not issued, interrupts), f"{opcode!r}"
        if valid or not now["exhausted"]:
            assert self.get("faulted") == faulted, f"{opcode!r} {payload}"
        if faulted:
            fault = self.get("fault")
            assert (fault.cause, fault.pc, fault.address) == (found, pc, where)
        if issued and opcode == Opcode.READ_WEIGHTS:
            self.totals.append((self.totals[-1] if self.totals else 0) + tiles)
        if issued and opcode == Opcode.MATRIX_MULTIPLY:
            self.consumed += tiles
        return issued


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_programs(dut, rate):
    """Any instructions; those that fail are offered and withdrawn."""
    bench = Program(dut)
    await bench.start()
    random = rng("sequencer", rate)
    found = set()
    for pc in range(2500):
        opcode = random.choice((*Opcode, *[Opcode.READ_WEIGHTS, Opcode.MATRIX_MULTIPLY] * 6))
        waiting = (bench.totals[-1] if bench.totals else 0) - bench.consumed
        if opcode == Opcode.MATRIX_MULTIPLY:
            tiles = random.choice((1, waiting, waiting + 1, random.randint(1, waiting + 1)))
        else:
            tiles = random.choice((1, 2, 9, 1 << 20))
        cause = random.choice(list(Fault)) if random.random() < 0.05 else 0
        address = random.getrandbits(32)
        details = {"tiles": max(tiles, 1), "cause": int(cause), "pc": pc, "address": address}
        found.add(bench.expected_fault(opcode, details["tiles"], cause, address)[0])
        for _ in range(random.choice((1, 3))):
            room, idle, enable = (random.random() < rate for _ in range(3))
            if await bench.step(opcode, **details, room=room, idle=idle, enable=enable):
                break
        if random.random() > rate:
            await bench.step()
    assert {Fault.WEIGHT_OVERFLOW, Fault.WEIGHT_UNDERFLOW} <= found


@cocotb.test
async def totals_wrap(dut):
    """Far more than 2^32 tiles in one program."""
    bench = Program(dut)
    await bench.start()
    for _ in range(300):
        assert await bench.step(Opcode.READ_WEIGHTS, tiles=MOST)
        assert await bench.step(Opcode.MATRIX_MULTIPLY, tiles=MOST)
    for _ in range(READS):
        assert not await bench.step(Opcode.MATRIX_MULTIPLY, tiles=1), "nothing is left"
        assert await bench.step(Opcode.READ_WEIGHTS, tiles=MOST)
        assert await bench.step(Opcode.MATRIX_MULTIPLY, tiles=MOST)


@cocotb.test
async def eight_reads(dut):
    """The ninth Read_Weights needs the first of the eight before it consumed to its last tile."""
    bench = Program(dut)
    await bench.start()
    for _ in range(READS):
        assert await bench.step(Opcode.READ_WEIGHTS, tiles=3)
    assert not await bench.step(Opcode.READ_WEIGHTS, tiles=1)
    assert await bench.step(Opcode.MATRIX_MULTIPLY, tiles=2)
    assert not await bench.step(Opcode.READ_WEIGHTS, tiles=1)
    assert await bench.step(Opcode.MATRIX_MULTIPLY, tiles=1)
    assert await bench.step(Opcode.READ_WEIGHTS, tiles=1)
    assert not await bench.step(Opcode.READ_WEIGHTS, tiles=1)


@cocotb.test
async def window_ends(dut):
    """FETCH_WINDOW once nothing is left, with the offset of the missing instruction."""
    bench = Program(dut)
    await bench.start()
    places = {"program": 0xFFFF_FF80, "pc": 9}
    bench.set(**places)
    for enable in (1, 0):
        await bench.step(Opcode.NOP, exhausted=1, enable=enable)
        await bench.step(Opcode.NOP, exhausted=1, room=0, enable=enable)
    assert await bench.step(Opcode.NOP, exhausted=1)
    await bench.step(exhausted=1, enable=0)
    assert not bench.get("faulted")
    await bench.step(exhausted=1)
    fault = bench.get("fault")
    assert bench.get("faulted")
    offset = (0xFFFF_FF80 + 9 * 16) & 0xFFFF_FFFF
    assert (fault.cause, fault.pc, fault.address) == (Fault.FETCH_WINDOW, 9, offset)


@pytest.mark.parametrize("simulator", simulators())
def test_sequencer(simulator):
    run_unit("test_sequencer", simulator, unit())
