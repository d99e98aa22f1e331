# SPDX-License-Identifier: Apache-2.0
"""SIGMOID, TANH, EXP and reciprocals of int16 in the lanes: every argument against the golden
model."""

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles

from systola.arch.isa import INVERSE_ROOT, RECIPROCAL
from systola.golden.gates import exponential, inverse_root, reciprocal, sigmoid, tanh
from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.gate_lane import PRODUCT_LATENCY, GateLane
from systola.hdl.activation.gate_sequencer import LAST_PRODUCT, GateSequencer
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.spacings import gate_spacing
from systola.hdl.parts.multiplier import Multiplier
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit

LATENCY = 72
"""Cycles from the arguments to the results, and from start to start."""
KEPT = 3
"""Cycles after a start in which the results before it can still be read, at least."""
FUNCTIONS = [
    ("sigmoid", 0),
    *((name, bits) for name in ("tanh", "exp") for bits in range(5)),
    ("exp", RECIPROCAL),
    ("exp", INVERSE_ROOT),
]
LANES = {"few": 4, "many": 32}
CORNERS = (
    *(-32768, -32767, -1, 0, 1, 2, 32766, 32767, -16384, 4096, -4096, 1024, -1024, 3),
    *(8192, -8192, 8193, -8193, 16385, 24577),
)


class Gates(wiring.Component):
    """A sequencer with lanes, whose `arguments` come with `start` and wait for a cycle."""

    def __init__(self, *, lanes):
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "tanh": In(1),
                "exp": In(1),
                "integer_bits": In(3),
                "arguments": In(data.ArrayLayout(signed(16), lanes)),
                "results": Out(data.ArrayLayout(signed(16), lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer = sequencer = GateSequencer(training=True)
        m.d.comb += [
            sequencer.start.eq(self.start),
            sequencer.tanh.eq(self.tanh),
            sequencer.exp.eq(self.exp),
            sequencer.integer_bits.eq(self.integer_bits),
        ]
        arguments = Signal.like(self.arguments)
        m.d.sync += arguments.eq(self.arguments)
        for index in range(self._lanes):
            m.submodules[f"lane{index}"] = lane = GateLane()
            m.submodules[f"multiplier{index}"] = multiplier = Multiplier(
                a=signed(16), b=signed(16), pipeline=False
            )
            m.d.comb += [
                multiplier.enable.eq(1),
                # What it makes without being asked is not for the gates.
                multiplier.a.eq(Mux(sequencer.control.multiply, lane.first, -1)),
                multiplier.b.eq(lane.second),
                lane.product.eq(multiplier.product),
                lane.control.eq(sequencer.control),
                lane.argument.eq(arguments[index]),
                self.results[index].eq(lane.result),
            ]
        return m


def unit():
    return Gates(lanes=LANES[chosen_variant()])


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
    """The unit, with one vector after the other."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.lanes = LANES[chosen_variant()]

    async def begin(self, function, integer_bits, arguments):
        """The cycle of start; the inputs are something else from the next one on."""
        assert len(arguments) == self.lanes
        is_tanh, is_exp = function == "tanh", function == "exp"
        self.set(tanh=is_tanh, exp=is_exp)
        await self.cycle(start=1, integer_bits=integer_bits, arguments=arguments)
        self.set(start=0, tanh=not is_tanh, exp=not is_exp, integer_bits=7 - integer_bits)
        self.set(arguments=[~x for x in arguments])

    def results(self):
        bits = self.get("results")
        return [bits[index] for index in range(self.lanes)]


@cocotb.test
async def every_argument(dut):
    """All 65,536 of each function where there are many lanes, else some; at full rate."""
    bench = Vectors(dut)
    await bench.start()
    random = rng("gate_lane")
    before = None
    for function, integer_bits in FUNCTIONS:
        values = list(range(-32768, 32768))
        if chosen_variant() == "few":
            values = [*CORNERS, *random.sample(values, 200)]
            values += values[: -len(values) % bench.lanes]
        for first in range(0, len(values), bench.lanes):
            now = function, integer_bits, values[first : first + bench.lanes]
            await bench.begin(*now)
            await bench.cycle()
            if before:
                assert bench.results() == expected(*before), before
            await ClockCycles(bench.clock, LATENCY - 2)
            before = now
    await ClockCycles(bench.clock, 2)
    assert bench.results() == expected(*before)


@cocotb.test
async def pauses(dut):
    """Functions in any order; results come no later, and stay until after the next start."""
    bench = Vectors(dut)
    await bench.start()
    random = rng("gate_lane", "pauses")
    result = None
    for _ in range(60):
        for pause in range(random.choice((0, 0, 1, 2, 30)) if result else 0):
            await bench.cycle()
            assert pause == 0 or bench.results() == result
        function, integer_bits = random.choice(FUNCTIONS)
        arguments = [
            random.choice((*CORNERS, random.randint(-32768, 32767))) for _ in range(bench.lanes)
        ]
        await bench.begin(function, integer_bits, arguments)
        for late in range(LATENCY - 1):
            assert not 1 <= late <= KEPT or result in (None, bench.results())
            await bench.cycle()
        result = expected(function, integer_bits, arguments)
    await ClockCycles(bench.clock, 2)
    assert bench.results() == result


def test_the_multiplier_is_back_in_time():
    """The gates of a vector have made their last product before the next vector needs one."""
    begin, last = ActivationLane.GATE_STAGE, ActivationLane.GATE_STAGE + LAST_PRODUCT
    stage = Requantiser.MULTIPLIER_STAGE
    assert stage < begin < last < gate_spacing(1) + stage
    assert Requantiser.LENT_LATENCY == PRODUCT_LATENCY


RUNS = [(simulator, "few") for simulator in simulators()]
RUNS += [(simulator, "many") for simulator in simulators() if simulator == "verilator"]


@pytest.mark.parametrize(("simulator", "variant"), RUNS)
def test_gate_lane(simulator, variant):
    assert GateSequencer.LATENCY == LATENCY
    run_unit("test_gate_lane", simulator, Gates(lanes=LANES[variant]), variant=variant)
