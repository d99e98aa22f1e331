# SPDX-License-Identifier: Apache-2.0
"""The plan by which a chain of layers is cut to fit the memories of a machine.

Rows (samples) are cut into chunks that go through all layers one after another. In a layer, the
tiles along N are cut into groups, with one MatrixMultiply and one Activate each. If the input of
the first layer is too long for the buffer, each group reads the whole input again, in segments
along K. The products of the segments are accumulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, Opcode
from systola.compiler.errors import CompileError
from systola.compiler.layout import entry_bytes, tiles


def _largest(opcode: Opcode, name: str) -> int:
    return next(f.range[1] for f in BY_OPCODE[opcode].fields if f.name == name)


MAX_ROWS = _largest(Opcode.MATRIX_MULTIPLY, "rows")
MAX_TILES = _largest(Opcode.MATRIX_MULTIPLY, "k_tiles")
"""Largest number of rows, and largest number of tiles along K or N, of one MatrixMultiply."""

WEIGHT_SHARE = Fraction(6, 10)
HOST_SHARE = Fraction(8, 10)
"""Shares of the time of the weight port and of the host port that a plan may use. Memory refresh
and other users of the memory take the rest.
"""
STALLED_RATE = Fraction(9, 10)
"""Assumed number of bus beats in a cycle that the host port delivers while it streams."""
ISSUE_CYCLES = 4
"""Rough cost of an instruction in cycles, so that shorter programs are preferred."""


@dataclass(frozen=True)
class LayerShape:
    """The size of a layer in weight tiles, along K (inputs) and along N (outputs)."""

    k_tiles: int
    n_tiles: int


@dataclass(frozen=True)
class Area:
    """A part of the unified buffer, with its first line and its number of lines."""

    base: int
    lines: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan for a chain of layers: the cut of the work into parts, and the areas of the buffer
    that rows and results take.
    """

    chunks: tuple[int, ...]
    """Number of rows of each chunk."""
    groups: tuple[int, ...]
    """Number of tiles along N in one group, for each layer; the last group may be smaller."""
    segment: int
    """Number of tiles along K of the first layer's input in one Read_Host_Memory; the last segment
    may have fewer.
    """
    input: Area
    """Buffer lines for the rows from host memory, used as a ring."""
    hidden: tuple[Area, Area]
    """Buffer lines for the results of all layers but the last: an area for the layers 0, 2, ... and
    an area for the layers 1, 3, ...
    """
    output: Area
    """Buffer lines for the results of the last layer, used as a ring."""
    cycles: Fraction
    """Estimated duration of the work in cycles, by which plans are compared."""


@lru_cache(maxsize=1024)
def make_plan(config: Config, layers: tuple[LayerShape, ...], rows: int) -> Plan:
    """Return the plan with the shortest estimated duration for `rows` rows through `layers`.

    Raises CompileError if not even a single row fits the machine.
    """
    # The sizes are all distinct values of ceil(rows / n) for n chunks. They follow from the numbers
    # up to the square root of `rows`, without a loop over all n.
    roots = range(1, isqrt(rows) + 1)
    sizes = {*roots, *(tiles(rows, count) for count in roots)}
    plans = (_plan(config, layers, rows, size) for size in sizes if size <= MAX_ROWS)
    best = min((plan for plan in plans if plan), key=lambda plan: plan.cycles, default=None)
    if best is None:
        raise CompileError(
            f"a single row does not fit the machine '{config.name}': its layers need more than "
            f"the {config.buffer_lines} lines of the unified buffer"
        )
    return best


def tile_cycles(config: Config) -> Fraction:
    """Return the number of cycles that the weight port takes for one tile."""
    beats = config.tile_bytes // config.weight_bus_bytes
    return beats / Fraction(*config.weight_throttle)


def _plan(config: Config, layers: Sequence[LayerShape], rows: int, size: int) -> Plan | None:
    """Return the plan for chunks of at most `size` rows, or None if such chunks do not fit."""
    chunks = _even(rows, size)
    groups = [_group(config, layers, shape, size) for shape in layers]
    if not all(groups):
        return None

    first, last = layers[0], layers[-1]
    if any(shape.k_tiles > MAX_TILES for shape in layers[1:]):
        return None
    hidden = [shape.n_tiles * size for shape in layers[:-1]]
    areas = [max(hidden[0::2], default=0), max(hidden[1::2], default=0)]
    free = config.buffer_lines - sum(areas)
    if free < 4 * size:
        return None
    copies = 1 if len(chunks) == 1 else 2
    inputs = copies * first.k_tiles * size
    segment = first.k_tiles
    outputs = _output_lines(last, groups[-1], size, copies)
    if inputs + outputs > free or segment > MAX_TILES:
        # A small group needs few output lines. If the whole input then stays in the buffer, small
        # groups cost less than an input in segments.
        group = (free - inputs) // (2 * size)
        if group >= min(4, groups[-1]) and segment <= MAX_TILES:
            groups[-1] = _balanced(last.n_tiles, min(group, groups[-1]))
        else:
            groups[-1] = _balanced(last.n_tiles, min(free // (4 * size), groups[-1]))
            inputs = free - 2 * groups[-1] * size
            segment = _balanced(first.k_tiles, min(inputs // (2 * size), MAX_TILES))
        outputs = min(free - inputs, _output_lines(last, groups[-1], size, 2))

    bases = [0, inputs, inputs + areas[0], inputs + sum(areas)]
    return Plan(
        chunks=chunks,
        groups=tuple(groups),
        segment=segment,
        input=Area(bases[0], inputs),
        hidden=(Area(bases[1], areas[0]), Area(bases[2], areas[1])),
        output=Area(bases[3], outputs),
        cycles=_estimate(config, layers, chunks, groups, segment),
    )


def _group(config: Config, layers: Sequence[LayerShape], shape: LayerShape, size: int) -> int:
    """Return the largest number of tiles along N for a group of a layer with chunks of `size` rows.

    Accumulators and parameter entries limit the group; 0 means that no group fits. A group may take
    all accumulator rows, since Activate frees them row by row for the next MatrixMultiply.
    """
    limit = min(MAX_TILES, config.accumulator_rows // size)
    if sum(layer.n_tiles for layer in layers) > config.parameter_entries:
        limit = min(limit, max(1, config.parameter_entries // 2))
    return _balanced(shape.n_tiles, limit) if limit else 0


def _output_lines(last: LayerShape, group: int, size: int, copies: int) -> int:
    return size * min(2 * group, copies * last.n_tiles)


def _even(total: int, size: int) -> tuple[int, ...]:
    """Return `total` cut into the fewest parts of at most `size`, the larger parts first."""
    count = tiles(total, size)
    part, rest = divmod(total, count)
    return (part + 1,) * rest + (part,) * (count - rest)


def _balanced(total: int, limit: int) -> int:
    """Return the size of equal parts of `total`: as few parts as possible, each at most `limit`."""
    return tiles(total, tiles(total, limit))


def _estimate(
    config: Config,
    layers: Sequence[LayerShape],
    chunks: Sequence[int],
    groups: Sequence[int],
    segment: int,
) -> Fraction:
    """Return a rough number of cycles for the whole work.

    The number is the time of the busiest unit, with additions for the first read of the input and
    for instructions.
    """
    first, last = layers[0], layers[-1]
    rows = sum(chunks)
    tile_count = sum(shape.k_tiles * shape.n_tiles for shape in layers)
    # A chunk with fewer vectors than the array has rows takes a cycle for each row, as the next
    # tile must first be shifted in.
    array = tile_count * sum(max(size, config.rows) for size in chunks)
    weights = len(chunks) * tile_count * tile_cycles(config)
    whole = segment == first.k_tiles
    passes = 1 if whole else tiles(first.n_tiles, groups[0])
    bus = config.host_bus_bytes
    parameters = sum(shape.n_tiles for shape in layers) * entry_bytes(config) // bus
    reads = rows * first.k_tiles * passes * (config.input_pitch // bus) + parameters
    writes = rows * last.n_tiles * (config.output_pitch // bus)
    loads = passes * tiles(first.k_tiles, segment)
    steps = sum(2 * tiles(s.n_tiles, g) for s, g in zip(layers, groups, strict=True))
    instructions = len(chunks) * (loads + steps + tiles(last.n_tiles, groups[-1]) + 1)

    busiest = max(array, weights / WEIGHT_SHARE, reads / HOST_SHARE, writes / HOST_SHARE)
    # While the first input is read, the array waits if the host port takes more than a cycle for
    # each line.
    exposed = (config.input_pitch // bus / STALLED_RATE - 1) * chunks[0] * segment
    # Reads take no extra cycles as long as the ports keep up. A small charge prefers plans with
    # fewer reads.
    return busiest + exposed + (weights + reads) / 50 + ISSUE_CYCLES * instructions
