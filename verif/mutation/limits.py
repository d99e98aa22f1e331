# SPDX-License-Identifier: Apache-2.0
"""Trials of sizes, places and counts: each bit of them has to matter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import INSTRUCTION_BYTES, INSTRUCTIONS, Fault, Opcode, encode
from systola.runtime.backend import Image
from systola.sim.library import Simulator
from systola.verif.kit.images import make_image
from systola.verif.kit.large_programs import longest_program
from systola.verif.kit.program_faults import lone_faults, reserved_program
from systola.verif.kit.program_limits import limit_program
from systola.verif.kit.programs import random_program
from systola.verif.mutation.trial import MEMORIES, Facts, Place, Trial, program_trial

LIMITS = 40
"""Programs for each fault at a limit; each is one instruction."""
STOCK = 20
"""The logarithm of the most tiles that are asked for and not used."""
FAR_ENDS = 20
"""Programs that go beyond the end of each of the largest windows."""
LONGEST = (0x1555, 0x2AAA)
"""Rows of instructions, with all bits of such numbers."""


def size_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Programs that need the upper bits of addresses and counts."""
    yield from _far_trials(config, seed)
    yield from _stock_trials(config)
    yield from _long_loops()
    for number, rows in zip((0, len(MEMORIES) - 1), LONGEST, strict=True):
        image = longest_program(config, f"{seed}", rows)
        yield program_trial(config, f"{rows} rows", image, number)


def single_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Large sizes that end just behind what there is, and what is illegal in itself."""
    often = 3 * [Fault.BUFFER_RANGE]  # of which there are so many kinds
    programs = [*lone_faults(config), *((fault, limit_program) for fault in often)]
    for number in range(LIMITS):
        for kind, (fault, program) in enumerate(programs):
            image = program(config, f"{seed} {number} {kind}", fault)
            yield program_trial(config, f"{fault.name.lower()} {number}", image, 0)
    for bit in range(min(entry.width for entry in INSTRUCTIONS), 8 * INSTRUCTION_BYTES):
        image = reserved_program(config, f"{seed}", bit)
        yield program_trial(config, f"reserved bit {bit}", image, 0)


def _far_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Windows as large as they may be, wherever they may be, with all that happens at their end."""
    high = 1 << config.address_bits
    for number, pattern in enumerate((0, 0xFF_5A5A_5A5A, 0xFF_A5A5_A5A5, 0xFF_FFFF_FFFF)):
        image = random_program(config, f"{seed} far {number}")
        room = (1 << 32) - image.host.size
        tiles = (1 << 24) - image.weights.size // config.tile_bytes
        skipped = (
            (room if number in (0, 3) else pattern % room) & -HOST_PAGE_BYTES,
            (tiles if number in (0, 3) else pattern % tiles) * config.tile_bytes,
        )
        bases = (
            min(pattern, high - (1 << 32)) & -HOST_PAGE_BYTES,
            min(pattern ^ 0x7F_0000_0000, high - (1 << 32)) & -HOST_PAGE_BYTES,
        )
        yield program_trial(config, f"far {number}", image, number, place=Place(bases, skipped))
        for end in range(FAR_ENDS):
            image = limit_program(config, f"{seed} far {number} {end}", Fault.HOST_WINDOW)
            skipped = ((1 << 32) - image.host.size) // (1 << number) & -HOST_PAGE_BYTES, 0
            place = Place((0, 0), skipped)
            yield program_trial(config, f"far end {number} {end}", image, 0, place=place)


def _long_loops() -> Iterator[Trial]:
    """Every bit of a loop's count keeps it going."""
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    for bit in range(7, 32):
        words = [
            encode(Opcode.LOOP, count=1 << bit),
            encode(Opcode.END_LOOP),
            encode(Opcode.HALT),
        ]
        image = make_image(words, host=host)

        def run(machine: Simulator, limit: int, image: Image = image) -> Facts:
            result = machine.run(image, limit=limit, abandon_after=300)
            assert result.status == 0, "a loop ended early"
            return (300,)

        yield Trial(f"loop of 2^{bit}", MEMORIES[0], run)


def _stock_trials(config: Config) -> Iterator[Trial]:
    """Every bit of the number of weight tiles that are still to come counts."""
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    weights = np.zeros(config.tile_bytes << STOCK, np.uint8)
    for bit in range(STOCK):
        words = [
            encode(Opcode.READ_WEIGHTS, tile=0, count=1 << bit),
            encode(Opcode.READ_WEIGHTS, tile=0, count=(1 << STOCK) - (1 << bit)),
            encode(
                Opcode.MATRIX_MULTIPLY,
                **{"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 2},
            ),
            encode(Opcode.HALT),
        ]
        for number, some in enumerate((words, [words[0], *words[2:]])):
            image = make_image(some, host=host, weights=weights)
            yield program_trial(config, f"stock of 2^{bit} {number}", image, 0)
