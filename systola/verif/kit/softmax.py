# SPDX-License-Identifier: Apache-2.0
"""Programs that compute a softmax of int8 as LiteRT does, in three steps, and their tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import (
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    Unit,
    encode,
)
from systola.compiler.quantise import rounded_shift
from systola.compiler.softmax import exponentials
from systola.verif.kit.images import make_image

TABLES = 2 * LONG_TABLES
"""Number of tables of 256 bytes for one softmax: one table of int32 for results, one for sums."""


def softmax_tables(scale: float, beta: float = 1.0) -> NDArray[np.int8]:
    """Return two tables of int32, as TABLES tables of 256 bytes.

    The first table has exponentials for the results, the second one has them for sums. Number k of
    a table is for scores with a distance of -k, modulo 256, from the largest score. `scale` is the
    scale of the scores.
    """
    table = exponentials(np.float32(scale).item(), np.float32(beta).item())
    both = np.stack([table, rounded_shift(table, 12)])
    numbers = np.roll(both[:, ::-1], 1, axis=1).astype("<i4")
    return numbers.view(np.int8).reshape(TABLES, -1)


def softmax_steps(*, scores: int, largest: int, keys: int, blocks: int, copies: int) -> list[bytes]:
    """Return the instructions of a softmax of `blocks` blocks of scores, a line for each key.

    Results replace the scores, which begin at line `scores`. The largest score of each block goes
    to a line from `largest` on. Entry `copies` leaves sums as they are; the entries after it are
    for reciprocals. `softmax_tables` has the tables, which begin at table 0.
    """
    window = {"height": keys, "kernel_height": keys, "width": 1, "kernel_width": 1, "pitch": 1}
    ones = dict.fromkeys(("stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    place = {"buffer": scores, "destination": largest, "blocks": blocks, "parameter": copies}
    maxima = [
        encode(Opcode.SET_CONFIG_WINDOW, **window, **ones, out_height=1, out_width=1),
        encode(Opcode.POOL, **place, reduction=Reduction.MAX, rounding=Rounding.SINGLE),
    ]
    partitions: list[bytes] = []
    results: list[bytes] = []
    for block in range(blocks):
        at = {
            "operation": Operation.ADD,
            "function": Function.QUOTIENT,
            "buffer": scores + block * keys,
            "operand": largest + block,
            "rows": keys,
            "parameter": copies + 1 + block,
        }
        sums = {"table": LONG_TABLES, "accumulate": 1, "destination": 0}
        partitions.append(encode(Opcode.VECTOR, **at, **sums))
        quotients = {"table": 0, "zero_point": -128, "destination": at["buffer"]}
        results.append(encode(Opcode.VECTOR, **at, **quotients))
    return [*maxima, *partitions, *results]


def softmax_image(
    config: Config, scores: NDArray[np.int8], scale: float
) -> tuple[Image, int, tuple[int, int]]:
    """Return an image that computes the softmax of `scores` (keys, queries) along the first axis.

    The number of queries is a multiple of the columns. Also returns the place of the results in
    host memory, (blocks, keys, columns), and the tags before and after the three steps.
    """
    keys, queries = scores.shape
    blocks = queries // config.cols
    lines = np.zeros((blocks, keys, config.input_pitch), np.int8)
    lines[:, :, : config.cols] = scores.reshape(keys, blocks, -1).swapaxes(0, 1)
    entry = np.zeros((PARAMETER_PLANES, config.output_pitch), np.uint8)
    entry[7], entry[8] = 1 << 6, 1 << 5  # the multiplier is 2^30, with a left shift of one bit
    parts = (entry, softmax_tables(scale).view(np.uint8), lines.view(np.uint8))
    first = 2 * HOST_PAGE_BYTES
    host = np.concatenate([np.zeros(first, np.uint8), *(part.ravel() for part in parts)])
    tables, data = first + entry.size, first + entry.size + TABLES * TABLE_BYTES
    copy = {"buffer": 0, "rows": keys * blocks, "blocks": 1, "tail": config.cols}
    steps = softmax_steps(scores=0, largest=keys * blocks, keys=keys, blocks=blocks, copies=0)
    result = _whole_pages(host.size)
    words = [
        encode(Opcode.LOAD_PARAMETERS, host=first, parameter=0, count=1),
        *(encode(Opcode.LOAD_TABLE, host=tables + n * TABLE_BYTES, table=n) for n in range(TABLES)),
        encode(Opcode.READ_HOST_MEMORY, host=data, stride=config.input_pitch, **copy),
        encode(Opcode.SYNCHRONIZE),
        encode(Opcode.DEBUG_TAG, tag=1, wait=Unit.ACTIVATION_UNIT),
        *steps,
        encode(Opcode.DEBUG_TAG, tag=2, wait=Unit.ACTIVATION_UNIT),
        encode(Opcode.WRITE_HOST_MEMORY, host=result, stride=config.output_pitch, **copy),
        encode(Opcode.HALT),
    ]
    room = np.zeros(_whole_pages(result + keys * blocks * config.output_pitch), np.uint8)
    room[: host.size] = host
    return make_image(words, host=room), result, (1, 2)


def _whole_pages(size: int) -> int:
    """Return the smallest number of bytes that fills pages of host memory, and is not below
    `size`.
    """
    return -(-size // HOST_PAGE_BYTES) * HOST_PAGE_BYTES
