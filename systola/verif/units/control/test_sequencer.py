# SPDX-License-Identifier: Apache-2.0
"""The test of the sequencer: program order, waits, ends of programs, checks of the weight queue."""

import cocotb
import pytest

from systola.arch.isa import Fault, Opcode
from systola.hdl.control.sequencer import Sequencer
from systola.verif.kit.launch import simulators
from systola.verif.units.control.scalar_model import kind
from systola.verif.units.unit import Bench, rng, run_unit, small_config

READS = 8
"""The largest number of Read_Weights with tiles that wait to be consumed."""
MOST = (1 << 24) - 1
"""The largest number of tiles that one Read_Weights can read."""
STATUS = tuple(f"program_status__{name}" for name in ("halted", "rejected", "waiting", "interrupt"))
"""Output ports that report a Halt, a fault, a wait for RESUME, and an Interrupt_Host."""
CONSUMERS = (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE)
DRAINING = (Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST, Opcode.SYNCHRONIZE_HOST)


def unit():
    return Sequencer(config=small_config())


class Program(Bench):
    """A bench of the sequencer, with a model of the weight queue and of RESUME."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.totals = []
        self.consumed = 0
        self.resumed = False

    def expected_fault(self, opcode, tiles, cause, address):
        """Return cause and address of the fault that an instruction must have, or NONE and 0."""
        waiting = (self.totals[-1] if self.totals else 0) - self.consumed
        if cause:
            return cause, address
        if opcode in CONSUMERS and tiles > waiting:
            return Fault.WEIGHT_UNDERFLOW, waiting
        last = self.totals[-READS:]
        full = len(last) == READS and all(total > self.consumed for total in last)
        if opcode == Opcode.READ_WEIGHTS and full:
            return Fault.WEIGHT_OVERFLOW, address
        return Fault.NONE, 0

    async def step(self, opcode=None, *, tiles=0, cause=0, pc=0, address=0, code=0, **inputs):
        """Offer a decoded instruction, or none, and check the outputs.

        Returns whether an instruction was issued.
        """
        now = {"enable": 1, "room": 1, "idle": 0, "exhausted": 0, "resume": 0, **inputs}
        valid = opcode is not None
        payload = {
            "tiles": tiles,
            "cause": cause,
            "failed": int(cause != 0),
            "pc": pc,
            "address": address,
            "code": code,
        }
        if valid:
            payload["kind"] = kind(opcode)
            now["decoded__payload"] = payload
        await self.cycle(decoded__valid=0, exhausted=0, resume=0)
        if valid:
            await self.cycle(decoded__valid=1, **{**now, "resume": 0})
            quiet = ("issue", *STATUS, "waits")
            assert not any(self.gets(*quiet)), "not checked yet"
            assert not self.get("passable"), "not checked yet"
            await self.cycle(**{**now, "resume": 0})
            assert not any(self.gets(*quiet)), "not decided yet"
            passable = self.get("passable")
        await self.cycle(decoded__valid=valid, **now)
        found, where = self.expected_fault(opcode, tiles, cause, address)
        active = bool(valid and now["enable"])
        faulted = bool(active and found)
        halted = bool(active and not found and opcode == Opcode.HALT)
        drains = opcode in DRAINING and not now["idle"]
        waiting = opcode == Opcode.SYNCHRONIZE_HOST and bool(now["idle"]) and not self.resumed
        goes = bool(now["room"]) and not drains and not waiting
        issued = active and not faulted and not halted and goes
        shown = self.gets("issue", "decoded__ready", "waits")
        assert shown == (issued, issued, active and not issued), f"{opcode!r}"
        if valid:
            held_up = faulted or halted or drains or waiting
            assert passable == (active and not held_up), f"{opcode!r}"
        self.expect("program_status__interrupt", issued and opcode == Opcode.INTERRUPT_HOST)
        if issued and opcode == Opcode.INTERRUPT_HOST:
            self.expect("program_status__code", code)
        if not faulted:
            self.expect("program_status__waiting", active and waiting)
        assert not any(self.gets(*STATUS[:2]))
        if halted:
            await self.cycle(resume=0)
            assert self.get("program_status__halted") and not self.get("program_status__rejected")
            await self.cycle(decoded__valid=0)
        if faulted:
            for _ in range(2):
                assert not self.get("program_status__rejected"), "its cause is not known yet"
                await self.cycle(resume=0)
            assert self.get("program_status__rejected") and not self.get(
                "program_status__halted"
            ), f"{opcode!r} {payload}"
            fault = self.get("program_status__rejection")
            assert (fault.cause, fault.pc, fault.address) == (found, pc, where)
            await self.cycle(decoded__valid=0)
        if issued and opcode == Opcode.READ_WEIGHTS:
            self.totals.append((self.totals[-1] if self.totals else 0) + tiles)
        if issued and opcode in CONSUMERS:
            self.consumed += tiles
        if now["resume"] and now["enable"]:
            self.resumed = True
        if issued and opcode == Opcode.SYNCHRONIZE_HOST:
            assert not now["resume"], "what becomes of this one is not defined"
            self.resumed = False
        return issued


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_programs(dut, rate):
    """Check random instructions; the test withdraws an instruction after one or three refusals."""
    bench = Program(dut)
    await bench.start()
    random = rng("sequencer", rate)
    found = set()
    for pc in range(2500):
        opcode = random.choice((*Opcode, *[Opcode.READ_WEIGHTS, *CONSUMERS] * 5))
        waiting = (bench.totals[-1] if bench.totals else 0) - bench.consumed
        if opcode in CONSUMERS:
            tiles = random.choice((1, waiting, waiting + 1, random.randint(1, waiting + 1)))
            tiles += random.choice((0, 0, 0, 0, 1 << 32, 1 << 39))
        else:
            tiles = random.choice((1, 2, 9, 1 << 20))
        cause = random.choice(list(Fault)) if random.random() < 0.05 else 0
        address = random.getrandbits(32)
        details = {"tiles": max(tiles, 1), "cause": int(cause), "pc": pc, "address": address}
        details["code"] = random.getrandbits(16)
        found.add(bench.expected_fault(opcode, details["tiles"], cause, address)[0])
        for _ in range(random.choice((1, 3))):
            room, idle, enable = (random.random() < rate for _ in range(3))
            resume = random.random() < 0.3 and not (
                opcode == Opcode.SYNCHRONIZE_HOST and bench.resumed
            )
            given = {**details, "room": room, "idle": idle, "enable": enable, "resume": resume}
            if await bench.step(opcode, **given):
                break
        if random.random() > rate:
            await bench.step()
    assert {Fault.WEIGHT_OVERFLOW, Fault.WEIGHT_UNDERFLOW} <= found


@cocotb.test
async def host_resumes(dut):
    """Check that Synchronize_Host waits for idle units and for RESUME; one early RESUME is kept."""
    bench = Program(dut)
    await bench.start()
    wait = Opcode.SYNCHRONIZE_HOST
    for _ in range(3):
        assert not await bench.step(wait, idle=0)
    for _ in range(3):
        assert not await bench.step(wait, idle=1)
        assert bench.get("program_status__waiting") and bench.get("waits")
    await bench.step(wait, idle=1, resume=1)
    assert await bench.step(wait, idle=1), "in the cycle after RESUME"
    assert not await bench.step(wait, idle=1), "it is used up"
    assert not await bench.step(wait, idle=0, resume=1), "units first, though it waits no longer"
    assert not await bench.step(wait, idle=0)
    assert await bench.step(wait, idle=1)
    for _ in range(2):
        await bench.step(Opcode.NOP, resume=1)
        await bench.step()
    assert await bench.step(wait, idle=1), "kept from before"
    for _ in range(3):
        assert not await bench.step(wait, idle=1), "one is kept at most"
    await bench.step(wait, idle=1, resume=1, enable=0)
    assert not await bench.step(wait, idle=1), "nothing is kept from outside a program"


@cocotb.test
async def totals_wrap(dut):
    """Check the faults of the weight queue in a program with more than 2^32 tiles."""
    bench = Program(dut)
    await bench.start()
    for consumer in CONSUMERS * 150:
        assert await bench.step(Opcode.READ_WEIGHTS, tiles=MOST)
        assert not await bench.step(Opcode.CONVOLVE, tiles=MOST + (1 << 32))
        assert await bench.step(consumer, tiles=MOST)
    for _ in range(READS):
        assert not await bench.step(Opcode.MATRIX_MULTIPLY, tiles=1), "nothing is left"
        assert await bench.step(Opcode.READ_WEIGHTS, tiles=MOST)
        assert await bench.step(Opcode.MATRIX_MULTIPLY, tiles=MOST)


@cocotb.test
async def eight_reads(dut):
    """Check that a ninth Read_Weights is refused until all tiles of the first are consumed."""
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
    """Check the fault FETCH_WINDOW of a program that runs past the end of the host window.

    The fault's address is the offset in the window at which the next instruction would be.
    """
    bench = Program(dut)
    await bench.start()
    places = {"program": 0xFFFF_FF80, "pc": 9}
    bench.set(**places)
    for enable in (1, 0):
        await bench.step(Opcode.NOP, exhausted=1, enable=enable)
        await bench.step(Opcode.NOP, exhausted=1, room=0, enable=enable)
    assert await bench.step(Opcode.NOP, exhausted=1)
    await bench.step(exhausted=1, enable=0)
    for _ in range(2):
        await bench.cycle()
        assert not bench.get("program_status__rejected")
    await bench.step(exhausted=1)
    await bench.cycle()
    assert not bench.get("program_status__rejected")
    await bench.cycle()
    fault = bench.get("program_status__rejection")
    assert bench.get("program_status__rejected")
    offset = (0xFFFF_FF80 + 9 * 16) & 0xFFFF_FFFF
    assert (fault.cause, fault.pc, fault.address) == (Fault.FETCH_WINDOW, 9, offset)


@pytest.mark.parametrize("simulator", simulators())
def test_sequencer(simulator):
    run_unit("test_sequencer", simulator, unit())
