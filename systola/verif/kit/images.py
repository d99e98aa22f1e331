# SPDX-License-Identifier: Apache-2.0
"""Functions that put a program and its data into a memory image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.arch.assembler import assemble
from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, encode
from systola.arch.registers import PROGRAM_ALIGNMENT

DATA_OFFSET = HOST_PAGE_BYTES
"""The byte offset of the data in the host window of a directed test; the program is in page 0."""


def make_image(
    program: Sequence[bytes],
    *,
    host: NDArray[np.uint8],
    weights: NDArray[np.uint8] | None = None,
    program_offset: int = 0,
) -> Image:
    """Make a memory image from a copy of `host`, with the instructions of `program` in it."""
    assert program_offset % PROGRAM_ALIGNMENT == 0
    code = b"".join(program)
    assert program_offset + len(code) <= len(host), "the program is longer than its place"
    memory = host.copy()
    memory[program_offset : program_offset + len(code)] = np.frombuffer(code, np.uint8)
    return Image(
        program=code,
        host=memory,
        program_offset=program_offset,
        weights=np.zeros(0, np.uint8) if weights is None else weights,
    )


def program_image(words: Sequence[bytes]) -> Image:
    """Make an image of these instructions and a Halt, in a memory of zeros, without weights."""
    program = b"".join([*words, encode(Opcode.HALT)])
    pages = -(-len(program) // HOST_PAGE_BYTES)
    return make_image([program], host=np.zeros(pages * HOST_PAGE_BYTES, np.uint8))


def text_image(text: str) -> Image:
    """Make an image of assembly text and a Halt, in a memory of zeros, without weights."""
    return program_image([assemble(text)])


def random_memory(rng: np.random.Generator, pages: int) -> NDArray[np.uint8]:
    """Return random bytes for `pages` pages of the host window."""
    return rng.integers(0, 256, pages * HOST_PAGE_BYTES, dtype=np.uint8)


def random_tiles(rng: np.random.Generator, config: Config, count: int) -> NDArray[np.uint8]:
    """Return random bytes for `count` weight tiles, padding included."""
    return rng.integers(0, 256, count * config.tile_bytes, dtype=np.uint8)


def parameter_entry(
    config: Config,
    *,
    bias: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    left: NDArray[np.uint8],
    right: NDArray[np.uint8],
) -> NDArray[np.uint8]:
    """Return the bytes of one parameter entry, in the form that Load_Parameters reads.

    Each argument is an array with one value for each channel.
    """
    pitch = config.output_pitch
    planes = np.zeros((9, pitch), np.uint8)
    planes[0:4, : config.cols] = bias.astype("<i4").view(np.uint8).reshape(-1, 4).T
    planes[4:8, : config.cols] = multiplier.astype("<i4").view(np.uint8).reshape(-1, 4).T
    planes[8, : config.cols] = left << 5 | right
    return planes.ravel()


def random_parameter_entry(rng: np.random.Generator, config: Config) -> NDArray[np.uint8]:
    """Return a parameter entry with which sums of random vectors have many different results."""
    cols = config.cols
    return parameter_entry(
        config,
        bias=rng.integers(-(1 << 14), 1 << 14, cols, dtype=np.int32),
        multiplier=rng.integers(1 << 30, (1 << 31) - 1, cols, dtype=np.int32),
        left=rng.integers(0, 2, cols, dtype=np.uint8),
        right=rng.integers(5, 11, cols, dtype=np.uint8),
    )


def varied_parameter_entry(rng: np.random.Generator, config: Config) -> NDArray[np.uint8]:
    """Return a parameter entry with channels of several kinds.

    Some channels suit sums of very different sizes, some are wholly at random. Some have numbers of
    few bits, so that results lie halfway between two. Some have small multipliers of large sums, in
    which every bit counts.
    """
    cols = config.cols
    kind = rng.integers(0, 6, cols)
    bits = np.choose(kind, [8, 14, 24, 31, 8, 31])
    small = 1 << rng.integers(4, 17)
    lowest = np.choose(kind, [1 << 30, 1 << 30, 1 << 30, 0, 1 << 30, 0])
    highest = np.choose(kind, [1 << 31, 1 << 31, 1 << 31, 1 << 31, (1 << 30) + 1, small])
    least = np.choose(kind, [0, 4, 16, 0, 0, 0])
    most = np.choose(kind, [3, 11, 23, 31, rng.choice((6, 12, 31), cols), 1])
    zeros = np.choose(kind, [0, 0, 0, 0, rng.integers(0, 24), 0])
    return parameter_entry(
        config,
        bias=(
            (rng.integers(-(1 << bits), 1 << bits) << zeros) - (zeros > rng.integers(0, 24))
        ).astype(np.int32),
        multiplier=rng.integers(lowest, highest).astype(np.int32),
        left=rng.integers(0, np.choose(kind, [8, 2, 2, 8, 2, 1])).astype(np.uint8),
        right=rng.integers(least, most + 1).astype(np.uint8),
    )
