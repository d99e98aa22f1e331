# SPDX-License-Identifier: Apache-2.0
"""The layout of a step of the activation unit, its phases, and the pauses after it."""

from amaranth.lib import data, enum
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.hdl.activation.spacings import (
    ADDEND_SPACING,
    DRAIN_SPACING,
    LONG_SPACING,
    TAP_SPACING,
    WIDE_SPACING,
    gate_pause,
    left_out,
)
from systola.hdl.commands import address_bits, line_bits, most_taps, row_bits


class Phase(enum.Enum, shape=2):
    """A part of a vector's steps, named after the data that these steps read.

    TAPS: the weights of the taps (Depthwise, once a block). ELEMENTS: operand a or accumulators.
    OPERAND: operand b. ADDEND: the lines to which the result is added.
    """

    TAPS = 0
    ELEMENTS = 1
    OPERAND = 2
    ADDEND = 3


PHASES = data.StructLayout({"taps": 1, "elements": 1, "operand": 1, "addend": 1})
"""A layout with a bit for each Phase."""


class Pause(enum.Enum, shape=3):
    """A reason to leave out steps after a step: the next step would come too early."""

    NONE = 0
    WIDE = 1
    TAPS = 2
    ADDEND = 3
    DRAIN = 4
    LONG = 5
    GATE = 6


class Step(data.StructLayout):
    """A step: the work of one cycle, if no other unit holds it up.

    | field           | meaning |
    |---|---|
    | `phase`         | the phase that the step belongs to |
    | `reads`         | the step reads buffer line `read` |
    | `reads_operand` | the line belongs to operand b, or to the taps |
    | `reads_first`   | the line belongs to any other region |
    | `read`          | the line |
    | `sums`          | the step reads accumulator `row` |
    | `row`           | the row |
    | `outside`       | the place of the step lies outside the map, so the step reads nothing |
    | `tap`           | number of the tap that the step loads or uses |
    | `low`           | the line has low bytes of int16, and the next line has the high bytes |
    | `pair`          | the line before, which has low bytes, is read with the line, if the machine
                        `reads_pairs` |
    | `scales`        | the step completes an element that the requantisers scale |
    | `halves`        | the step completes an element of int8 that is halved |
    | `begins`        | the step has the first element of its vector |
    | `final`         | the step issues its vector |
    | `narrow`        | the step is final, and the result is one line |
    | `wide`          | the step is final, and the result is two lines |
    | `looks_up`      | the step is final, and the result comes from a table |
    | `line`          | the line of the result, or the first of two |
    | `parameter`     | the parameter entry of the vector |
    | `table`         | number of the table |
    | `ends`          | the step is the last one of its instruction |
    | `pause`         | the pause after the step |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "phase": Phase,
                "reads": 1,
                "reads_first": 1,
                "reads_operand": 1,
                "read": line_bits(config),
                "sums": 1,
                "row": row_bits(config),
                "outside": 1,
                "tap": range(most_taps(config)),
                "low": 1,
                **({"pair": 1} if config.reads_pairs else {}),
                "scales": 1,
                "halves": 1,
                "begins": 1,
                "final": 1,
                "narrow": 1,
                "wide": 1,
                "looks_up": 1,
                "line": address_bits(config),
                "parameter": bits_for(config.parameter_entries),
                "table": 4,
                "ends": 1,
                "pause": Pause,
            }
        )


def steps_left_out(turns: int) -> dict[Pause, int]:
    """Return the number of steps to leave out for each pause, if a step takes `turns` cycles."""
    cycles = {
        Pause.WIDE: WIDE_SPACING,
        Pause.TAPS: TAP_SPACING,
        Pause.ADDEND: ADDEND_SPACING,
        Pause.DRAIN: DRAIN_SPACING,
        Pause.LONG: LONG_SPACING,
    }
    steps = {pause: left_out(count, turns) for pause, count in cycles.items()}
    return steps | {Pause.GATE: gate_pause(turns)}
