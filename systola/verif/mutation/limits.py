# SPDX-License-Identifier: Apache-2.0
"""Trials (runs for mutants) in which each bit of sizes, addresses and counts matters."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from itertools import product

import numpy as np
from amaranth.utils import exact_log2

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTION_BYTES,
    OPCODE_BITS,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Function,
    Opcode,
    Operation,
    encode,
)
from systola.sim.library import Simulator
from systola.verif.kit.count_programs import count_program
from systola.verif.kit.edge_programs import (
    height_bits,
    lower_edge_program,
    right_edge_program,
    width_bits,
)
from systola.verif.kit.images import make_image
from systola.verif.kit.large_programs import longest_program
from systola.verif.kit.program_faults import lone_faults, reserved_program
from systola.verif.kit.program_limits import limit_program
from systola.verif.kit.programs import random_program
from systola.verif.kit.single_bit_programs import PRODUCTS, packing_program, product_program
from systola.verif.kit.single_instructions import PIXEL
from systola.verif.mutation.places import TILE_BITS, Place, anywhere
from systola.verif.mutation.trial import MEMORIES, Facts, Trial, program_trial

LIMITS = 40
"""Number of programs for each kind of fault at a limit. Each program is one instruction."""
PRODUCTS_EACH = 60
"""Number of programs for each fault of a region with a product as its length.

The product makes the region too large by a single bit.
"""
PACKINGS = 40
"""Number of programs with packed channels in which one operand is too large by a single bit."""
STOCK_BITS = 28
"""Largest width of a weight window's addresses, in bits, in trials of pending weight tiles."""
FAR_ENDS = 20
"""Number of programs that go beyond the end of each of the largest host windows."""
WEIGHT_ENDS = 48
"""Number of programs with a weight window that is just large enough, or lacks a tile."""
LONGEST = (0x1555, 0x2AAA)
"""Numbers of rows in the two longest programs; each of the low 14 bits is 1 in one number."""
COUNT_BITS = 12
"""Largest width in bits of the counts in _count_trials: powers of two, plus 1 or 2."""
STRIDE_BITS = BY_OPCODE[Opcode.READ_HOST_MEMORY].field("stride").width
STRAIGHT = (0x1_5555, 0xAAAA)
"""Numbers of instructions before a loop; each bit up to bit 16 is 1 in one of the numbers."""


def size_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of programs that need the upper bits of addresses and counts."""
    yield from _far_trials(config, seed)
    yield from _weight_ends(config, seed)
    yield from _stride_trials(config, seed)
    yield from _stock_trials(config)
    yield from _long_loops()
    yield from _count_trials(config, seed)
    yield from edge_trials(config, seed)
    for number, rows in zip((0, len(MEMORIES) - 1), LONGEST, strict=True):
        image = longest_program(config, f"{seed}", rows)
        yield program_trial(config, f"{rows} rows", image, number)
    for count in STRAIGHT:
        image = _straight_program(count)
        yield program_trial(config, f"straight on {count}", image, 0, ends={Fault.FETCH_WINDOW})


def single_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of programs that go just beyond a limit, or have an illegal instruction."""
    often = 3 * [Fault.BUFFER_RANGE]  # more programs, as BUFFER_RANGE has many causes
    programs = [*lone_faults(config), *((fault, limit_program) for fault in often)]
    for number in range(LIMITS):
        for kind, (fault, program) in enumerate(programs):
            image = program(config, f"{seed} {number} {kind}", fault)
            yield program_trial(config, f"{fault.name.lower()} {number}", image, 0, ends={fault})
    for number in range(PRODUCTS_EACH):
        # BUFFER_RANGE comes twice as often, since this fault has many causes.
        for kind, fault in enumerate((*2 * [Fault.BUFFER_RANGE], *PRODUCTS)):
            image = product_program(config, f"{seed} {number} {kind}", fault)
            place = anywhere(config, image, f"{seed} {number}")
            yield program_trial(
                config,
                f"product {fault.name.lower()} {number}",
                image,
                0,
                ends={fault},
                place=place,
            )
    for number in range(PACKINGS):
        image = packing_program(config, f"{seed} {number}")
        yield program_trial(config, f"packing {number}", image, 0, ends={Fault.WINDOW})
    yield from _function_trials(config)
    yield from _overlap_trials(config)
    yield from _range_trials(config)
    yield from _tail_trials(config)
    for bit in range(OPCODE_BITS, 8 * INSTRUCTION_BYTES):
        image = reserved_program(config, f"{seed}", bit)
        yield program_trial(config, f"reserved bit {bit}", image, 0, ends={Fault.ILLEGAL_FIELD})


def _lone_trial(config: Config, name: str, word: bytes, ends: Container[Fault]) -> Trial:
    """Return a trial of one instruction, without any data."""
    image = make_image([word, encode(Opcode.HALT)], host=np.zeros(HOST_PAGE_BYTES, np.uint8))
    return program_trial(config, name, image, 0, ends=ends)


def _function_trials(config: Config) -> Iterator[Trial]:
    """Yield trials of Activate and Vector with every function, legal or not.

    Each function comes with several tables and with every combination of two flags.
    """
    one = {"buffer": 0, "rows": 1, "parameter": 0}
    ends = {Fault.NONE, Fault.ILLEGAL_FIELD, Fault.UNAVAILABLE, Fault.TABLE_RANGE}
    others = {
        Opcode.ACTIVATE: {"accumulator": 0, "n_tiles": 1},
        Opcode.VECTOR: {"operation": Operation.COPY, "destination": 2},
    }
    for opcode, function, flags, table in product(
        others, Function, range(4), (0, 1, 2, 4, 7, 8, 15)
    ):
        how = {"function": function, "wide": flags & 1, "accumulate": flags >> 1, "table": table}
        name = f"{opcode.name.lower()} {function.name.lower()} {flags} {table}"
        yield _lone_trial(config, name, encode(opcode, **one, **others[opcode], **how), ends)


def _overlap_trials(config: Config) -> Iterator[Trial]:
    """Yield trials of Vectors with an operand that overlaps the results in a single line.

    Each bit of the number of rows has a pair of Vectors.
    """
    rows = BY_OPCODE[Opcode.VECTOR].field("rows").width
    for bit in range(min(rows, exact_log2(config.buffer_lines) - 2)):
        for near, far in (("buffer", "operand"), ("operand", "buffer")):
            lines = {near: 1 << bit, far: 3 << bit, "destination": 0, "rows": (1 << bit) + 1}
            word = encode(Opcode.VECTOR, operation=Operation.ADD, parameter=0, **lines)
            yield _lone_trial(config, f"{near} over results by 2^{bit}", word, {Fault.OVERLAP})


def _range_trials(config: Config) -> Iterator[Trial]:
    """Yield trials with regions that begin at the last line or row and end a power of two later.

    An earlier check may also find that the number of rows is too large.
    """
    ends = {Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE}
    last_line, last_row = config.buffer_lines - 1, config.accumulator_rows - 1
    lines = ("buffer", "operand", "destination")
    vector = {**dict.fromkeys(lines, 0), "operation": Operation.ADD, "parameter": 0}
    activate = {"accumulator": 0, "buffer": 0, "n_tiles": 1, "parameter": 0}
    multiply = {"accumulator": 0, "buffer": 0, "k_tiles": 1, "n_tiles": 1}
    regions = [
        *((Opcode.VECTOR, {**vector, name: last_line}) for name in lines),
        (Opcode.ACTIVATE, {**activate, "buffer": last_line}),
        (Opcode.ACTIVATE, {**activate, "accumulator": last_row}),
        (Opcode.MATRIX_MULTIPLY, {**multiply, "buffer": last_line}),
        (Opcode.MATRIX_MULTIPLY, {**multiply, "accumulator": last_row}),
    ]
    for number, (opcode, operands) in enumerate(regions):
        for bit in range(BY_OPCODE[opcode].field("rows").width):
            word = encode(opcode, **operands, rows=(1 << bit) + 1)
            yield _lone_trial(config, f"end {number} behind by 2^{bit}", word, ends)


def _tail_trials(config: Config) -> Iterator[Trial]:
    """Yield trials of copies with tails that are too long, by up to the length of a line."""
    copies = {
        Opcode.READ_HOST_MEMORY: config.rows,
        Opcode.WRITE_HOST_MEMORY: config.cols,
        Opcode.WRITE_HOST_MEMORY_ALTERNATE: config.cols,
    }
    for opcode, longest in copies.items():
        for tail in range(longest + 1, 2 * longest):
            word = encode(opcode, host=0, buffer=0, rows=1, stride=0, blocks=1, tail=tail)
            name = f"{opcode.name.lower()} with a tail of {tail}"
            yield _lone_trial(config, name, word, {Fault.ILLEGAL_FIELD})


def _far_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials with host and weight windows of the largest size, at different addresses.

    In some trials the data lie at the ends of the windows. In other trials a copy goes beyond the
    end of the host window.
    """
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
            name = f"far end {number} {end}"
            yield program_trial(config, name, image, 0, ends={Fault.HOST_WINDOW}, place=place)


def _long_loops() -> Iterator[Trial]:
    """Yield trials of loops in which each bit of the count decides that the loop goes on."""
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    for bit in range(7, 32):
        words = [
            encode(Opcode.LOOP, count=1 << bit | 4),
            encode(Opcode.END_LOOP),
            encode(Opcode.HALT),
        ]
        image = make_image(words, host=host)

        def run(machine: Simulator, limit: int, image: Image = image) -> Facts:
            result = machine.run(image, limit=limit, abandon_after=300)
            assert result.status == 0, "a loop ended early"
            return (300,)

        yield Trial(f"loop of 2^{bit}", MEMORIES[0], run)


def _weight_ends(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials with weight windows that are just large enough, or lack a tile."""
    rng = random.Random(f"{seed} weight ends")
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    weights = np.zeros(config.tile_bytes, np.uint8)
    for number in range(WEIGHT_ENDS):
        most = 1 << number % TILE_BITS
        before = rng.choice((most - 1, rng.randrange(most)))
        count = rng.choice((2, most + 1)) if number % 2 else 1
        words = [encode(Opcode.READ_WEIGHTS, tile=0, count=count), encode(Opcode.HALT)]
        image = make_image(words, host=host, weights=weights)
        place = Place((0, 0), (0, min(before, (1 << TILE_BITS) - 1) * config.tile_bytes))
        ends = {Fault.WEIGHT_WINDOW if count > 1 else Fault.NONE}
        yield program_trial(config, f"weight end {number}", image, 0, ends=ends, place=place)


def _stride_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of copies of two rows, for every bit of the distance between the rows."""
    rng = random.Random(f"{seed} strides")
    lines = 2 * STRIDE_BITS
    host = np.zeros(1 << STRIDE_BITS + 1, np.uint8)
    data = np.random.default_rng(seed)
    words: list[bytes] = []
    for opcode in (Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY):
        reads = opcode == Opcode.READ_HOST_MEMORY
        for bit in range(12, STRIDE_BITS):
            stride = (1 << bit) + rng.choice((0, rng.randrange(1 << bit) & -HOST_PAGE_BYTES))
            start = rng.randrange(HOST_PAGE_BYTES, 1 << STRIDE_BITS, 64)
            for row in range(2 if reads else 0):
                at = start + row * stride
                host[at : at + 64] = data.integers(0, 256, 64)
            words.append(
                encode(
                    opcode,
                    **{"host": start, "buffer": 2 * bit, "rows": 2, "stride": stride},
                    **{"blocks": 1, "tail": config.rows if reads else config.cols},
                )
            )
    words.append(encode(Opcode.HALT))
    assert len(b"".join(words)) <= HOST_PAGE_BYTES and lines <= config.buffer_lines
    yield program_trial(config, "strides", make_image(words, host=host), 0)


def _count_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials with counts that exceed one, or two, by a power of two."""
    for bit in range(1, COUNT_BITS):
        for more in (1, 2):
            count = (1 << bit) + more
            image = count_program(config, seed, count)
            yield program_trial(config, f"count of {count}", image, 0)


def edge_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of windows at the lower and at the right edge of large maps.

    Each bit of the map's height, or of its width in bytes, is 0 in one trial and 1 in another.
    """
    for edge, write, bits in (
        ("lower", lower_edge_program, height_bits(config)),
        ("right", right_edge_program, width_bits(config) - 1),
    ):
        for bit, value in product(range(bits), (0, 1)):
            image = write(config, f"{seed} {bit} {value}", bit, value)
            yield program_trial(config, f"{edge} edge, bit {bit} is {value}", image, 0)


def _straight_program(count: int) -> Image:
    """Return a program that needs the upper bits of instruction numbers and of the tag count.

    The program has a loop after `count` instructions. It has no Halt, so that the machine reports
    the number of the last instruction.
    """
    body = [encode(Opcode.NOP)] * 127
    words = [
        *[encode(Opcode.DEBUG_TAG, tag=2)] * count,
        encode(Opcode.LOOP, count=3),
        *body,
        encode(Opcode.DEBUG_TAG, tag=1),
        encode(Opcode.END_LOOP),
    ]
    words += [encode(Opcode.NOP)] * (-len(words) % (HOST_PAGE_BYTES // INSTRUCTION_BYTES))
    return make_image(words, host=np.zeros(len(words) * INSTRUCTION_BYTES, np.uint8))


def _stock_trials(config: Config) -> Iterator[Trial]:
    """Yield trials in which every bit of the number of pending weight tiles matters.

    In one kind of trial, a Convolve takes more tiles than all Read_Weights together have fetched.
    In the other kind, too many small Read_Weights follow a large Read_Weights. The machine finds
    this fault only if it still counts the large Read_Weights as pending.
    """
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    bits = min(TILE_BITS, STOCK_BITS - exact_log2(config.tile_bytes))
    weights = np.zeros(config.tile_bytes << bits, np.uint8)  # programs read few of the tiles
    taken = [
        encode(Opcode.SET_CONFIG_WINDOW, **{**PIXEL, "kernel_height": 255, "kernel_width": 255}),
        encode(
            Opcode.CONVOLVE,
            # With a larger n_tiles, ACCUMULATOR_RANGE would be raised first.
            **{"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 4095},
            n_tiles=min(4095, config.accumulator_rows),
        ),
    ]
    for bit in range(bits + exact_log2(WEIGHT_READS_IN_FLIGHT)):
        once = 1 << max(0, bit - exact_log2(WEIGHT_READS_IN_FLIGHT))
        reads = [encode(Opcode.READ_WEIGHTS, tile=0, count=once)] * ((1 << bit) // once)
        image = make_image([*reads, *taken, encode(Opcode.HALT)], host=host, weights=weights)
        yield program_trial(config, f"stock of 2^{bit}", image, 0, ends={Fault.WEIGHT_UNDERFLOW})
        if bit < bits:
            reads = [encode(Opcode.READ_WEIGHTS, tile=0, count=1 << bit)]
            reads += [encode(Opcode.READ_WEIGHTS, tile=0, count=1)] * WEIGHT_READS_IN_FLIGHT
            image = make_image([*reads, encode(Opcode.HALT)], host=host, weights=weights)
            name = f"too many behind 2^{bit}"
            yield program_trial(config, name, image, 0, ends={Fault.WEIGHT_OVERFLOW})
