# SPDX-License-Identifier: Apache-2.0
"""The test of the cycle counters: each cycle counts in one class, in the order of precedence."""

import itertools

import cocotb
import pytest

from systola.arch.registers import CycleClass
from systola.hdl.host.counters import Counters
from systola.hdl.ports import Activity
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

CONDITIONS = (*Activity().members, "draining")


def unit(variant=None):
    return Counters()


def classify(now):
    """Return the class of a cycle in which the conditions named in `now` hold."""
    order = (
        ({"active"}, CycleClass.ARRAY_ACTIVE),
        ({"awaiting_weights"}, CycleClass.WEIGHT_STALL),
        ({"weights_moving"}, CycleClass.WEIGHT_SHIFT),
        ({"matrix_waits", "input_blocked"}, CycleClass.INPUT_STALL),
        ({"matrix_waits", "operand_blocked"}, CycleClass.OPERAND_STALL),
        ({"matrix_waits"}, CycleClass.ACCUMULATOR_STALL),
        ({"vector"}, CycleClass.VECTOR),
        ({"draining"}, CycleClass.DRAIN),
        ({"host_wait"}, CycleClass.HOST_WAIT),
        ({"issue_waits"}, CycleClass.OUTPUT_STALL),
        (set(), CycleClass.FETCH),
    )
    return next(which for needed, which in order if needed <= now)


@cocotb.test
async def programs(dut):
    """Check the counts of two programs, each with every combination of conditions.

    Cycles outside the programs do not count.
    """
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("counters")
    combinations = list(itertools.product((0, 1), repeat=len(CONDITIONS)))
    for _ in range(2):
        random.shuffle(combinations)
        expected = dict.fromkeys(CycleClass, 0)
        await bench.cycle(start=1, busy=0)
        expected[CycleClass.FETCH] = 1
        # A count includes a cycle three cycles later. `value` follows `word` one more cycle later.
        shown = [None, None, None, dict(expected)]
        which = CycleClass.FETCH
        for number, values in enumerate(combinations):
            if number % 2:  # input `word` keeps its value for a second cycle
                which = random.choice(list(CycleClass))
            conditions = dict(zip(CONDITIONS, values, strict=True))
            draining = conditions.pop("draining")
            activity = Activity().const(conditions).as_bits()
            await bench.cycle(start=0, busy=1, word=2 * which, activity=activity, draining=draining)
            if number % 2 == 0 and shown[0] is not None:
                bench.expect("value", shown[0][which])
            now = {name for name, value in zip(CONDITIONS, values, strict=True) if value}
            expected[classify(now)] += 1
            shown = [*shown[1:], dict(expected)]
        await bench.cycle(busy=0)
        await bench.cycle()
        for which in CycleClass:
            for word, value in ((2 * which, expected[which]), (2 * which + 1, 0)):
                await bench.cycle(word=word)
                await bench.cycle()
                bench.expect("value", value)
        assert sum(expected.values()) == len(combinations) + 1


@pytest.mark.parametrize("simulator", simulators())
def test_counters(simulator):
    run_unit("test_counters", simulator, unit())
