# SPDX-License-Identifier: Apache-2.0
"""Pooling in the lanes of the activation unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from systola.arch.config import Config
from systola.arch.isa import Opcode, Reduction, Rounding
from systola.compiler.errors import CompileError
from systola.compiler.lower.batch_rows import by_sample, window_by_sample
from systola.compiler.lower.convolution import MAX_DILATION
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import common_entry, joined
from systola.compiler.lower.feature_map import FeatureMap, new_map
from systola.compiler.lower.step import MapStep
from systola.compiler.operations import (
    Pooling,
    Requantisation,
    Window,
    identity,
    scalar_requantisation,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolingStep(MapStep):
    """A step in which the lanes reduce each window of a map to a pixel."""

    reduction: Reduction
    window: Window
    floor: int
    ceiling: int
    output: Requantisation

    @property
    def cycles(self) -> int:
        """Number of cycles of the step: one for each tap of the window, for each pixel and block of
        channels of the result.
        """
        taps = self.window.kernel[0] * self.window.kernel[1]
        return taps * self.target.pixels * self.target.channels.blocks

    def emit(self, emitter: Emitter) -> None:
        source, target = self.source, self.target
        blocks = source.channels.blocks
        whole = source.plane == source.pixels and target.plane == target.pixels
        at_once = blocks if whole else 1
        parameter = emitter.parameters(self.output_entries)
        emitter.window(source, self.window)
        for block in range(0, blocks, at_once):
            emitter.emit(
                Opcode.POOL,
                buffer=emitter.line(source.lines, source.block(block)),
                destination=emitter.line(target.lines, target.block(block)),
                blocks=at_once,
                parameter=parameter,
                reduction=self.reduction,
                rounding=self.output.rounding,
                zero_point=self.output.zero_point,
                floor=self.floor,
                ceiling=self.ceiling,
            )


def pooling_steps(
    config: Config, node: Pooling, source: FeatureMap, target: FeatureMap, samples: int
) -> list[PoolingStep]:
    """Return the steps for a pooling of `samples` samples.

    lower/batch_rows.py describes the order of the samples' pixels in a map. The maximum of a window
    may take two instructions: the first finds the maximum of each row of the window, the second the
    maximum of these rows. Raises CompileError if neither one instruction nor two can do the
    pooling.
    """
    height, width = source.height, source.width // samples
    window, edges = node.window, node.window.counts_differ(source.height, width)
    if node.reduction == Reduction.AVERAGE and edges:
        count = window.kernel[0] * window.kernel[1]
        if count > config.parameter_entries:
            if samples > 1:
                raise CompileError(f"windows of {count} taps reach over the edges of a batch")
            return list(_steps_by_count(config, node, source, target))
    if samples == 1:
        return [_step(config, node, source, target, window, edges)]
    apart = window.dilation[0] * samples
    moves_by_one = window.stride[0] == 1 or window.out[0] == 1
    if moves_by_one and (apart <= MAX_DILATION or window.kernel[0] == 1):
        window = window_by_sample(window, samples)
        if window.kernel[0] == 1:
            window = replace(window, dilation=(1, window.dilation[1]))
        source, target = by_sample(source, samples), by_sample(target, samples)
        return [_step(config, node, source, target, window, edges)]
    if window.out == (1, 1) and not edges:
        window = replace(window, stride=(1, width), out=(1, samples))
        return [_step(config, node, source, target, window, edges)]
    if node.reduction != Reduction.MAX:
        raise CompileError("the windows of its average lie apart in a batch")
    # One instruction cannot reduce these windows for all samples of a batch. So a first instruction
    # reduces each row of a window to a pixel. A second one reduces each column of these pixels, for
    # all samples side by side.
    rows, out = height, window.out
    name = f"rows of {node.operator}"
    between = new_map(name, rows, out[1] * samples, source.channels)
    along_rows = replace(
        window,
        kernel=(1, window.kernel[1]),
        stride=(1, window.stride[1]),
        dilation=(1, window.dilation[1]),
        first=(0, window.first[1]),
        out=(rows * samples, out[1]),
    )
    along_columns = replace(
        window,
        kernel=(window.kernel[0], 1),
        stride=(window.stride[0], 1),
        dilation=(window.dilation[0], 1),
        first=(window.first[0], 0),
        out=(out[0], out[1] * samples),
    )
    first = replace(node, output=identity(), floor=-128, ceiling=127)
    steps: list[PoolingStep] = []
    for number in range(source.channels.blocks):
        one, two, three = (each.one_block(number) for each in (source, between, target))
        rows_of_one, rows_of_two = by_sample(one, samples), by_sample(two, samples)
        steps.append(_step(config, first, rows_of_one, rows_of_two, along_rows, edges))
        steps.append(_step(config, node, two, three, along_columns, edges))
    return steps


def _steps_by_count(
    config: Config, node: Pooling, source: FeatureMap, target: FeatureMap
) -> Iterator[PoolingStep]:
    """Yield the steps of an averaging for a machine with too few parameter entries for one
    instruction.

    The sum of a window is divided by the number of its taps inside the map. Each such number takes
    a parameter entry. So each step takes neighbouring windows of one row with the same taps inside
    the map. It leaves out the taps outside the map, and needs a single entry.
    """
    window = node.window
    (top, left), (stride_y, stride_x) = window.first, window.stride
    columns = [
        _inside(left + q * stride_x, window.kernel[1], window.dilation[1], source.width)
        for q in range(window.out[1])
    ]
    for p in range(window.out[0]):
        row = top + p * stride_y
        rows = _inside(row, window.kernel[0], window.dilation[0], source.height)
        done = 0
        for taps, group in groupby(columns):
            count = len(rows) * len(taps)
            if count == 0:
                raise CompileError("some of its windows lie outside the map")
            size = len(list(group))
            first = (
                row + rows.start * window.dilation[0],
                left + done * stride_x + taps.start * window.dilation[1],
            )
            part = replace(window, kernel=(len(rows), len(taps)), first=first, out=(1, size))
            here = target.part(p * target.width + done, size)
            alike = replace(node, averages=node.averages[:count])
            yield _step(config, alike, source, here, part, edges=False)
            done += size


def _inside(first: int, taps: int, apart: int, size: int) -> range:
    """Return the range of a window's taps, counted from 0 along one axis, that lie inside the map.

    The map has columns or rows 0 to `size` - 1. The first tap is at column or row `first`, and the
    taps are `apart` columns or rows apart.
    """
    begin = max(0, -(first // apart))
    return range(min(begin, taps), max(min(taps, -(-(size - first) // apart)), min(begin, taps)))


def _step(
    config: Config,
    node: Pooling,
    source: FeatureMap,
    target: FeatureMap,
    window: Window,
    edges: bool,
) -> PoolingStep:
    """Return the step for one pooling instruction; `edges` is True if some windows reach over the
    edge of a sample's map.
    """
    reduction, output = node.reduction, node.output
    entries = common_entry(config, output)
    if reduction == Reduction.AVERAGE:
        count = window.kernel[0] * window.kernel[1]
        output = node.averages[-1] if node.averages else reciprocal(count)
        if edges:
            averages = node.averages or tuple(reciprocal(taps) for taps in range(1, count + 1))
            entries = joined(*(common_entry(config, each) for each in averages))
        else:
            reduction, entries = Reduction.SUM, common_entry(config, output)
    return PoolingStep(
        operator=node.operator,
        source=source,
        target=target,
        reduction=reduction,
        window=window,
        floor=node.floor,
        ceiling=node.ceiling,
        output=output,
        output_entries=entries,
    )


def reciprocal(count: int) -> Requantisation:
    """Return the requantisation that divides a sum of `count` int8 by `count`, with halves rounded
    away from zero.

    With its shift, the multiplier is the least number of 31 bits above 1 / `count`. SINGLE rounds
    halves up. For a quotient at a negative half, the product is just below this half, so it is
    rounded away from zero, too. No other product crosses a half, as the multiplier's denominator is
    above 2 * 128 * `count`^2.
    """
    shift = 1 - count.bit_length()
    multiplier = (1 << (31 - shift)) // count + 1
    if multiplier >= 1 << 31:
        shift += 1
        multiplier = (1 << (31 - shift)) // count + 1
    return scalar_requantisation(multiplier, shift, rounding=Rounding.SINGLE)
