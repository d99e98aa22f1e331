# SPDX-License-Identifier: Apache-2.0
"""Instructions of a core with links to its neighbours."""

from __future__ import annotations

from dataclasses import replace

from systola.arch.isa.codes import Opcode, Side
from systola.arch.isa.faults import Fault
from systola.arch.isa.fields import (
    ACCUMULATOR,
    BUFFER,
    Executor,
    Field,
    Hardware,
    Instruction,
    Memory,
    Use,
    flag,
    registers,
)

_ROWS_OF_LINKS = Field(name="rows", width=16, doc="lines or accumulator rows", minimum=1)
_SIDE = Field(name="side", width=1, doc="the neighbour", values=Side, beside=True)

_SEND = """\
For m = 0 .. `rows` - 1, a line or row goes to the neighbour on `side` (see [Links](#links)).

1. With `sums` = 0 it is line `buffer` + m of the unified buffer.
2. With `sums` = 1 it is accumulator row `accumulator` + m.

The instruction completes when the last line or row has left.

- BUFFER_RANGE is checked for lines only, ACCUMULATOR_RANGE for sums only."""

_RECEIVE = """\
For m = 0 .. `rows` - 1, line `buffer` + m becomes the next line that the neighbour on `side` sends
to this core (see [Links](#links)).

- LINK_KIND: the neighbour has sent a row of sums in place of a line."""

_REDUCE = """\
For m = 0 .. `rows` - 1, the instruction takes the next row of sums that the neighbour on `side`
sends to this core (see [Links](#links)).

1. With `accumulate` = 1 it is added to accumulator row `accumulator` + m, modulo 2^32.
2. With `accumulate` = 0 it replaces that row.

- LINK_KIND: the neighbour has sent a line in place of a row of sums."""

_BARRIER = """\
Each core counts its Barriers from the start of its program. The next instruction starts when every
core of the pod has come to its Barrier of the same number, and has completed all instructions
before it."""

LINKS: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.SEND,
        executor=Executor.LINK_UNIT,
        needs=Hardware.LINKS,
        fields=(
            *registers("buffer", "accumulator"),
            _SIDE,
            flag("sums", "1: accumulator rows; 0: lines of the unified buffer"),
            _ROWS_OF_LINKS,
            Field(name="buffer", width=20, doc="lines: the first one", default=0, at=32),
            Field(name="accumulator", width=16, doc="sums: first accumulator row", default=0),
        ),
        reads=(
            Use(Memory.BUFFER, "buffer", "(1 - sums) * rows"),
            Use(Memory.ACCUMULATORS, "accumulator", "sums * rows"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE),
        summary="Sends lines or sums to a neighbour.",
        semantics=_SEND,
    ),
    Instruction(
        opcode=Opcode.RECEIVE,
        executor=Executor.LINK_UNIT,
        needs=Hardware.LINKS,
        fields=(*registers("buffer"), _SIDE, _ROWS_OF_LINKS, replace(BUFFER, at=32)),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        summary="Takes lines that a neighbour sends.",
        semantics=_RECEIVE,
        writes=(Use(Memory.BUFFER, "buffer", "rows"),),
    ),
    Instruction(
        opcode=Opcode.REDUCE,
        executor=Executor.LINK_UNIT,
        needs=Hardware.LINKS,
        fields=(
            *registers("accumulator"),
            _SIDE,
            Field(name="accumulate", width=1, doc="1: add; 0: overwrite", default=1, beside=True),
            _ROWS_OF_LINKS,
            replace(ACCUMULATOR, at=32),
        ),
        writes=(Use(Memory.ACCUMULATORS, "accumulator", "rows"),),
        checks=(Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE),
        summary="Adds sums that a neighbour sends to accumulator rows.",
        semantics=_REDUCE,
    ),
    Instruction(
        opcode=Opcode.BARRIER,
        executor=Executor.SEQUENCER,
        needs=Hardware.LINKS,
        checks=(Fault.UNAVAILABLE,),
        summary="Waits for all cores of the pod.",
        semantics=_BARRIER,
    ),
)
"""Instructions of a core with links. A configuration without links answers their opcodes with
UNAVAILABLE, for any contents of their fields."""
