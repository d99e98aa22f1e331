# SPDX-License-Identifier: Apache-2.0
"""The controls that the lanes get of the buffer lines, each in the cycle that needs it."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, ValueLike
from amaranth.lib import data

from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.vector_lane import SumControl, VectorLane


def line_controls(m: Module, before: data.View, lanes: Sequence[data.View]) -> dict[str, ValueLike]:
    """Return ports of the lanes, in the cycle before the lanes use them.

    `lanes` has the LineControl of the line in each stage of the lanes, and `before` in the stage
    before the first. The controls come a cycle early, as they pass through a register of each group
    of lanes.
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
