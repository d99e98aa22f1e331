# SPDX-License-Identifier: Apache-2.0
"""The test of the scalar unit against an interpreter in Python: registers, loops, faults.

The unit adds index registers to operands, and carries out Set_Register, Loop and End_Loop.
"""

from itertools import pairwise

import cocotb
import pytest

from systola.arch.isa import LOOP_DEPTH, Opcode
from systola.hdl.commands import PC_BITS
from systola.hdl.control.scalar_unit import OPCODES
from systola.verif.kit.launch import simulators
from systola.verif.units.control.moved_scalar import MovedScalar
from systola.verif.units.control.scalar_model import (
    END,
    MODULO,
    Interpreter,
    effective,
    kind,
    load_table,
    loop,
    set_register,
    wild_word,
)
from systola.verif.units.unit import Bench, rng, run_unit


def unit():
    return MovedScalar()


def fetched(word, *, number, error=0):
    """Return the value of port `fetched` for an instruction word."""
    return {"word": word, "error": error, "pc": number, "ends": word & 0xFF == Opcode.END_LOOP}


class Scalar(Bench):
    """A bench that feeds the scalar unit, and compares its outputs with an interpreter's."""

    def __init__(self, dut, chance, rate=1.0):
        super().__init__(dut, unit())
        self.random = chance
        self.rate = rate
        self.model = Interpreter()

    async def give(self, word, *, number=0, error=0):
        """Give the unit one instruction, wait until the instruction leaves, and check the output.

        Returns the output, and the number of the instruction to jump to, or None without a jump.
        """
        payload = fetched(word, error=error, number=number)
        shown, target = None, None
        taken = valid = False
        while shown is None:
            valid = not taken and (valid or self.random.random() < self.rate)
            ready, lingers = self.random.random() < self.rate, self.random.random() > self.rate
            self.set(fetched__valid=valid, fetched__payload=payload, lingers=lingers)
            await self.cycle(instruction__ready=ready)
            if self.get("jump"):
                assert target is None and valid and self.get("fetched__ready")
                target = self.get("jump_to")
            self.expect("idle", not taken)
            if self.get("instruction__valid"):
                shown = self.get("instruction__payload")
                total, fault = self.model.shown(word)
                assert (shown.word, effective(shown)) == (word, total)
                assert (shown.error, shown.pc) == (error, number)
                assert shown.loop_fault == (fault and not error)
                assert shown.kind == kind(shown.word)
                assert not shown.loop_fault or shown.loops == len(self.model.loops)
                shown = shown if ready else None
            taken |= bool(valid and self.get("fetched__ready"))
        follows = self.model.step(number, word, error)
        await self.cycle(fetched__valid=0, instruction__ready=1, lingers=0)
        assert not self.get("jump") and not self.get("instruction__valid")
        await self.cycle()
        assert self.get("idle")
        assert (follows if follows <= number else None) == target
        return shown, target


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.4])
async def streams(dut, rate):
    """Check a stream of instructions that use the registers as earlier instructions left them."""
    bench = Scalar(dut, rng("scalar streams", rate), rate)
    await bench.start()
    random = bench.random
    kinds = [op for op in OPCODES if op not in (Opcode.LOOP, Opcode.END_LOOP)]
    kinds += [Opcode.SET_REGISTER] * 8
    given = [random.getrandbits(128) & ~0xFF | random.choice(kinds) for _ in range(1500)]
    inside, out, now = 0, [], 0
    while len(out) < len(given):
        valid = inside < len(given) and random.random() < rate
        ready = random.random() < rate
        if valid:
            bench.set(fetched__payload=fetched(given[inside], number=inside))
        lingers = random.random() > rate
        await bench.cycle(fetched__valid=valid, instruction__ready=ready, lingers=lingers)
        now += 1
        if valid and bench.get("fetched__ready"):
            inside += 1
        if ready and bench.get("instruction__valid"):
            shown, number = bench.get("instruction__payload"), len(out)
            total, _ = bench.model.shown(given[number])
            assert (effective(shown), shown.pc, shown.loop_fault) == (total, number, 0)
            bench.model.step(number, given[number], 0)
            out.append(now)
    if rate == 1:
        assert {late - soon for soon, late in pairwise(out)} == {3}


@cocotb.test
async def sums(dut):
    """Check each operand that takes an index register: only its bits change in the word."""
    bench = Scalar(dut, rng("scalar sums"))
    await bench.start()
    for register in range(1, 8):
        await bench.give(set_register(register, value=-register * 0x0111_1111))
    # For each operand: its offset and width in bits, and the bit offset of the field that has the
    # number of its register.
    places = {
        Opcode.LOOP: [(32, 32, 8)],
        Opcode.READ_HOST_MEMORY: [(32, 32, 8), (64, 20, 11)],
        Opcode.LOAD_PARAMETERS: [(32, 32, 8), (64, 12, 11)],
        Opcode.READ_WEIGHTS: [(32, 24, 8)],
        Opcode.MATRIX_MULTIPLY: [(32, 20, 8), (52, 16, 11), (68, 20, 14)],
        Opcode.ACTIVATE: [(32, 16, 8), (48, 20, 11), (84, 12, 14)],
        Opcode.VECTOR: [(32, 20, 8), (52, 20, 11), (72, 20, 14)],
    }
    for opcode, operands in places.items():
        for offset, width, selector in operands:
            for register in range(8):
                field = bench.random.getrandbits(width)
                shown, _ = await bench.give(opcode | field << offset | register << selector)
                total = (field - register * 0x0111_1111) % (1 << width)
                assert effective(shown) == opcode | total << offset | register << selector


@cocotb.test
async def registers(dut):
    """Check that the next instruction uses the result of a Set_Register.

    Register 0 stays zero. A Set_Register with a fetch error changes nothing.
    """
    bench = Scalar(dut, rng("scalar registers"))
    await bench.start()

    async def value(register):
        shown, _ = await bench.give(load_table(0, register))
        return (effective(shown) >> 32) % MODULO

    await bench.give(set_register(1, value=-5))
    assert await value(1) == MODULO - 5
    await bench.give(set_register(2, value=7, first=1, second=1))
    assert await value(2) == MODULO - 3
    await bench.give(set_register(2, value=3, first=2))
    assert await value(2) == 0
    await bench.give(set_register(7, value=1, second=1))
    assert await value(7) == MODULO - 4
    await bench.give(Opcode.SET_REGISTER | 99 << 32)
    assert await value(0) == 0
    await bench.give(set_register(1, value=99), error=1)
    assert await value(1) == MODULO - 5


@cocotb.test
async def faults(dut):
    """Check the fault LOOP: a count of zero, too many open loops, or an End_Loop without a Loop.

    An instruction with this fault leaves the open loops as they are.
    """
    bench = Scalar(dut, rng("scalar faults"))
    await bench.start()

    async def fault(word, **settings):
        shown, _ = await bench.give(word, **settings)
        return shown.loop_fault, shown.loops if shown.loop_fault else None

    assert await fault(END) == (1, 0)
    assert await fault(loop(0)) == (1, 0)
    await bench.give(set_register(3, value=-2))
    assert await fault(loop(2, 3)) == (1, 0)
    for depth in range(LOOP_DEPTH):
        assert await fault(loop(3, 3), error=1) == (0, None)
        assert await fault(loop(3, 3)) == (0, None), f"one iteration, {depth}"
    assert await fault(loop(1)) == (1, LOOP_DEPTH)
    assert await fault(END, error=1) == (0, None)
    for _ in range(LOOP_DEPTH):
        assert await fault(END) == (0, None)
    assert await fault(END) == (1, 0)


@cocotb.test
async def counts(dut):
    """Check the jumps of End_Loop in a loop of three iterations inside one of 2^32 - 1."""
    bench = Scalar(dut, rng("scalar counts"))
    await bench.start()
    await bench.give(loop(MODULO - 1), number=(1 << PC_BITS) - 9)
    await bench.give(loop(3), number=70)
    for last in (False, False, True):
        _, target = await bench.give(END, number=71)
        assert target == (None if last else 71)
    for _ in range(5):
        _, target = await bench.give(END, number=(1 << PC_BITS) - 2)
        assert target == (1 << PC_BITS) - 8


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def wild_words(dut, rate):
    """Check random words, legal or not, with fetch errors between them.

    After a jump, the next word has the number that the unit jumped to. Else the numbers rise by 1.
    """
    bench = Scalar(dut, rng("scalar wild", rate), rate)
    await bench.start()
    number = 0
    for _ in range(1500):
        error = int(bench.random.random() < 0.1)
        _, target = await bench.give(wild_word(bench.random), number=number, error=error)
        number = number + 1 if target is None else target


@pytest.mark.parametrize("simulator", simulators())
def test_scalar_unit(simulator):
    run_unit("test_scalar_unit", simulator, unit())
