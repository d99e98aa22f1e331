# SPDX-License-Identifier: Apache-2.0
"""Functions that move a program and its data to other addresses, so that more address bits are 1.

There are three kinds of addresses: on the buses, in the host and weight windows, and in the
memories on the chip."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import BY_OPCODE, INSTRUCTION_BYTES, Fault, Opcode, decode, encode
from systola.verif.kit.images import make_image

TILE_BITS = BY_OPCODE[Opcode.READ_WEIGHTS].field("tile").width
_MEMORIES = {
    **dict.fromkeys(("buffer", "operand", "destination", "taps"), "buffer_lines"),
    "accumulator": "accumulator_rows",
    "parameter": "parameter_entries",
}
"""Name of the Config member with an on-chip memory's size, for each operand with an address in it.
"""


@dataclass(frozen=True)
class Place:
    """A place for an image's data: base addresses of the host window and the weight window.

    `skipped` has the number of unused bytes in each window before the image's data.
    """

    bases: tuple[int, int]
    skipped: tuple[int, int]


def anywhere(config: Config, image: Image, seed: str) -> Place:
    """Return random base addresses for an image's windows, and random unused space before its data.

    The unused space may have any size that addresses and operands allow.
    """
    rng = random.Random(seed)
    pages = ((1 << 32) - image.host.size) // HOST_PAGE_BYTES
    high = 1 << config.address_bits
    bytes_before = rng.randrange(pages) * HOST_PAGE_BYTES
    tiles = min(1 << TILE_BITS, high // 2 // config.tile_bytes)
    tiles_before = rng.randrange(tiles - image.weights.size // config.tile_bytes)
    skipped = bytes_before, tiles_before * config.tile_bytes
    ends = skipped[0] + image.host.size, skipped[1] + image.weights.size
    host, weights = (rng.randrange(high - end) & -HOST_PAGE_BYTES for end in ends)
    return Place((host, weights), skipped)


def skipped_by(config: Config, cause: Fault, place: Place) -> int:
    """Return the amount that unused space at a window's start adds to a fault's address.

    The amount is in bytes for a fault of the host window, and in tiles for a fault of the weight
    window. It is 0 for other causes.
    """
    if cause in (Fault.HOST_WINDOW, Fault.FETCH_WINDOW):
        return place.skipped[0]
    return place.skipped[1] // config.tile_bytes if cause == Fault.WEIGHT_WINDOW else 0


def moved_to(config: Config, image: Image, place: Place) -> Image:
    """Return an image with operands `host` and `tile` that skip the unused space of `place`."""
    words: list[bytes] = []
    for start in range(0, len(image.program), INSTRUCTION_BYTES):
        entry, operands = decode(image.program[start : start + INSTRUCTION_BYTES])
        if "host" in operands:
            operands["host"] = (operands["host"] + place.skipped[0]) % (1 << 32)
        if "tile" in operands:
            tiles = place.skipped[1] // config.tile_bytes
            operands["tile"] = (operands["tile"] + tiles) % (1 << entry.field("tile").width)
        words.append(encode(entry.opcode, **operands))
    return make_image(
        words, host=image.host, weights=image.weights, program_offset=image.program_offset
    )


def elsewhere(config: Config, image: Image, seed: str, size: int) -> Image:
    """Return the image of a program moved to random addresses in the memories on the chip.

    The program uses the first `size` lines, rows and entries, and has no index registers.
    """
    rng = random.Random(seed)
    decoded = [
        decode(image.program[start : start + INSTRUCTION_BYTES])
        for start in range(0, len(image.program), INSTRUCTION_BYTES)
    ]
    named: dict[str, set[int]] = defaultdict(set)
    for _, operands in decoded:
        for name in operands.keys() & _MEMORIES.keys():
            named[_MEMORIES[name]].add(operands[name])
    by = {
        memory: rng.randint(0, max(0, getattr(config, memory) - size)) - min(addresses)
        for memory, addresses in named.items()
    }
    words: list[bytes] = []
    for entry, operands in decoded:
        for name in operands.keys() & _MEMORIES.keys():
            operands[name] += by[_MEMORIES[name]]
        words.append(encode(entry.opcode, **operands))
    return make_image(
        words, host=image.host, weights=image.weights, program_offset=image.program_offset
    )
