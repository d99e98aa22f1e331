# SPDX-License-Identifier: Apache-2.0
"""The test of loops in fetch and scalar unit together, against a plain interpreter."""

from itertools import pairwise

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out, connect, flipped

from systola.arch.isa import LOOP_DEPTH, Opcode
from systola.hdl.control.fetch import Fetch
from systola.hdl.control.scalar_unit import OPCODES, EffectiveInstruction
from systola.verif.units.control.fetch_bench import WORD
from systola.verif.units.control.moved_scalar import MovedScalar
from systola.verif.units.control.scalar_model import (
    END,
    MODULO,
    NOP,
    Interpreter,
    effective,
    load_table,
    loop,
    set_register,
    wild_word,
)
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    long_variants,
    rng,
    run_unit,
    small_config,
)

CONFIGS = {
    "16": small_config(host_bus_bytes=16, instruction_buffer=32),
    "4": small_config(instruction_buffer=32),
    "128": small_config(host_bus_bytes=128, instruction_buffer=32),
    "32, deep": small_config(host_bus_bytes=32),
}
RARE = ("4", "128")
PACES = [(0, 1, 1, 1), (6, 1, 1, 1), (0, 0.4, 0.5, 0.5), (3, 1, 1, 0.2), (2, 0.3, 1, 1)]
AFTER_JUMP = 3
"""Cycles from an End_Loop that jumps back to the first instruction of its body.

Before that, the End_Loop waits until the first stage of the scalar unit is empty.
"""
MOST = 2000
"""The largest number of instructions that one random program executes."""
PLAIN = [op for op in OPCODES if op not in (Opcode.LOOP, Opcode.END_LOOP, Opcode.SET_REGISTER)]


class FetchedScalar(wiring.Component):
    """A unit for tests that has the instruction fetch and the scalar unit after it.

    It has the ports of Fetch, with the output instructions of ScalarUnit.
    """

    def __init__(self, *, config):
        self._fetch = Fetch(config=config)
        members = dict(self._fetch.signature.members)
        del members["jump"], members["jump_to"]
        members["instruction"] = Out(stream.Signature(EffectiveInstruction()))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        fetch = m.submodules.fetch = self._fetch
        scalar = m.submodules.scalar_unit = MovedScalar()
        connect(m, fetch.instruction, scalar.fetched)
        connect(m, scalar.instruction, flipped(self.instruction))
        connect(m, fetch.request, flipped(self.request))
        connect(m, flipped(self.beat), fetch.beat)
        m.d.comb += [
            fetch.jump.eq(scalar.jump),
            fetch.jump_to.eq(scalar.jump_to),
            fetch.enable.eq(self.enable),
            fetch.program.eq(self.program),
            fetch.limit.eq(self.limit),
            fetch.starved.eq(self.starved & scalar.idle),
            self.urgent.eq(fetch.urgent),
            self.exhausted.eq(fetch.exhausted),
        ]
        return m


def unit(variant=None):
    return FetchedScalar(config=CONFIGS[variant or chosen_variant()])


class Program(Bench):
    """A bench of fetch and scalar unit with a program, a memory and a taker of instructions.

    NOPs follow the program. The memory answers in order, at the earliest `latency` cycles after the
    request. `ask`, `answer` and `take` are the probabilities that request, beat and instruction
    move in a cycle.
    """

    def __init__(self, dut, chance, words, *, latency=0, ask=1, answer=1, take=1):
        super().__init__(dut, unit())
        words = [*words, *[NOP] * (-len(words) % 256 or 256)]
        self.memory = b"".join(word.to_bytes(WORD, "little") for word in words)
        self.words = words
        self.random = chance
        self.bus = CONFIGS[chosen_variant()].host_bus_bytes
        self.rates, self.latency = (ask, answer, take), latency
        self.bad = set()
        self.beats = []  # pairs of the earliest cycle of a beat and its address
        self.taken = []
        self.now = 0
        self.model = Interpreter()
        self.next = 0
        self.set(program=0, limit=len(self.memory))

    async def step(self):
        """Run one cycle of the memory and the taker, and check an instruction that is taken."""
        ask, answer, take = (self.random.random() < rate for rate in self.rates)
        inputs = {"request__ready": ask, "instruction__ready": take, "beat__valid": 0}
        if self.beats and self.beats[0][0] <= self.now and answer:
            _, address = self.beats.pop(0)
            bits = int.from_bytes(self.memory[address : address + self.bus], "little")
            inputs["beat__valid"] = 1
            inputs["beat__payload"] = {"data": bits, "error": address in self.bad}
        await self.cycle(**inputs, enable=1, starved=self.random.getrandbits(1))
        if ask and self.get("request__valid"):
            request = self.get("request__payload")
            size = (request.length + 1) * self.bus
            due = self.now + 1 + self.latency
            self.beats += [(due, request.offset + i) for i in range(0, size, self.bus)]
        if take and self.get("instruction__valid"):
            self.check(self.get("instruction__payload"))
            self.taken.append((self.now, self.next))
            word, error = self.words[self.next], self.error()
            self.next = self.model.step(self.next, word, error)
        self.now += 1

    def error(self):
        """Return whether the memory answers the read of the next instruction with an error."""
        place, size = self.next * WORD, max(self.bus, WORD)
        return int(any(place // size == address // size for address in self.bad))

    def check(self, instruction):
        """Check that the unit hands out the instruction that the interpreter executes next."""
        error = self.error()
        assert (instruction.pc, instruction.error) == (self.next, error)
        total, fault = self.model.shown(self.words[self.next])
        assert error or effective(instruction) == total
        assert instruction.loop_fault == (fault and not error)
        assert not instruction.loop_fault or instruction.loops == len(self.model.loops)

    async def run(self, count):
        """Run until `count` instructions have been taken, or the program has ended."""
        while len(self.taken) < count and self.next < len(self.words):
            await self.step()
            assert self.now < 100 * count + 1000, "too slow"


def trace(words):
    """Return the numbers of the instructions that a plain interpreter executes, at most MOST."""
    model, numbers = Interpreter(), []
    number = 0
    while number < len(words) and len(numbers) < MOST:
        numbers.append(number)
        number = model.step(number, words[number], 0)
    return numbers


@cocotb.test
@cocotb.parametrize(body=[1, 2, 7, 60])
async def nested(dut, body):
    """Check the order of instructions in four nested loops, with counts in index registers.

    An index register moves an address in the innermost body.
    """
    random = rng("scalar nested")
    words = [set_register(1, value=2), set_register(2, value=1)]
    words += [loop(1, 1), loop(2), loop(0, 1), loop(1, 2)]
    words += [load_table(64, 3)] * (body - 1) + [set_register(3, value=256, first=3)]
    words += [END] * 4
    bench = Program(dut, random, words)
    await bench.start()
    expected = [0, 1, 2]
    inner = [*range(6, 6 + body + 1)]
    for _ in range(3):
        expected.append(3)
        for _ in range(2):
            expected.append(4)
            for _ in range(2):
                expected.append(5)
                for _ in range(2):
                    expected += inner
                expected.append(6 + body + 1)
            expected.append(6 + body + 2)
        expected.append(6 + body + 3)
    expected += range(6 + body + 4, 6 + body + 10)
    await bench.run(len(expected))
    assert [number for _, number in bench.taken] == expected
    assert bench.model.registers[3] == 256 * 24
    # If the fetch keeps the loop's body, the first instruction of the body comes AFTER_JUMP cycles
    # after the End_Loop that jumps back.
    if body + 7 <= Fetch.loop_capacity(CONFIGS[chosen_variant()]):
        steps = pairwise(bench.taken)
        jumps = [late - soon for (soon, a), (late, b) in steps if b <= a]
        assert jumps == [AFTER_JUMP] * 23


def block(random, depth, size):
    """Return random instructions with nested loops of random sizes among them."""
    words = []
    while len(words) < size:
        kind = random.random()
        if kind < 0.2 and depth < LOOP_DEPTH:
            body = block(random, depth + 1, random.choice([0, 1, 2, 3, 8, 20, 30, 45]))
            count, register = random.randint(1, 4), 0
            if random.random() < 0.5:
                register = random.randint(1, 7)
                words.append(set_register(register, value=count + 2))
                count = MODULO - 2
            words += [loop(count, register), *body, END]
        elif kind < 0.4:
            first, second = random.randrange(8), random.randrange(8)
            value = random.randint(-999, 999)
            words.append(
                set_register(random.randint(1, 7), value=value, first=first, second=second)
            )
        else:
            words.append(random.getrandbits(128) & ~0xFF | random.choice(PLAIN))
    return words


@cocotb.test
@cocotb.parametrize((("latency", "ask", "answer", "take"), PACES), case=range(3))
async def random_loops(dut, latency, ask, answer, take, case):
    """Check programs of nested loops, with bodies shorter and longer than the fetch's memory."""
    random = rng("scalar loops", latency, ask, case, chosen_variant())
    words = block(random, 0, 80)
    expected = trace(words)
    rates = {"ask": ask, "answer": answer, "take": take}
    bench = Program(dut, random, words, latency=latency, **rates)
    await bench.start()
    await bench.run(len(expected))
    assert [number for _, number in bench.taken] == expected


@cocotb.test
@cocotb.parametrize((("latency", "ask", "answer", "take"), PACES))
async def wild_programs(dut, latency, ask, answer, take):
    """Check programs of any words, some of them unreadable: the unit must never stop."""
    random = rng("scalar programs", latency, ask, chosen_variant())
    words = [wild_word(random) for _ in range(250)]
    rates = {"ask": ask, "answer": answer, "take": take}
    bench = Program(dut, random, words, latency=latency, **rates)
    bench.bad = {random.randrange(0, 256 * WORD, bench.bus) for _ in range(9)}
    await bench.start()
    await bench.run(1000)


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_scalar_loops(simulator, variant):
    run_unit("test_scalar_loops", simulator, unit(variant), variant=variant)
