# SPDX-License-Identifier: Apache-2.0
"""The test of the lanes' SIGMOID, TANH, EXP and reciprocals of int16, against the golden model."""

import itertools
from collections import deque

import cocotb
import numpy as np
import pytest
from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles

from systola.arch.isa import INVERSE_ROOT, RECIPROCAL
from systola.golden.gates import exponential, inverse_root, reciprocal, sigmoid, tanh
from systola.hdl.activation.gate_lane import (
    PRODUCT_LATENCY,
    Addend,
    First,
    GateControl,
    GateLane,
    Second,
    slots,
    sum_steps,
)
from systola.hdl.activation.gate_program import INVERSE, LAST_PRODUCT, PROGRAMS
from systola.hdl.activation.gate_sequencer import GateSequencer, gate_spacing, gates_alone, lead
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.parts.multiplier import Multiplier
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit

LATENCY = {1: 85, 2: 60}
"""The number of steps from the arguments of a gate function to its results.

The keys are the number of cycles of a step.
"""
SPACING = {1: 31, 2: 31}
"""The least number of steps from the start of one vector to the start of the next.

The keys are the number of cycles of a step.
"""
PLACES = {1: 3, 2: 2}
"""A period in steps: vectors start SPACING and n periods apart, n >= 0.

The keys are the number of cycles of a step. Any larger distance is allowed when the older vector
has left the lanes.
"""
ALONE = {1: 88, 2: 62}
"""The number of steps from a start after which the vector is in the way of no other vector.

The keys are the number of cycles of a step.
"""
FUNCTIONS = [
    ("sigmoid", 0),
    *((name, bits) for name in ("tanh", "exp") for bits in range(5)),
    ("exp", RECIPROCAL),
    ("exp", INVERSE_ROOT),
]
LANES = {"few": 4, "many": 32, "two in a lane": 2}
TURNS = {"two in a lane": 2}
CORNERS = (
    *(-32768, -32767, -1, 0, 1, 2, 32766, 32767, -16384, 4096, -4096, 1024, -1024, 3),
    *(8192, -8192, 8193, -8193, 16385, 24577),
)


class Gates(wiring.Component):
    """A sequencer of gate functions with lanes, as a unit to test.

    | port | meaning |
    |---|---|
    | `start` | a vector starts; it is held for a step |
    | `tanh`, `exp`, `integer_bits` | function of the vector |
    | `arguments` | arguments of the vector, which come with `start` and wait for a step |
    | `last_turn` | the last cycle of a step |
    | `results` | results of the vector |

    If `turns` columns share a lane, a step has `turns` cycles, for which the inputs stay unchanged.
    """

    def __init__(self, *, lanes, turns=1):
        self._lanes = lanes
        self._turns = turns
        super().__init__(
            {
                "start": In(1),
                "tanh": In(1),
                "exp": In(1),
                "integer_bits": In(3),
                "arguments": In(data.ArrayLayout(signed(16), lanes * turns)),
                "last_turn": Out(1),
                "results": Out(data.ArrayLayout(signed(16), lanes * turns)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sequencer = GateSequencer(training=True, turns=self._turns)
        turn = Signal(range(self._turns))
        last_turn = turn == self._turns - 1
        m.d.sync += turn.eq(Mux(last_turn, 0, turn + 1))
        m.d.comb += self.last_turn.eq(last_turn)
        m.submodules.sequencer = EnableInserter(last_turn)(sequencer)
        # As in the machine, a step of the lanes begins a cycle after a step of the sequencer.
        control = Signal(GateControl())
        m.d.sync += control.eq(sequencer.following)
        turn_of_lanes = Signal(range(self._turns))
        m.d.sync += turn_of_lanes.eq(turn)
        m.d.comb += [
            sequencer.start.eq(self.start),
            sequencer.tanh.eq(self.tanh),
            sequencer.exp.eq(self.exp),
            sequencer.integer_bits.eq(self.integer_bits),
        ]
        arguments = Signal.like(self.arguments)
        m.d.sync += arguments.eq(self.arguments)
        for index in range(self._lanes):
            lane = GateLane(turns=self._turns)
            m.submodules[f"lane{index}"] = lane
            m.submodules[f"multiplier{index}"] = multiplier = Multiplier(
                a=signed(16), b=signed(16), pipeline=False
            )
            m.d.comb += [
                multiplier.enable.eq(1),
                # The gates must ignore products that the multiplier makes for other users.
                multiplier.a.eq(Mux(control.factors.multiply, lane.first, -1)),
                multiplier.b.eq(lane.second),
                lane.product.eq(multiplier.product),
                lane.control.eq(control),
            ]
            for column in range(self._turns):
                number = self._turns * index + column
                kept = Signal(signed(16), name=f"kept_{number}")
                with m.If(turn_of_lanes == column):
                    m.d.comb += lane.argument.eq(arguments[number])
                    m.d.sync += kept.eq(lane.result)
                m.d.comb += self.results[number].eq(Mux(turn_of_lanes == column, lane.result, kept))
        return m


def unit():
    variant = chosen_variant()
    return Gates(lanes=LANES[variant], turns=TURNS.get(variant, 1))


def expected(function, integer_bits, arguments):
    x = np.array(arguments, np.int16)
    if function == "sigmoid":
        return sigmoid(x).tolist()
    if integer_bits == RECIPROCAL:
        return reciprocal(x).tolist()
    if integer_bits == INVERSE_ROOT:
        return inverse_root(x).tolist()
    return (tanh if function == "tanh" else exponential)(x, integer_bits).tolist()


class Vectors(Bench):
    """A bench that gives the unit one vector after another, and checks the results when they are
    due.
    """

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.turns = TURNS.get(chosen_variant(), 1)
        self.lanes = LANES[chosen_variant()] * self.turns
        self.now = 0
        self.due = deque()

    async def start(self):
        """Start the clock, reset the unit, and wait for the end of a step."""
        await super().start()
        await self.cycle()
        while not self.get("last_turn"):
            await self.cycle()

    async def wait(self, steps):
        """Wait for some steps in which no vector starts, and check the results that are due in
        them.
        """
        end = self.now + steps * self.turns
        while self.due and self.due[0][0] <= end:
            when, vector = self.due.popleft()
            await ClockCycles(self.clock, when - self.now)
            self.now = when
            assert self.results() == expected(*vector), vector
        if end > self.now:
            await ClockCycles(self.clock, end - self.now)
            self.now = end

    async def begin(self, function, integer_bits, arguments):
        """Start a vector and run this step; the inputs change from the next step on."""
        assert len(arguments) == self.lanes
        is_tanh, is_exp = function == "tanh", function == "exp"
        self.set(tanh=is_tanh, exp=is_exp)
        self.set(start=1, integer_bits=integer_bits, arguments=arguments)
        await self.wait(1)
        due = self.now + self.turns * LATENCY[self.turns] + 1
        self.due.append((due, (function, integer_bits, arguments)))
        self.set(start=0, tanh=not is_tanh, exp=not is_exp, integer_bits=7 - integer_bits)
        self.set(arguments=[~x for x in arguments])

    def results(self):
        bits = self.get("results")
        return [bits[index] for index in range(self.lanes)]


@cocotb.test
async def every_argument(dut):
    """Check each function at full rate, on all 65,536 arguments if there are many lanes, else on
    some.
    """
    bench = Vectors(dut)
    await bench.start()
    random = rng("gate_lane")
    for function, integer_bits in FUNCTIONS:
        values = list(range(-32768, 32768))
        if chosen_variant() != "many":
            values = [*CORNERS, *random.sample(values, 80)]
            values += values[: -len(values) % bench.lanes]
        for first in range(0, len(values), bench.lanes):
            await bench.begin(function, integer_bits, values[first : first + bench.lanes])
            alone = integer_bits >= RECIPROCAL
            await bench.wait((ALONE if alone else SPACING)[bench.turns] - 1)
        await bench.wait(ALONE[bench.turns])
    await bench.wait(2 * LATENCY[bench.turns])


@cocotb.test
async def pauses(dut):
    """Check functions in any order: each as soon as possible, some steps later, or alone."""
    bench = Vectors(dut)
    await bench.start()
    random = rng("gate_lane", "pauses")
    later, alone, inverted = 1, 1, False
    for _ in range(80):
        function, integer_bits = random.choice(FUNCTIONS)
        inverts = integer_bits >= RECIPROCAL
        choices = (alone,) if inverts or inverted else (later, later, alone)
        await bench.wait(random.choice(choices) - 1)
        inverted = inverts
        arguments = [
            random.choice((*CORNERS, random.randint(-32768, 32767))) for _ in range(bench.lanes)
        ]
        await bench.begin(function, integer_bits, arguments)
        later = SPACING[bench.turns] + PLACES[bench.turns] * random.choice((0, 0, 1, 2, 7, 19))
        alone = ALONE[bench.turns] + random.randrange(3)
    await bench.wait(2 * LATENCY[bench.turns])


def products(start, turns):
    """Return the steps, from `start` on, in which a vector uses the multiplier of its lane.

    The requantiser uses the multiplier for the vector first, and its gates use it later.
    """
    gates = start + (Requantiser.LATENCY - Requantiser.MULTIPLIER_STAGE) // turns + lead(turns)
    return {start, *(gates + slots(turns) * row for row in range(LAST_PRODUCT + 1))}


def takes_argument(row):
    """Return whether a row of a gate program has the function's argument as an operand."""
    operands = {"first": First, "second": Second, "addend": Addend}
    return any(row.get(name) is kind.ARGUMENT for name, kind in operands.items())


def last_sum(turns, needs):
    """Return the number of steps from an argument to the last sum of a row that satisfies `needs`.

    All rows of all gate programs count.
    """
    numbers = [
        number
        for program in (*PROGRAMS.values(), INVERSE)
        for number, row in enumerate(program)
        if needs(row)
    ]
    return lead(turns) + slots(turns) * max(numbers) + sum_steps(turns)


def test_vectors_do_not_meet():
    """Check that two vectors with gate functions never need the same part of a lane in one step.

    The gates of other vectors and their requantisers need the multiplier in other steps. A register
    that all vectors share is free when the next vector comes.
    """
    assert Requantiser.LENT_LATENCY == PRODUCT_LATENCY
    for turns in (1, 2):
        apart, places = gate_spacing(turns), slots(turns)
        for later in itertools.product(range(3), repeat=4):
            starts = itertools.accumulate((apart + places * n for n in later), initial=0)
            taken = [products(start, turns) for start in starts]
            assert sum(map(len, taken)) == len(set.union(*taken))
        assert max(products(0, turns)) < gates_alone(turns)

        assert last_sum(turns, takes_argument) <= apart
        for program in PROGRAMS.values():
            (kept,) = (number for number, row in enumerate(program) if row.get("keep"))
            used = [n for n, row in enumerate(program) if row.get("second") is Second.SPARE]
            assert places * (max(used) - kept) < apart


RUNS = [(simulator, "few") for simulator in simulators()]
RUNS += [
    (simulator, variant)
    for variant in ("many", "two in a lane")
    for simulator in simulators()
    if simulator == "verilator"
]


@pytest.mark.parametrize(("simulator", "variant"), RUNS)
def test_gate_lane(simulator, variant):
    turns = TURNS.get(variant, 1)
    assert GateSequencer.latency(turns) == LATENCY[turns]
    found = gate_spacing(turns), slots(turns), gates_alone(turns)
    assert found == (SPACING[turns], PLACES[turns], ALONE[turns])
    gates = Gates(lanes=LANES[variant], turns=turns)
    run_unit("test_gate_lane", simulator, gates, variant=variant)
