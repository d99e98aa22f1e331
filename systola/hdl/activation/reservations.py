# SPDX-License-Identifier: Apache-2.0
"""The reservation table of the lanes: the cycles in which each kind of step uses each part.

Nothing stops a step in the lanes, so a step may only come when it finds all parts free that it
uses. The pauses between steps (`spacings`) follow from this table, and docs/lanes.md shows it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.exponent_registers import MEASURED
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.table_lane import CURVE_LATENCY
from systola.hdl.activation.vector_lane import VectorLane
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY

OPERAND_LATENCY = LINE_LATENCY + 1
"""Cycles from the read of a buffer line to its bytes in the register before the lanes."""
TAP_LATENCY = 2
"""Cycles from the number of a tap, at the memory of the taps, to the weights of the tap."""
SUM_ENTRY = OPERAND_LATENCY + VectorLane.LATENCY
"""Cycles from the read of the last line of a sum to the entry of the sum into the requantisers."""
SCALED_ENTRY = OPERAND_LATENCY + VectorLane.SCALED_LATENCY
"""Cycles from the read of the last line of a sum of scaled elements to the entry of the sum.

The sum enters the requantisers, which scaled the elements before.
"""
ELEMENT_ENTRY = OPERAND_LATENCY + VectorLane.VALUE_STAGE
"""Cycles from the read of a line to the entry of its elements into the requantisers or tables."""
TAKEN = ROW_LATENCY + ActivationLane.PICK_STAGE - 1
"""Cycles from the issue of a vector with function OTHER to the cycle in which its line is taken.

The transposer or the random generators take the line.
"""


class Part(Enum):
    """A part of the lanes that serves one step after the other, in the order of the steps."""

    TAPS = "weights of a tap"
    REQUANTISER = "entry of the requantisers"
    ADDEND = "addend"
    TABLE = "tables"
    WRITER = "writer of lines"
    TILE = "transposed tile"
    GENERATORS = "random numbers"
    EXPONENT = "exponent registers"


class Cycles(NamedTuple):
    """An interval of cycles, from `first` to `last`, counted from the read of a step."""

    first: int
    last: int


Uses = Mapping[Part, Cycles]
"""For each part of the lanes that a step uses, the cycles in which it uses the part."""


def _once(cycle: int) -> Cycles:
    return Cycles(cycle, cycle)


def _result(entry: int, late: int = 0) -> Uses:
    """Return the uses of a vector that enters the requantisers `entry` cycles after its last read.

    The result comes to the writer of lines `late` cycles later than other results. The vector has
    each part for two cycles, as an int16 result has two lines, and a curve two rows of a table.
    """
    stages = {
        Part.REQUANTISER: 0,
        Part.TABLE: ActivationLane.TABLE_STAGE,
        Part.WRITER: ActivationLane.PICK_STAGE + late,
    }
    return {part: Cycles(entry + stage, entry + stage + 1) for part, stage in stages.items()}


class Kind(Enum):
    """A kind of step: steps of one kind use the same parts. The value is its name in the page."""

    LOADS_TAP = "load of a tap"
    TAKES_TAP = "element with a tap"
    LOADS_TILE = "load of a tile or seed"
    FIRST_OF_TWO = "first of two lines, the second one an addend"
    GATHERS = "element that looks up int32"
    ROW = "accumulator row"
    SUM = "sum of lines"
    SCALED_SUM = "sum of scaled elements"
    CURVE = "accumulator row on a curve"
    SUM_CURVE = "sum of lines on a curve"
    SCALED_CURVE = "sum of scaled elements on a curve"
    OTHER = "transposed or random line"
    MEASURE = "Measure"


TABLE: Mapping[Kind, Uses] = {
    Kind.LOADS_TAP: {Part.TAPS: _once(OPERAND_LATENCY)},
    Kind.TAKES_TAP: {Part.TAPS: _once(OPERAND_LATENCY - TAP_LATENCY)},
    Kind.LOADS_TILE: {
        Part.TILE: _once(OPERAND_LATENCY),
        Part.GENERATORS: _once(OPERAND_LATENCY),
    },
    Kind.FIRST_OF_TWO: {Part.ADDEND: _once(1 + OPERAND_LATENCY + VectorLane.ADDEND_LATENCY)},
    Kind.GATHERS: {Part.TABLE: _once(ELEMENT_ENTRY)},
    Kind.ROW: {
        **_result(ROW_LATENCY),
        Part.GENERATORS: _once(ROW_LATENCY + Requantiser.ROUNDING_STAGE),
        Part.EXPONENT: _once(ROW_LATENCY - 1),
    },
    Kind.SUM: {
        **_result(SUM_ENTRY),
        Part.ADDEND: _once(SUM_ENTRY + Requantiser.OFFSET_STAGE),
    },
    Kind.SCALED_SUM: {
        **_result(SCALED_ENTRY),
        Part.ADDEND: _once(SCALED_ENTRY + Requantiser.OFFSET_STAGE),
    },
    Kind.CURVE: _result(ROW_LATENCY, CURVE_LATENCY),
    Kind.SUM_CURVE: _result(SUM_ENTRY, CURVE_LATENCY),
    Kind.SCALED_CURVE: _result(SCALED_ENTRY, CURVE_LATENCY),
    Kind.OTHER: {Part.TILE: _once(TAKEN), Part.GENERATORS: _once(TAKEN)},
    # The fields of a Measure are taken at its issue, and used until the register has its value.
    Kind.MEASURE: {Part.EXPONENT: Cycles(0, SUM_ENTRY + MEASURED - 1)},
}
"""For each kind of step, the parts of the lanes that it uses, with the cycles."""


def cycles_left_out(before: Kind, after: Kind) -> int:
    """Return the cycles to leave out between two steps, so that they meet in no part.

    With a longer pause the steps cannot meet either.
    """
    earlier, later = TABLE[before], TABLE[after]
    return max([0, *(earlier[part].last - later[part].first for part in earlier if part in later)])
