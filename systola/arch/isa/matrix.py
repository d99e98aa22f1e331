# SPDX-License-Identifier: Apache-2.0
"""Instructions of the array: weights, products and convolutions."""

from __future__ import annotations

from dataclasses import replace

from systola.arch.isa.codes import WEIGHT_READS_IN_FLIGHT, Opcode
from systola.arch.isa.faults import Fault
from systola.arch.isa.fields import (
    ACCUMULATOR,
    BUFFER,
    FILL,
    N_TILES,
    ROWS,
    Executor,
    Field,
    Instruction,
    Memory,
    Use,
    flag,
    registers,
)

_MATRIX_MULTIPLY = """\
For n = 0 .. `n_tiles` - 1, for k = 0 .. `k_tiles` - 1:

1. The next tile W is taken from the weight queue.
2. For m = 0 .. `rows` - 1, x is the first R bytes, int8, of line `buffer` + k * `rows` + m.
3. For each m, the vector x W is added to accumulator row `accumulator` + n * `rows` + m, 32 bits,
   modulo 2^32.
4. With `accumulate` = 0 the product of k = 0 replaces the row.

Lines read: `rows` * `k_tiles`. Accumulator rows: `rows` * `n_tiles`. Tiles consumed: `k_tiles` *
`n_tiles`.

- `wide_vectors`: x is int16, in two lines. Its low bytes are in line `buffer` + 2 * (k * `rows` +
  m), its high bytes in the next. Twice the lines are read, at half the rate.
- `wide_weights`: W is int16, in two tiles of the queue. The first has its low bytes, the second its
  high bytes. Twice the tiles are consumed, at half the rate.

`from_buffer`: W comes from the buffer. The queue is neither needed nor changed.

1. Tile t = n * `k_tiles` + k has R lines, from line `weights` + t * R on. The first C bytes of each
   line are a row of the tile.
2. With `wide_weights`, row i has its low bytes in line `weights` + 2 * (t * R + i), its high bytes
   in the next.
3. Lines read for the weights: R * `k_tiles` * `n_tiles`, twice as many with `wide_weights`.

Without `from_buffer`, `weights` is ignored.

- UNAVAILABLE: `wide_vectors` or `wide_weights` where there are no 16-bit modes, `from_buffer` where
  there is no training.
- BUFFER_RANGE looks at the lines of the weights after the lines of the vectors.
- WEIGHT_OVERFLOW: the instruction has `from_buffer`, and tiles are queued. FAULT_ADDRESS is then
  `weights`.
- WEIGHT_UNDERFLOW is checked for tiles from the queue only."""

_CONVOLVE = """\
The window is set by Set_Config_Window. With `channels` = 0, a pixel takes a line for each block of
channels. Pixel (y, x) of block k is the first R bytes of line
`buffer` + k * `plane` + y * `pitch` + x. For n = 0 .. `n_tiles` - 1, for each row i, then each
column j of the kernel, for k = 0 .. `k_tiles` - 1:

1. The next tile W is taken from the weight queue.
2. For each window (p, q), row by row, x is the pixel of tap (i, j) in block k. If the tap is
   outside the map, each byte of x is `fill`.
3. The vector x W is added to accumulator row `accumulator` + n * OH * OW + p * OW + q.
4. With `accumulate` = 0 the first product replaces the row.

Tiles consumed: `n_tiles` * kernel_height * kernel_width * `k_tiles`.

With `channels` > 0, the channels are packed: the pixels of a row lie side by side in the lines. For
each n, then each row i of the kernel, one tile is taken.

1. A row of the map is W * `channels` consecutive bytes, R to a line.
2. Byte t of row y is byte t mod R of line `buffer` + y * `pitch` + floor(t / R).
3. Element e of x is byte (`left` + q * `stride_x`) * `channels` + e of row y. It is `fill` if row y
   is outside the map, or if the byte is outside the row.
4. So x has the taps of a row of the kernel side by side, and after them the bytes that follow,
   for which the weights have zeros.

Tiles consumed: `n_tiles` * kernel_height. `plane` is ignored.

- WINDOW: packed channels must fit. They need `k_tiles` = 1, `dilation_x` = 1, kernel_width *
  `channels` <= R, `stride_x` * `channels` <= R, -R <= `left` * `channels` < R, and W * `channels`
  <= R * `pitch`.
- BUFFER_RANGE looks at lines `buffer` to `buffer` + (`k_tiles` - 1) * `plane` + H * `pitch` - 1."""

_READ_WEIGHTS = f"""\
Tiles `tile` to `tile` + `count` - 1 are appended to the weight queue, in this order.

1. A tile is R rows of C int8 values. Row k holds the weights of input element k.
2. In memory each row is padded to whole beats of the weight bus.
3. The queue holds any number of tiles. At most {WEIGHT_READS_IN_FLIGHT} Read_Weights may have tiles
   in it that are not yet consumed.

- WEIGHT_WINDOW: `tile` + `count` > WEIGHT_TILES.
- WEIGHT_OVERFLOW: each of the last {WEIGHT_READS_IN_FLIGHT} Read_Weights has tiles that earlier
  instructions have not consumed."""

MATRIX: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.READ_WEIGHTS,
        executor=Executor.WEIGHT_FETCH,
        fields=(
            *registers("tile"),
            Field(name="tile", width=24, doc="first tile in the weight window, in tiles", at=32),
            Field(name="count", width=24, doc="tiles", minimum=1),
        ),
        reads=(Use(Memory.WEIGHTS, "tile", "count"),),
        checks=(Fault.WEIGHT_WINDOW, Fault.WEIGHT_OVERFLOW),
        summary="Queues weight tiles.",
        semantics=_READ_WEIGHTS,
    ),
    Instruction(
        opcode=Opcode.MATRIX_MULTIPLY,
        executor=Executor.MATRIX_UNIT,
        fields=(
            *registers("buffer", "accumulator", "weights"),
            flag("accumulate", "1: add to the accumulators; 0: overwrite"),
            flag("wide_vectors", "vectors of int16"),
            flag("wide_weights", "weights of int16"),
            flag("from_buffer", "1: weights from lines of the unified buffer; 0: from the queue"),
            replace(BUFFER, at=32),
            ACCUMULATOR,
            Field(name="weights", width=20, doc="first line of the weights", default=0),
            ROWS,
            Field(name="k_tiles", width=12, doc="tiles along K", minimum=1),
            N_TILES,
        ),
        reads=(
            Use(Memory.BUFFER, "buffer", "(1 + wide_vectors) * k_tiles * rows"),
            Use(
                Memory.BUFFER, "weights", "from_buffer * (1 + wide_weights) * R * k_tiles * n_tiles"
            ),
        ),
        writes=(Use(Memory.ACCUMULATORS, "accumulator", "rows * n_tiles"),),
        checks=(
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_OVERFLOW,
            Fault.WEIGHT_UNDERFLOW,
        ),
        summary="Multiplies a matrix by weight tiles into the accumulators.",
        semantics=_MATRIX_MULTIPLY,
    ),
    Instruction(
        opcode=Opcode.CONVOLVE,
        executor=Executor.MATRIX_UNIT,
        fields=(
            *registers("buffer", "accumulator"),
            flag("accumulate", "1: add to the accumulators; 0: overwrite"),
            replace(BUFFER, at=32),
            ACCUMULATOR,
            Field(name="plane", width=20, doc="lines from one block of channels to the next"),
            Field(name="k_tiles", width=12, doc="blocks of R input channels", minimum=1),
            N_TILES,
            Field(
                name="channels",
                width=8,
                doc="0: a line for each pixel; else packed, so many channels to a pixel",
                default=0,
            ),
            FILL,
        ),
        reads=(Use(Memory.BUFFER, "buffer", "(k_tiles - 1) * plane + map_lines"),),
        writes=(Use(Memory.ACCUMULATORS, "accumulator", "windows * n_tiles"),),
        checks=(
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_UNDERFLOW,
        ),
        summary="Convolves a feature map with weight tiles into the accumulators.",
        semantics=_CONVOLVE,
    ),
)
