# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products on the array, each made by a Convolve and then an Activate.

If the sums are too many for the accumulators, they are made in pieces. The pieces are groups of
blocks of channels of the result, bands of its rows, or parts of each row. All weights are read
again for each band or part of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.compiler.errors import CompileError
from systola.compiler.lower.bands import Band, window_of
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries, channel_entries, window_tiles
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.step import MapStep, Step
from systola.compiler.operations import Product, Requantisation, Window

MAX_KERNEL, MAX_DILATION = 255, 15
"""Limits of Set_Config_Window: MAX_KERNEL is the largest number of rows or columns of a kernel, and
MAX_DILATION the largest distance between its rows.
"""
MAX_TOP, MAX_LEFT = 2047, 127
"""Limits of Set_Config_Window: MAX_TOP is the largest row of the first window, and MAX_LEFT the
largest column. Negative rows and columns may be as large.
"""


@dataclass(frozen=True)
class Pass:
    """A part of a convolution's kernel that one Convolve computes.

    It is the whole kernel, unless channels are packed or the kernel is too large for an
    instruction.
    """

    kernel: NDArray[np.int8]
    """Weights of int8: kernel height x kernel width x channels of the source x channels of the
    result.
    """
    source: Channels
    window: Window

    @property
    def tiles(self) -> int:
        """Number of weight tiles of the pass for each block of the result's channels."""
        return self.kernel.shape[0] * self.kernel.shape[1] * self.source.blocks


@dataclass(frozen=True)
class Area:
    """An area of a result that one Convolve makes: some whole rows, or a part of one row."""

    row: int
    rows: int
    column: int
    columns: int

    @property
    def pixels(self) -> int:
        """Number of pixels of the area."""
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvolutionStep(MapStep):
    """A step that multiplies all windows of a map by weights, on the array."""

    passes: tuple[Pass, ...]
    fill: int
    output: Requantisation
    wide: bool = False
    """True if results are int16: each takes two lines of the target, low bytes and then high bytes.
    """
    early: int = 0
    """Number of blocks at the start of the source that are multiplied early; 0 for none.

    These blocks get a Convolve of their own for the first block of the result. This Convolve begins
    before the other blocks of the source are written, see early_blocks.
    """

    @property
    def _lines(self) -> int:
        """Number of buffer lines for each pixel of the result in a block."""
        return 2 if self.wide else 1

    @property
    def tables(self) -> tuple[bytes, ...]:
        return () if self.output.table is None else (self.output.table,)

    def block(self, number: int) -> ConvolutionStep:
        """Return the step that makes only block `number`, from 0, of the result's channels."""
        channels = self.target.channels
        inside = np.flatnonzero(channels.slots // channels.block == number)
        start, size = int(inside[0]), len(inside)
        entries = self.output_entries
        length = len(entries.content) // entries.count
        content = entries.content[number * length : (number + 1) * length]
        return replace(
            self,
            target=self.target.cut(start, size),
            passes=tuple(replace(one, kernel=one.kernel[..., inside]) for one in self.passes),
            output_entries=Entries(content, 1),
            early=0 if number else self.early,
        )

    def band(self, band: Band) -> ConvolutionStep:
        """Return the step that makes only the rows `band` of the result."""
        return replace(
            self,
            target=self.target.band(band.first, band.count),
            passes=tuple(
                replace(one, window=window_of(one.window, band, 0)) for one in self.passes
            ),
        )

    def emit(self, emitter: Emitter) -> None:
        height, width = self.target.height, self.target.width // self._lines
        blocks = self.target.channels.blocks
        rows, columns, group = self._sizes(emitter.config)
        groups = [range(n, min(n + group, blocks)) for n in range(0, blocks, group)]
        places = self._store_weights(emitter, groups)
        for row in range(0, height, rows):
            for column in range(0, width, columns):
                area = Area(row, min(rows, height - row), column, min(columns, width - column))
                for n, firsts in zip(groups, places, strict=True):
                    accumulator = self._sum(emitter, firsts, n, area)
                    self.emit_results(emitter, n, area, accumulator)

    def _store_weights(self, emitter: Emitter, groups: list[range]) -> list[list[int]]:
        """Store the weight tiles of all `groups` of blocks in weight memory.

        Returns a list for each group. For each pass, the list has the number in weight memory of
        the pass's first tile.
        """
        # Tiles are made here, and not with the step, to save time. Most steps are never emitted, as
        # the values of their network turn out not to fit the buffer.
        channels = self.target.channels
        tiles = [window_tiles(emitter.config, p.kernel, p.source, channels) for p in self.passes]
        return [[emitter.store_weights(each[n.start : n.stop]) for each in tiles] for n in groups]

    def _sum(self, emitter: Emitter, firsts: list[int], blocks: range, area: Area) -> int:
        """Emit all passes for the area `area` of some blocks of the result.

        `firsts` has the number in weight memory of each pass's first tile. Returns the first
        accumulator row with the sums.
        """
        accumulator = emitter.accumulators(area.pixels * len(blocks))
        for number, (one, first) in enumerate(zip(self.passes, firsts, strict=True)):
            self._convolve(emitter, one, first, blocks, area, accumulator, number > 0)
        return accumulator

    def in_two(self, config: Config, held: int) -> tuple[Step, ...]:
        """Return two steps in place of this step: one for the sums, one for the results.

        Returns this step alone if the result must be made in pieces. The same holds if the
        accumulators have no room for the sums of `held` such steps.
        """
        height, width = self.target.height, self.target.width // self._lines
        blocks = self.target.channels.blocks
        fits = held * self.target.pixels <= config.accumulator_rows
        if self._sizes(config) != (height, width, blocks) or not fits:
            return (self,)
        whole = Area(0, height, 0, width)
        sums = SumsStep(
            operator=self.operator, convolution=self, blocks=range(blocks), area=whole, held=held
        )
        return sums, ResultsStep(operator=self.operator, sums=sums)

    def _sizes(self, config: Config) -> tuple[int, int, int]:
        """Return the rows and columns of an area, and the number of blocks of channels in a group.

        An area is the part of the result that one Convolve makes for a group of blocks. Area and
        group are the largest that fit the accumulators, such that all pieces are about equal.
        """
        height, width = self.target.height, self.target.width // self._lines
        blocks = self.target.channels.blocks
        limit = config.accumulator_rows
        if width > limit:
            if self.source.packed:
                raise CompileError(
                    f"a row of {width} results does not fit the {limit} rows of the accumulators"
                )
            return 1, -(-width // -(-width // limit)), 1
        bands = -(-height // (limit // width))
        if bands > 1 or self.target.plane != self.target.pixels:
            # A group is a single block for one of two reasons. A band may take more than half of
            # the accumulators. Or the target has gaps between blocks, which Activate cannot leave.
            return -(-height // bands), width, 1
        group = min(limit // (height * width), config.parameter_entries, blocks)
        groups = -(-blocks // group)
        return height, width, -(-blocks // groups)

    def emit_sums(self, emitter: Emitter, blocks: range, area: Area) -> int:
        """Store the weights of `blocks`, and emit all passes for the area `area` of these blocks.

        Returns the first accumulator row with the sums.
        """
        (firsts,) = self._store_weights(emitter, [blocks])
        return self._sum(emitter, firsts, blocks, area)

    def _convolve(
        self,
        emitter: Emitter,
        one: Pass,
        first: int,
        blocks: range,
        area: Area,
        accumulator: int,
        accumulate: bool,
    ) -> None:
        """Emit one pass of the kernel for the area `area` of some blocks of the result.

        `first` is the number in weight memory of the pass's first tile. With `early`, the first
        block of the result takes two Convolves: one for the early blocks of the source, one for the
        others.
        """
        source, early = self.source, self.early
        if not early or blocks.start or area.row or area.column:
            self._convolve_part(emitter, one, first, blocks, area, accumulator, accumulate)
            return
        channels = int(np.searchsorted(source.channels.slots, early * source.channels.block))
        for begin, count in ((0, channels), (channels, source.channels.count - channels)):
            part = replace(self, source=source.cut(begin, count))
            inputs = part.source.channels
            here = replace(one, kernel=one.kernel[:, :, begin : begin + count], source=inputs)
            part._convolve_part(emitter, here, first, blocks[:1], area, accumulator, begin > 0)
            first += inputs.blocks
        if blocks[1:]:
            accumulator += area.pixels
            self._convolve_part(emitter, one, first, blocks[1:], area, accumulator, accumulate)

    def _convolve_part(
        self,
        emitter: Emitter,
        one: Pass,
        first: int,
        blocks: range,
        area: Area,
        accumulator: int,
        accumulate: bool,
    ) -> None:
        source, window = self.source, one.window
        top = window.first[0] + area.row * window.stride[0]
        left = window.first[1] + area.column * window.stride[1]
        channels, k_tiles, pitch = 0, source.channels.blocks, source.width
        if source.packed:
            channels, k_tiles = source.channels.count, 1
            pitch = source.lines.count // source.height
        line = source.offset
        if top > MAX_TOP:
            # No tap is above row `top`, so the map can begin there.
            source = replace(source, height=source.height - top)
            line, top = line + top * pitch, 0
        if left > MAX_LEFT and not source.packed:
            # No tap is to the left of column `left`, so the map can begin there. Its rows stay
            # `pitch` lines apart.
            source = replace(source, width=source.width - left)
            line, left = line + left, 0
        emitter.window(
            source,
            replace(window, first=(top, left), out=(area.rows, area.columns)),
            pitch=pitch,
        )
        emitter.use_weights(first, len(blocks) * one.tiles)
        emitter.emit(
            Opcode.CONVOLVE,
            buffer=emitter.line(source.lines, line),
            accumulator=accumulator,
            plane=source.plane,
            k_tiles=k_tiles,
            n_tiles=len(blocks),
            accumulate=int(accumulate),
            channels=channels,
            fill=self.fill,
        )

    def emit_results(self, emitter: Emitter, blocks: range, area: Area, accumulator: int) -> None:
        """Emit the Activate for the sums of `blocks`, which begin in accumulator row
        `accumulator`.
        """
        target, output, lines = self.target, self.output, self._lines
        assert area.pixels * lines == target.plane or len(blocks) == 1
        assert area.columns * lines == target.width or area.rows == 1
        line = target.block(blocks.start) + area.row * target.width + area.column * lines
        table = 0 if output.table is None else emitter.table(output.table)
        emitter.emit(
            Opcode.ACTIVATE,
            accumulator=accumulator,
            buffer=emitter.line(target.lines, line),
            rows=area.pixels,
            n_tiles=len(blocks),
            parameter=emitter.parameters(self.output_entries, blocks.start, len(blocks)),
            function=output.function,
            rounding=output.rounding,
            zero_point=output.zero_point,
            ceiling=output.ceiling,
            table=table,
            wide=int(self.wide),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SumsStep(Step):
    """A step that makes the sums of a convolution; a ResultsStep turns them into results later."""

    convolution: ConvolutionStep
    blocks: range
    area: Area
    held: int
    """Number of such steps, this one included, with sums in the accumulators at one time."""

    @property
    def reads(self) -> tuple[Lines, ...]:
        return self.convolution.reads

    @property
    def writes(self) -> tuple[Lines, ...]:
        return ()

    def emit(self, emitter: Emitter) -> None:
        emitter.make_room(self.held * len(self.blocks) * self.area.pixels)
        accumulator = self.convolution.emit_sums(emitter, self.blocks, self.area)
        emitter.hold_sums(
            self, range(accumulator, accumulator + len(self.blocks) * self.area.pixels)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ResultsStep(Step):
    """A step that turns the sums of an earlier SumsStep into the results of a convolution."""

    sums: SumsStep

    @property
    def reads(self) -> tuple[Lines, ...]:
        return ()

    @property
    def writes(self) -> tuple[Lines, ...]:
        return self.sums.convolution.writes

    @property
    def entries(self) -> tuple[Entries, ...]:
        return self.sums.convolution.entries

    @property
    def tables(self) -> tuple[bytes, ...]:
        return self.sums.convolution.tables

    def emit(self, emitter: Emitter) -> None:
        sums = self.sums
        accumulator = emitter.held_sums(sums)
        sums.convolution.emit_results(emitter, sums.blocks, sums.area, accumulator)


def convolution_step(
    config: Config,
    operator: str,
    source: FeatureMap,
    target: FeatureMap,
    weights: NDArray[np.int8],
    window: Window,
    fill: int,
    output: Requantisation,
) -> ConvolutionStep:
    """Return the step for a convolution.

    `weights` is kernel height x kernel width x channels of the source x channels of the result.
    """
    if source.packed:
        passes = _packed_passes(config, weights, window)
    else:
        passes = tuple(
            Pass(weights[rows, columns], source.channels, part)
            for rows, columns, part in _parts(window, weights)
        )
    return ConvolutionStep(
        operator=operator,
        source=source,
        target=target,
        passes=passes,
        fill=fill,
        output=output,
        output_entries=channel_entries(config, output, target.channels),
    )


def product_step(
    config: Config,
    node: Product,
    source: FeatureMap,
    target: FeatureMap,
    samples: int,
) -> ConvolutionStep:
    """Return the step for a matrix product, as a convolution.

    Each window of the convolution covers the pixels that make one row of the matrix. The source is
    a map of `samples` samples, in the order of BatchRows. Raises CompileError if a row of the
    matrix does not consist of whole pixels, or has pixels that are not neighbours in a batch.
    """
    layer = node.layer
    if node.wide and not config.wide:
        raise CompileError(f"the machine '{config.name}' has no 16-bit modes")
    channels = source.channels.count
    pixels, rest = divmod(layer.k, channels)
    if rest or pixels == 0 or source.pixels % (pixels * samples):
        raise CompileError(
            f"rows of {layer.k} elements are not whole pixels of {channels} channels"
        )
    rows = source.pixels // (pixels * samples)
    width = source.width // samples
    if samples > 1 and width == 1:
        stride = (pixels, 1) if rows > 1 else (1, 1)
        window = Window(kernel=(pixels, 1), stride=stride, out=(rows, samples))
    elif samples > 1 and rows == 1:
        kernel = (source.height, width)
        window = Window(kernel=kernel, stride=(1, width), out=(1, samples))
    elif samples > 1:
        if pixels > 1:
            raise CompileError(f"rows of {pixels} pixels lie apart in a batch")
        window = Window(kernel=(1, 1), out=(source.height, source.width))
    elif rows == 1:
        window = Window(kernel=(source.height, source.width), out=(1, 1))
    else:
        source = source.grid(rows, pixels)
        window = Window(kernel=(1, pixels), out=(rows, 1))
    step = convolution_step(
        config,
        node.operator,
        source,
        target.grid(window.out[0], target.pixels // window.out[0]),
        layer.weights.reshape(*window.kernel, channels, layer.n),
        window,
        0,
        Requantisation(
            bias=layer.bias,
            multiplier=layer.multiplier,
            shift=layer.shift,
            rounding=layer.rounding,
            zero_point=layer.zero_point,
            function=layer.function,
            ceiling=layer.ceiling,
            table=layer.table,
        ),
    )
    return replace(step, wide=node.wide)


def may_pack(config: Config, channels: int, window: Window) -> bool:
    """Return whether Convolve can take a source of packed channels, and needs fewer tiles so.

    `channels` is the number of channels of the source, and `window` the windows of the convolution.
    """
    taps = config.rows // channels
    left = window.first[1]
    return (
        taps > 1
        and window.kernel[1] > 1
        and window.dilation[1] == 1
        and window.stride[1] <= taps
        # Convolve limits how far left or right of the map's edge a pass may begin. The last pass
        # begins furthest right, by less than the kernel's width.
        and -config.rows <= left * channels
        and (left + window.kernel[1] - 1) * channels < config.rows
    )


def _parts(window: Window, weights: NDArray[np.int8]) -> list[tuple[slice, slice, Window]]:
    """Return the kernel cut into parts that Set_Config_Window can express.

    A part is the range of its rows in the kernel, the range of its columns, and its window. Rows of
    the kernel with only zeros are left out.
    """
    (_, width), apart = window.kernel, window.dilation
    size = MAX_KERNEL if apart[0] <= MAX_DILATION else 1
    used = np.flatnonzero(weights.any(axis=(1, 2, 3))).tolist() or [0]
    begins = [row for row in used if row - 1 not in used]
    ends = [row + 1 for row in used if row + 1 not in used]
    runs = zip(begins, ends, strict=True)
    tops = [(top, end) for begin, end in runs for top in range(begin, end, size)]
    parts: list[tuple[slice, slice, Window]] = []
    for top, end in tops:
        for left in range(0, width, MAX_KERNEL):
            rows = slice(top, min(top + size, end))
            columns = slice(left, min(left + MAX_KERNEL, width))
            part = replace(
                window,
                kernel=(rows.stop - rows.start, columns.stop - columns.start),
                dilation=(apart[0] if size > 1 else 1, apart[1]),
                first=(window.first[0] + top * apart[0], window.first[1] + left * apart[1]),
            )
            parts.append((rows, columns, part))
    return parts


def _packed_passes(config: Config, weights: NDArray[np.int8], window: Window) -> tuple[Pass, ...]:
    _, width, channels, results = weights.shape
    taps = config.rows // channels
    passes: list[Pass] = []
    for start in range(0, width, taps):
        count = min(taps, width - start)
        inputs = Channels((count * channels,), config.rows)
        here = replace(window, kernel=(window.kernel[0], count))
        taken = weights[:, start : start + count]
        for rows, _, part in _parts(here, taken):
            columns = taken[rows]
            packed = columns.reshape(len(columns), 1, count * channels, results)
            wide = replace(part, first=(part.first[0], part.first[1] + start))
            passes.append(Pass(packed, inputs, wide))
    return tuple(passes)
