# SPDX-License-Identifier: Apache-2.0
"""The plan by which a chain of layers is cut to fit the memories of a machine.

A row is one sample. Rows are cut into chunks, and one chunk after the other goes through all
layers. In a layer, the tiles along N are cut into groups, with one MatrixMultiply and one Activate
for each group. If a chunk of the first layer's input is too large for the buffer, the input is cut
along K into segments. Each group then reads all segments from host memory, with one MatrixMultiply
for each segment, and their products are added up in the accumulators.
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
"""Limits of one MatrixMultiply: MAX_ROWS rows, and MAX_TILES tiles along K or along N."""

WEIGHT_SHARE = Fraction(6, 10)
HOST_SHARE = Fraction(8, 10)
"""Fractions of all cycles in which the weight port and the host port are assumed to move data. In
the other cycles the memories refresh or serve other users.
"""
STALLED_RATE = Fraction(9, 10)
"""Assumed number of bus beats that the host port delivers per cycle during a long read."""
ISSUE_CYCLES = 4
"""Assumed cycles for each instruction, so that plans with fewer instructions are preferred."""


@dataclass(frozen=True)
class LayerShape:
    """The size of a layer in weight tiles, along K (inputs) and along N (outputs)."""

    k_tiles: int
    n_tiles: int


@dataclass(frozen=True)
class Area:
    """A range of lines in the unified buffer: the first line and the number of lines."""

    base: int
    lines: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan for a chain of layers: the sizes of chunks, groups and segments, and the buffer areas
    for inputs and results.
    """

    chunks: tuple[int, ...]
    """Number of rows in each chunk, in order of execution."""
    groups: tuple[int, ...]
    """Number of tiles along N in a group, for each layer; a layer's last group may have fewer."""
    segment: int
    """Number of tiles along K in a segment of the first layer's input; the last segment may have
    fewer. All tiles along K if the input is not cut.
    """
    input: Area
    """Lines for the first layer's input. Reads fill the lines in order, then begin again."""
    hidden: tuple[Area, Area]
    """Lines for the results of all layers but the last: first the area for layers 0, 2, ..., then
    the area for layers 1, 3, ...
    """
    output: Area
    """Lines for the last layer's results. Groups fill the lines in order, then begin again."""
    cycles: Fraction
    """Estimated cycles for all rows and layers, by which plans are compared."""


@lru_cache(maxsize=1024)
def make_plan(config: Config, layers: tuple[LayerShape, ...], rows: int) -> Plan:
    """Return the plan with the fewest estimated cycles for `rows` rows through all `layers`.

    Raises CompileError if not even a single row fits the machine.
    """
    # The chunk sizes to try are all distinct values of ceil(rows / n) for n chunks. A loop over all
    # n would be slow. Each value is at most the square root of `rows`, or belongs to an n
    # that is at most this square root.
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
    """Return the plan for chunks of at most `size` rows, or None if they do not fit the machine."""
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
        # Smaller groups need fewer lines for results. If the whole input of a chunk then fits into
        # the buffer, smaller groups cost fewer cycles than segments, which are read many times.
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
    """Return the number of tiles along N in a group of a layer, for chunks of `size` rows.

    The number gives groups of equal size, as large as accumulators and parameter entries allow. The
    number is 0 if not even one tile fits. A group may take all accumulator rows, since Activate
    frees accumulator rows one by one for the next MatrixMultiply.
    """
    limit = min(MAX_TILES, config.accumulator_rows // size)
    if sum(layer.n_tiles for layer in layers) > config.parameter_entries:
        limit = min(limit, max(1, config.parameter_entries // 2))
    return _balanced(shape.n_tiles, limit) if limit else 0


def _output_lines(last: LayerShape, group: int, size: int, copies: int) -> int:
    return size * min(2 * group, copies * last.n_tiles)


def _even(total: int, size: int) -> tuple[int, ...]:
    """Return sizes that add up to `total`: as few as possible up to `size`, larger sizes first."""
    count = tiles(total, size)
    part, rest = divmod(total, count)
    return (part + 1,) * rest + (part,) * (count - rest)


def _balanced(total: int, limit: int) -> int:
    """Return the part size that cuts `total` evenly into the fewest parts of at most `limit`."""
    return tiles(total, tiles(total, limit))


def _estimate(
    config: Config,
    layers: Sequence[LayerShape],
    chunks: Sequence[int],
    groups: Sequence[int],
    segment: int,
) -> Fraction:
    """Return an estimate of the cycles for all chunks and layers.

    The estimate is the time of the busiest of four: array, weight port, host reads and host writes.
    Cycles for the first read of the input and for instructions are added.
    """
    first, last = layers[0], layers[-1]
    rows = sum(chunks)
    tile_count = sum(shape.k_tiles * shape.n_tiles for shape in layers)
    # The next tile is shifted in row by row meanwhile. So the array needs at least config.rows
    # cycles for each tile, even if a chunk has fewer vectors.
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
    # The array begins before the first input has been read completely. It waits if the host port
    # takes more than a cycle for each line.
    exposed = (config.input_pitch // bus / STALLED_RATE - 1) * chunks[0] * segment
    # Reads that are faster than the busiest unit take no extra cycles. A small part of their cycles
    # is added, so that plans with fewer reads are preferred if the speed is equal.
    return busiest + exposed + (weights + reads) / 50 + ISSUE_CYCLES * instructions
