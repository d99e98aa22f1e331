# SPDX-License-Identifier: Apache-2.0
"""The controls of the lanes for buffer lines, each delayed to the cycle in which lanes use it."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, ValueLike
from amaranth.lib import data

from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.vector_lane import SumControl, VectorLane


def line_controls(m: Module, before: data.View, lanes: Sequence[data.View]) -> dict[str, ValueLike]:
    """Return the values of some ports of the lanes, one cycle before the lanes use them.

    This cycle is for the register that each group of lanes has. A LineControl passes through the
    stages of the lanes as a shift register: `lanes` holds it in each stage, and `before` in the
    stage before the first.
    """
    summing = Signal(SumControl())
    soon = lanes[VectorLane.SUM_STAGE - 1].summing
    late = lanes[VectorLane.SCALED_STAGE - 1].summing
    m.d.comb += [
        summing.eq(soon),
        summing.update.eq(soon.update & ~soon.scaled & ~soon.halved),
    ]
    with m.If(late.scaled | late.halved):
        m.d.comb += summing.eq(late)
    scaled = lanes[VectorLane.VALUE_STAGE - 1]
    multiplied = lanes[VectorLane.VALUE_STAGE + Requantiser.MULTIPLIER_STAGE - 1]
    return {
        "element": before.element,
        "scaling": scaled.scaling,
        "shift": Cat(scaled.scaling.scaled, scaled.shift),
        "scale": Cat(multiplied.scaling.scaled, multiplied.multiplier),
        "summing": summing,
    }
