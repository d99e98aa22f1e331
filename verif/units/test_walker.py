# SPDX-License-Identifier: Apache-2.0
"""The walker against nested loops of Python: places, first and last iterations, no lost cycle."""

from itertools import product
from math import prod

import cocotb
import pytest

from systola.arch.isa import BY_OPCODE, Opcode
from systola.hdl.commands import MATRIX_LEVELS, VECTOR_LEVELS
from systola.hdl.parts.walker import Level, Walk, Walker
from systola.verif.units.unit import Bench, chosen_variant, long_variants, rng, run_unit
from systola.verif.units.walks import walk_of

LEVELS = {
    "matrix": MATRIX_LEVELS,
    "vector": VECTOR_LEVELS,
    "one": (Level(name="only", count_bits=4, moves=("line", "y", "x")),),
}
LINE_SPACE = 1 << 21
LOWEST, HIGHEST = -(1 << 20), (1 << 20) - 1
LONGEST = 300


def unit(variant=None):
    return Walker(walk=Walk(LEVELS[variant or chosen_variant()]))


def wrapped(position):
    """Line modulo its range, row and column as signed numbers of theirs."""
    line, y, x = position
    return line % LINE_SPACE, *((value - LOWEST) % (1 << 21) + LOWEST for value in (y, x))


def places(levels, walk):
    """For each step of a walk: (line, y, x), and (first, last) of each level, innermost first."""
    counts = [walk["count"][level.name] for level in reversed(levels)]
    for outermost_first in product(*map(range, counts)):
        at = dict(zip((level.name for level in reversed(levels)), outermost_first, strict=True))
        position = tuple(
            walk["start"][axis]
            + sum(walk["step"][n][axis] * at[n] for n in walk["step"] if axis in walk["step"][n])
            for axis in ("line", "y", "x")
        )
        flags = [(at[n] == 0, at[n] == walk["count"][n] - 1) for n in (le.name for le in levels)]
        yield wrapped(position), flags


def some(random, levels):
    """A random walk of at most LONGEST steps, often with numbers at the ends of their ranges."""

    def number(low, high):
        near = random.randint(max(low, -5), min(high, 5))
        return random.choice((near, near, random.randint(low, high), low, high))

    counts = {}
    for level in random.sample(levels, len(levels)):
        room = LONGEST // prod(counts.values())
        longest = min(room, (1 << level.count_bits) - 1)
        counts[level.name] = random.randint(1, random.choice((1, min(longest, 4), longest)))
    ranges = {"line": (0, LINE_SPACE - 1), "y": (LOWEST, HIGHEST), "x": (LOWEST, HIGHEST)}
    return walk_of(
        start={axis: number(*ends) for axis, ends in ranges.items()},
        count=counts,
        step={
            level.name: {axis: number(*ranges[axis]) for axis in level.moves}
            for level in levels
            if level.moves
        },
    )


def check(bench, levels, place, ends):
    """The outputs in one cycle of a walk."""
    position, flags = place
    seen = bench.get("position")
    assert (seen.line, seen.y, seen.x) == position
    first, last = bench.gets("first", "last")
    assert [(first[level.name], last[level.name]) for level in levels] == flags
    assert bench.get("ends") == ends


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_walks(dut, rate):
    """Walks one behind the other, with one cycle between; `walk` is noise but where it is taken."""
    levels = LEVELS[chosen_variant()]
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("walker", chosen_variant(), rate)
    for _ in range(50):
        while random.random() >= rate:
            await bench.cycle(walk__payload=some(random, levels), walk__valid=0, advance=0)
            assert not bench.get("present")
        walk = some(random, levels)
        steps = list(places(levels, walk))
        await bench.cycle(walk__payload=walk, walk__valid=1, advance=0)
        assert bench.get("walk__ready") and not bench.get("present")
        for index, place in enumerate(steps):
            ends = index == len(steps) - 1
            advance = False
            while not advance:
                advance = random.random() < rate
                await bench.cycle(
                    walk__payload=some(random, levels), walk__valid=1, advance=advance
                )
                assert bench.get("present") and not bench.get("walk__ready")
                check(bench, levels, place, ends)


@cocotb.test
async def long_loops(dut):
    """Each level by itself goes through thousands of iterations where its count can hold them."""
    levels = LEVELS[chosen_variant()]
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
            assert [seen.line, seen.y, seen.x] == expected
            assert bench.get("ends") == (index == count - 1)


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
"""The operands that the levels count, as the comments of hdl/commands.py say."""


@pytest.mark.parametrize("variant", COUNTED)
def test_counts_hold_every_operand(variant):
    bits = {level.name: level.count_bits for level in LEVELS[variant]}
    for opcode, operands in COUNTED[variant].items():
        for level, operand in operands.items():
            assert bits[level] >= BY_OPCODE[opcode].field(operand).width, (opcode, operand)


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*LEVELS))
def test_walker(simulator, variant):
    run_unit("test_walker", simulator, unit(variant), variant=variant)
