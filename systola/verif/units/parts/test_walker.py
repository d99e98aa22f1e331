# SPDX-License-Identifier: Apache-2.0
"""The test of the walker against nested loops of Python: places, first and last iterations.

A walk is a nest of loops, its levels. Each step of a walk has a place: a buffer line, and a row y
and a column x of a feature map. The test also checks that no cycle is lost between steps.
"""

from itertools import product
from math import prod

import cocotb
import pytest

from systola.arch.config import PRESETS
from systola.arch.isa import BY_OPCODE, Opcode
from systola.hdl.commands import matrix_walk, vector_walk
from systola.hdl.parts.walker import Level, Position, Walk, Walker
from systola.verif.units.parts.walks import walk_of
from systola.verif.units.unit import Bench, chosen_variant, long_variants, rng, run_unit

WALKS = {
    "matrix": matrix_walk(PRESETS["base"]),
    "vector": vector_walk(PRESETS["base"]),
    "one": Walk(
        (Level(name="only", count_bits=4, moves={"line": 6, "y": 7, "x": 8}),),
        Position(line_bits=6, y_bits=9, x_bits=10),
    ),
}
LONGEST = 300


def unit(variant=None):
    return Walker(walk=WALKS[variant or chosen_variant()])


def line_space(layout):
    """Return the number of lines after which the walker's line numbers wrap around."""
    return 1 << layout.position["line"].width


def beyond(layout, axis):
    """Return the first row or column that the walker need not distinguish from larger ones."""
    return 1 << layout.position[axis].width - 2


def seen_at(layout, line, y, x):
    """Return the place (line, y, x) as a walker may show it.

    The number of the line wraps around. Rows beyond every map are all the same, as are columns.
    """
    return (
        line % line_space(layout),
        min(y, beyond(layout, "y")),
        min(x, beyond(layout, "x")),
    )


def places(layout, walk):
    """Yield the place (line, y, x) of each step of a walk, and a pair of flags for each level.

    The flags show whether the level is in its first and in its last iteration. The list of pairs
    begins with the innermost level.
    """
    levels = layout.levels
    counts = [walk["count"][level.name] for level in reversed(levels)]
    for outermost_first in product(*map(range, counts)):
        at = dict(zip((level.name for level in reversed(levels)), outermost_first, strict=True))
        position = tuple(
            walk["start"][axis]
            + sum(walk["step"][n][axis] * at[n] for n in walk["step"] if axis in walk["step"][n])
            for axis in ("line", "y", "x")
        )
        flags = [(at[n] == 0, at[n] == walk["count"][n] - 1) for n in (le.name for le in levels)]
        yield seen_at(layout, *position), flags


def some(random, layout):
    """Return a random walk of at most LONGEST steps, often with numbers at the ends of their
    ranges.
    """

    def number(low, high):
        near = random.randint(max(low, -5), min(high, 5))
        return random.choice((near, near, random.randint(low, high), low, high))

    levels, counts = layout.levels, {}
    for level in random.sample(levels, len(levels)):
        room = LONGEST // prod(counts.values())
        longest = min(room, (1 << level.count_bits) - 1)
        counts[level.name] = random.randint(1, random.choice((1, min(longest, 4), longest)))
    ranges = {
        "line": (0, line_space(layout) - 1),
        **{axis: (-beyond(layout, axis), beyond(layout, axis) - 1) for axis in "yx"},
    }
    return walk_of(
        start={axis: number(*ends) for axis, ends in ranges.items()},
        count=counts,
        step={
            level.name: {axis: number(0, (1 << bits) - 1) for axis, bits in level.moves.items()}
            for level in levels
            if level.moves
        },
    )


def check(bench, layout, place, ends):
    """Check all outputs of the walker in one cycle of a walk."""
    position, flags = place
    seen = bench.get("position")
    assert seen_at(layout, seen.line, seen.y, seen.x) == position
    first, last = bench.gets("first", "last")
    assert [(first[level.name], last[level.name]) for level in layout.levels] == flags
    bench.expect("ends", ends)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_walks(dut, rate):
    """Check the walker on walks one after the other; port `walk` is noise while not valid."""
    layout = WALKS[chosen_variant()]
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("walker", chosen_variant(), rate)
    for _ in range(50):
        while random.random() >= rate:
            await bench.cycle(walk__payload=some(random, layout), walk__valid=0, advance=0)
            assert not bench.get("present")
        walk = some(random, layout)
        steps = list(places(layout, walk))
        await bench.cycle(walk__payload=walk, walk__valid=1, advance=0)
        assert not bench.get("walk__ready") and not bench.get("present")
        for index, place in enumerate(steps):
            ends = index == len(steps) - 1
            advance = False
            while not advance:
                advance = random.random() < rate
                await bench.cycle(advance=advance)
                assert bench.get("present")
                bench.expect("walk__ready", advance and ends)
                check(bench, layout, place, ends)


@cocotb.test
async def long_loops(dut):
    """Check 4,500 iterations of each level alone, or as many as the level's count can hold."""
    layout = WALKS[chosen_variant()]
    levels = layout.levels
    bench = Bench(dut, unit())
    await bench.start()
    for level in levels:
        count = min((1 << level.count_bits) - 1, 4500)
        walk = walk_of(
            start={"line": 7, "y": -2, "x": -3},
            count={other.name: count if other is level else 1 for other in levels},
            step={other.name: dict.fromkeys(other.moves, 11) for other in levels if other.moves},
        )
        moves = level.moves
        await bench.cycle(walk__payload=walk, walk__valid=1, advance=0)
        bench.set(advance=1)
        for index in range(count):
            await bench.cycle()
            seen = bench.get("position")
            expected = [
                begin + 11 * index * (axis in moves) for axis, begin in walk["start"].items()
            ]
            assert seen_at(layout, seen.line, seen.y, seen.x) == seen_at(layout, *expected)
            bench.expect("ends", index == count - 1)


COUNTED = {
    "matrix": {
        Opcode.MATRIX_MULTIPLY: {"oy": "rows", "kx": "k_tiles", "n": "n_tiles"},
        Opcode.CONVOLVE: {"block": "k_tiles", "n": "n_tiles"},
        Opcode.SET_CONFIG_WINDOW: {
            "ox": "out_width",
            "oy": "out_height",
            "kx": "kernel_width",
            "ky": "kernel_height",
        },
    },
    "vector": {
        Opcode.SET_CONFIG_WINDOW: {
            "ox": "out_width",
            "oy": "out_height",
            "kx": "kernel_width",
            "ky": "kernel_height",
        },
        Opcode.DEPTHWISE: {"block": "blocks"},
        Opcode.VECTOR: {"ox": "rows"},
    },
}
"""For each walk and instruction, the operand that is the count of a level, by name of the level.

The comments of hdl/commands.py name the operands.
"""


@pytest.mark.parametrize("variant", COUNTED)
def test_counts_hold_every_operand(variant):
    for config in PRESETS.values():
        check_counts(variant, config)


def check_counts(variant, config):
    """Check that a walk's counts have enough bits for the largest operands of legal instructions.

    The regions of a legal instruction fit in the memories, which limits its operands.
    """
    memory = config.accumulator_rows if variant == "matrix" else config.buffer_lines
    layout = matrix_walk(config) if variant == "matrix" else vector_walk(config)
    bits = {level.name: level.count_bits for level in layout.levels}
    for opcode, operands in COUNTED[variant].items():
        for level, operand in operands.items():
            _, most = BY_OPCODE[opcode].field(operand).range
            if operand == "k_tiles" and opcode == Opcode.MATRIX_MULTIPLY:
                most = min(most, config.buffer_lines)
            elif operand not in ("k_tiles", "kernel_width", "kernel_height"):
                most = min(most, memory)  # the memory that takes the results limits the count
            assert most < 1 << bits[level], (opcode, operand)


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*WALKS))
def test_walker(simulator, variant):
    run_unit("test_walker", simulator, unit(variant), variant=variant)
