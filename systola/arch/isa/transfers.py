# SPDX-License-Identifier: Apache-2.0
"""Instructions that move data between host memory and the chip."""

from __future__ import annotations

from systola.arch.isa.codes import PARAMETER_PLANES, TABLE_BYTES, Opcode
from systola.arch.isa.faults import Fault
from systola.arch.isa.fields import (
    BUFFER,
    ROWS,
    Executor,
    Field,
    Hardware,
    Instruction,
    Memory,
    Use,
    registers,
)

_HOST = Field(
    name="host", width=32, doc="byte offset in the host window, a multiple of the host bus", at=32
)
_MATRIX = (
    *registers("host", "buffer"),
    ROWS,
    _HOST,
    BUFFER,
    Field(
        name="stride",
        width=24,
        doc="bytes from one row to the next in host memory, a multiple of the host bus",
    ),
    Field(name="blocks", width=12, doc="blocks that one row is cut into", minimum=1),
    Field(name="tail", width=8, doc="bytes of the last block of each row", less=1),
)

_READ_HOST_MEMORY = """\
Each of the `rows` rows in host memory is `blocks` input vectors of R bytes. R is the rows of the
array. A vector takes one input pitch P_in: R rounded up to whole beats of the host bus.

1. Block b of row m goes to line `buffer` + b * `rows` + m.
2. Its bytes come from `host` + m * `stride` + b * P_in.
3. The last block (b = `blocks` - 1) has only `tail` bytes (at most R). The rest of its line becomes
   0. Bytes of a line beyond R become 0, too.
4. Lines written: `rows` * `blocks`.
5. The bytes touched in host memory end at `host` + (`rows` - 1) * `stride` + `blocks` * P_in. These
   are whole pitches, padding included.

- HOST_WINDOW: the end in line 5 is beyond the end of the host window."""

_WRITE_HOST_MEMORY = """\
This is the reverse of Read_Host_Memory, with output vectors of C bytes. C is the columns of the
array. The output pitch P_out is C rounded up to whole beats.

1. Bytes 0 to C - 1 of line `buffer` + b * `rows` + m go to `host` + m * `stride` + b * P_out.
2. For the last block only `tail` bytes (at most C) are written.
3. No other byte is written, not even padding.
4. Lines read: `rows` * `blocks`.
5. Copies are made in the order of b, then m. The order makes a difference only where rows overlap
   in host memory.

- HOST_WINDOW is checked with whole pitches, up to `host` + (`rows` - 1) * `stride` + `blocks` *
  P_out."""

_LOAD_PARAMETERS = f"""\
An entry serves the C channels of one N tile. It takes {PARAMETER_PLANES} planes of P_out bytes in
host memory, one after the other. Entries follow each other in the same way. Byte c of a plane
belongs to channel c.

1. Planes 0 to 3 are the bytes of the bias (int32, least significant first).
2. Planes 4 to 7 are the bytes of the multiplier. Bit 31 is ignored.
3. Plane 8 is the shift: bits 4:0 right shift r, bits 7:5 left shift l.

- HOST_WINDOW takes all `count` * {PARAMETER_PLANES} * P_out bytes."""

_LOAD_TABLE = f"""\
{TABLE_BYTES} bytes from `host` on become table `table`. Byte i is the int8 result for the int8
input with bit pattern i: entry 0 for input 0, entry 128 for -128, entry 255 for -1.

- HOST_WINDOW is checked with these {TABLE_BYTES} bytes.
- UNAVAILABLE where there are no tables."""

_READ_ALTERNATE = """\
This is Read_Host_Memory with other lines.

1. Block b of row m goes to line `buffer` + m * `blocks` + b. So the blocks of a row follow one
   another, as packed channels and whole pixels need them.
2. All else is as for Read_Host_Memory."""

_WRITE_ALTERNATE = """\
This is Write_Host_Memory with other lines.

1. Block b of row m comes from line `buffer` + m * `blocks` + b.
2. Copies are made in the order of m, then b.
3. All else is as for Write_Host_Memory."""

TRANSFERS: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.READ_HOST_MEMORY,
        executor=Executor.HOST_READER,
        fields=_MATRIX,
        reads=(Use(Memory.HOST, "host", "(rows - 1) * stride + blocks * P_in"),),
        writes=(Use(Memory.BUFFER, "buffer", "rows * blocks"),),
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from host memory into the unified buffer.",
        semantics=_READ_HOST_MEMORY,
    ),
    Instruction(
        opcode=Opcode.WRITE_HOST_MEMORY,
        executor=Executor.HOST_WRITER,
        fields=_MATRIX,
        reads=(Use(Memory.BUFFER, "buffer", "rows * blocks"),),
        writes=(Use(Memory.HOST, "host", "(rows - 1) * stride + blocks * P_out"),),
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from the unified buffer into host memory.",
        semantics=_WRITE_HOST_MEMORY,
    ),
    Instruction(
        opcode=Opcode.LOAD_PARAMETERS,
        executor=Executor.HOST_READER,
        fields=(
            *registers("host", "parameter"),
            _HOST,
            Field(name="parameter", width=12, doc="first parameter entry"),
            Field(name="count", width=12, doc="entries", minimum=1),
        ),
        reads=(Use(Memory.HOST, "host", f"count * {PARAMETER_PLANES} * P_out"),),
        writes=(Use(Memory.PARAMETERS, "parameter", "count"),),
        checks=(Fault.PARAMETER_RANGE, Fault.HOST_WINDOW),
        summary="Loads bias, multiplier and shift of output channels.",
        semantics=_LOAD_PARAMETERS,
    ),
    Instruction(
        opcode=Opcode.LOAD_TABLE,
        executor=Executor.HOST_READER,
        needs=Hardware.TABLES,
        fields=(
            *registers("host"),
            _HOST,
            Field(name="table", width=4, doc="number of the table"),
        ),
        reads=(Use(Memory.HOST, "host", str(TABLE_BYTES)),),
        writes=(Use(Memory.TABLES, "table", "1"),),
        checks=(Fault.UNAVAILABLE, Fault.TABLE_RANGE, Fault.HOST_WINDOW),
        summary="Loads a 256-entry activation table.",
        semantics=_LOAD_TABLE,
    ),
    Instruction(
        opcode=Opcode.READ_HOST_MEMORY_ALTERNATE,
        executor=Executor.HOST_READER,
        fields=_MATRIX,
        reads=(Use(Memory.HOST, "host", "(rows - 1) * stride + blocks * P_in"),),
        writes=(Use(Memory.BUFFER, "buffer", "rows * blocks"),),
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from host memory into the unified buffer, row by row.",
        semantics=_READ_ALTERNATE,
    ),
    Instruction(
        opcode=Opcode.WRITE_HOST_MEMORY_ALTERNATE,
        executor=Executor.HOST_WRITER,
        fields=_MATRIX,
        reads=(Use(Memory.BUFFER, "buffer", "rows * blocks"),),
        writes=(Use(Memory.HOST, "host", "(rows - 1) * stride + blocks * P_out"),),
        checks=(Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        summary="Copies a matrix from the unified buffer into host memory, row by row.",
        semantics=_WRITE_ALTERNATE,
    ),
)
