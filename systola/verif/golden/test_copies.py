# SPDX-License-Identifier: Apache-2.0
"""Tests of copies from and to host memory, by hand and against plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, PLAIN_TALL, PLAIN_WIDE, TINY, Rig
from systola.verif.kit.seeds import random_seed


def numbers(count: int) -> NDArray[np.uint8]:
    """Return `count` bytes 1, 2, ... 255, 1, ...; none is 0, so that padding is visible."""
    return (np.arange(count) % 255 + 1).astype(np.uint8)


def random_bytes(rng: random.Random, count: int) -> NDArray[np.uint8]:
    return np.frombuffer(rng.randbytes(count), np.uint8).copy()


def test_read_host_memory_by_hand() -> None:
    rig = Rig(PLAIN_TALL)
    rig.host[:64] = numbers(64)
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=4, buffer=9, rows=2, stride=20, blocks=2, tail=5),
        HALT,
    )
    assert rig.machine.buffer[8:14].tolist() == [
        [-1] * 6,
        [5, 6, 7, 8, 9, 10],  # block 0, row 0: from host byte 4
        [25, 26, 27, 28, 29, 30],  # block 0, row 1: from host byte 4 + 20
        [13, 14, 15, 16, 17, 0],  # block 1, row 0: five bytes from host byte 4 + 8
        [33, 34, 35, 36, 37, 0],
        [-1] * 6,
    ]


def test_read_host_memory_clears_bytes_beyond_the_input_vector() -> None:
    rig = Rig(PLAIN_WIDE)
    rig.host[:8] = [200, 2, 3, 4, 5, 6, 7, 8]
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=2, tail=3), HALT
    )
    assert rig.machine.buffer[:3].tolist() == [[-56, 2, 3, 0, 0], [5, 6, 7, 0, 0], [-1] * 5]


def test_read_host_memory_repeats_a_row_with_stride_zero() -> None:
    rig = Rig(TINY)
    rig.host[:4] = [1, 2, 3, 4]
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=3, stride=0, blocks=1, tail=4), HALT
    )
    assert rig.machine.buffer[:4].tolist() == [[1, 2, 3, 4]] * 3 + [[0] * 4]


def test_write_host_memory_by_hand() -> None:
    rig = Rig(PLAIN_WIDE)
    rig.machine.buffer[2:6] = [
        [1, 2, 3, 4, -5],
        [6, 7, 8, 9, 10],
        [11, 12, 13, 14, 15],
        [16, 17, 18, 19, 20],
    ]
    rig.host[:60] = 99
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=4, buffer=2, rows=2, stride=24, blocks=2, tail=2),
        HALT,
    )
    assert rig.host[:60].tolist() == (
        [99] * 4
        + [1, 2, 3, 4, 251, 99, 99, 99, 11, 12]
        + [99] * 14
        + [6, 7, 8, 9, 10, 99, 99, 99, 16, 17]
        + [99] * 22
    )


def test_write_host_memory_takes_the_first_bytes_of_longer_lines() -> None:
    rig = Rig(PLAIN_TALL)
    rig.machine.buffer[0] = [1, 2, 3, 4, 5, 6]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=1, tail=3), HALT
    )
    assert rig.host[:6].tolist() == [1, 2, 3, 0, 0, 0]


def test_write_host_memory_overlapping_rows_go_block_by_block() -> None:
    rig = Rig(TINY)
    rig.machine.buffer[:6] = [[m * 10 + i for i in range(4)] for m in range(6)]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=3, stride=4, blocks=2, tail=3), HALT
    )
    # Block 0 writes lines 0, 1, 2 to host bytes 0, 4, 8. Block 1 writes three bytes of each of
    # lines 3, 4, 5 to host bytes 4, 8, 12.
    assert rig.host[:16].tolist() == [0, 1, 2, 3, 30, 31, 32, 13, 40, 41, 42, 23, 50, 51, 52, 0]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=3, stride=0, blocks=1, tail=4), HALT
    )
    assert rig.host[:4].tolist() == [20, 21, 22, 23]


def test_write_host_memory_overlap_within_one_block() -> None:
    # Rows of 5 bytes are written every 4 bytes, so the next row overwrites the last byte of a row.
    rig = Rig(PLAIN_WIDE)
    rig.machine.buffer[:2] = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=0, buffer=0, rows=2, stride=4, blocks=1, tail=5), HALT
    )
    assert rig.host[:10].tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 0]


@pytest.mark.parametrize("config", [TINY, PLAIN_TALL, PLAIN_WIDE], ids=lambda config: config.name)
def test_copies_against_loops(config: Config) -> None:
    """Check copies of random matrices by blocks and by rows; rows may overlap in host memory."""
    rng = random.Random(random_seed())
    for _ in range(120):
        reads, by_rows = rng.random() < 0.5, rng.random() < 0.5
        width = config.rows if reads else config.cols
        pitch = config.input_pitch if reads else config.output_pitch
        rows, blocks = rng.randrange(1, 9), rng.randrange(1, 5)
        at = {
            "host": 4 * rng.randrange(64),
            "buffer": rng.randrange(config.buffer_lines - rows * blocks + 1),
            "rows": rows,
            "stride": 4 * rng.randrange(0, blocks * pitch // 2),
            "blocks": blocks,
            "tail": rng.randrange(1, width + 1),
        }
        rig = Rig(config)
        rig.host[:4096] = random_bytes(rng, 4096)
        rig.machine.buffer[:] = (
            random_bytes(rng, rig.machine.buffer.size)
            .view(np.int8)
            .reshape(rig.machine.buffer.shape)
        )
        if reads:
            opcode = Opcode.READ_HOST_MEMORY_ALTERNATE if by_rows else Opcode.READ_HOST_MEMORY
        else:
            opcode = Opcode.WRITE_HOST_MEMORY_ALTERNATE if by_rows else Opcode.WRITE_HOST_MEMORY
        host: list[int] = rig.host[:4096].tolist()
        lines: list[list[int]] = rig.machine.buffer.tolist()
        if by_rows:
            order = [(m, b) for m in range(rows) for b in range(blocks)]
        else:
            order = [(m, b) for b in range(blocks) for m in range(rows)]
        for number, (m, b) in enumerate(order):
            count = at["tail"] if b == blocks - 1 else width
            start = at["host"] + m * at["stride"] + b * pitch
            line = lines[at["buffer"] + number]
            for i in range(config.line_bytes):
                if reads:
                    line[i] = scalar.signed8(host[start + i]) if i < count else 0
                elif i < count:
                    host[start + i] = line[i] % 256
        rig.complete(encode(opcode, **at), HALT)
        assert rig.host[:4096].tolist() == host, (opcode, at)
        assert rig.machine.buffer.tolist() == lines, (opcode, at)


def test_alternate_copies_by_hand() -> None:
    """Check Read_ and Write_Host_Memory_Alternate with three pixels, each in two adjacent lines."""
    rig = Rig(TINY)
    rig.host[:24] = numbers(24)
    rig.machine.buffer[:] = -1
    rig.complete(
        encode(
            Opcode.READ_HOST_MEMORY_ALTERNATE, host=0, buffer=7, rows=3, stride=8, blocks=2, tail=2
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY_ALTERNATE,
            host=64,
            buffer=8,
            rows=2,
            stride=12,
            blocks=3,
            tail=1,
        ),
        HALT,
    )
    assert rig.machine.buffer[6:14].tolist() == [
        [-1] * 4,
        [1, 2, 3, 4],
        [5, 6, 0, 0],
        [9, 10, 11, 12],
        [13, 14, 0, 0],
        [17, 18, 19, 20],
        [21, 22, 0, 0],
        [-1] * 4,
    ]
    assert rig.host[64:88].tolist() == [
        *(5, 6, 0, 0, 9, 10, 11, 12, 13, 0, 0, 0),
        *(17, 18, 19, 20, 21, 22, 0, 0, 255, 0, 0, 0),
    ]


def test_host_memory_is_read_after_earlier_writes() -> None:
    rig = Rig(TINY)
    rig.machine.buffer[0] = [1, 2, 3, 4]
    rig.complete(
        encode(Opcode.WRITE_HOST_MEMORY, host=8, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.READ_HOST_MEMORY, host=8, buffer=5, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.READ_HOST_MEMORY, host=12, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.WRITE_HOST_MEMORY, host=16, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        HALT,
    )
    assert rig.machine.buffer[5].tolist() == [1, 2, 3, 4]
    assert rig.host[8:20].tolist() == [1, 2, 3, 4] + [0] * 8
