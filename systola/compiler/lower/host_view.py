# SPDX-License-Identifier: Apache-2.0
"""Feature maps in host memory, and the steps that bring them into the buffer and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.compiler.errors import CompileError
from systola.compiler.layout import HostMatrix
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.feature_map import FeatureMap, Lines, runs
from systola.compiler.lower.step import Step


@dataclass(frozen=True, kw_only=True)
class HostView:
    """A feature map in host memory, or a part of such a map.

    Pixel p of block b of the channels is block `block` + b of row `row` + p of `matrix`.
    """

    matrix: HostMatrix
    """Matrix in host memory with a row for each pixel. With packed channels, a row of the matrix is
    a row of pixels.
    """
    row: int = 0
    block: int = 0
    height: int
    width: int
    channels: Channels
    packed: bool = False
    beside: int = 1
    """Number of neighbouring pixels that share a row of the matrix. For `packed` see FeatureMap."""

    @property
    def pixels(self) -> int:
        """Number of pixels of the map."""
        return self.height * self.width

    @property
    def rows(self) -> int:
        """Number of rows of the matrix that the map takes."""
        return self.height if self.packed else self.pixels

    def grid(self, height: int, width: int) -> HostView:
        """Return the same pixels of the matrix as a view of another height and width.

        Raises CompileError if channels are packed.
        """
        if self.packed:
            raise CompileError("packed channels cannot be reshaped")
        return replace(self, height=height, width=width)

    def part(self, start: int, pixels: int) -> HostView:
        """Return `pixels` pixels of the view, from pixel `start` on, as a view of one row."""
        return replace(self, row=self.row + start, height=1, width=pixels)

    def cut(self, start: int, count: int) -> HostView:
        """Return `count` channels of the view, from channel `start` on, as a view.

        Raises CompileError if these channels are not whole blocks.
        """
        block, channels = self.channels.cut(start, count)
        return replace(self, block=self.block + block, channels=channels)

    def band(self, first: int, count: int) -> HostView:
        """Return `count` rows of pixels, from row `first` on, as a view."""
        start = first if self.packed else first * self.width
        return replace(self, row=self.row + start, height=count)

    def whole_map(self, name: str) -> FeatureMap:
        """Return a new map in the buffer that has room for all of this view."""
        if self.packed:
            pitch = -(-self.width * self.channels.count // self.channels.block)
            lines, plane = Lines(name, self.height * pitch), 0
        else:
            lines, plane = Lines(name, self.pixels * self.channels.blocks), self.pixels
        return FeatureMap(
            lines=lines,
            height=self.height,
            width=self.width,
            plane=plane,
            channels=self.channels,
            packed=self.packed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadStep(Step):
    """A step that reads a map from host memory into the buffer."""

    source: HostView
    target: FeatureMap

    @property
    def reads(self) -> tuple[Lines, ...]:
        return ()

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.target.lines,)

    def emit(self, emitter: Emitter) -> None:
        source, target = self.source, self.target
        matrix = source.matrix
        blocks = matrix.blocks if source.packed else source.channels.blocks
        together = matrix.pitch == emitter.config.input_pitch and target.plane in (0, source.rows)
        for first, count in _block_groups(blocks, together):
            emitter.emit(
                Opcode.READ_HOST_MEMORY_ALTERNATE if source.packed else Opcode.READ_HOST_MEMORY,
                host=matrix.at(source.row, source.block + first),
                host_register=emitter.sample_register(matrix),
                buffer=emitter.line(target.lines, target.offset + first * target.plane),
                rows=source.rows,
                stride=matrix.stride,
                blocks=count,
                tail=min(matrix.tail(source.block + first, count), emitter.config.rows),
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreStep(Step):
    """A step that writes a map from the buffer to host memory."""

    source: FeatureMap
    target: HostView

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines,)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return ()

    def emit(self, emitter: Emitter) -> None:
        source, target = self.source, self.target
        matrix = target.matrix
        first = target.block
        for (offset,), blocks, _ in runs(source):
            groups = _block_groups(blocks, matrix.pitch == emitter.config.output_pitch)
            for at, count in groups:
                emitter.emit(
                    Opcode.WRITE_HOST_MEMORY,
                    host=matrix.at(target.row, first + at),
                    host_register=emitter.sample_register(matrix),
                    buffer=emitter.line(source.lines, offset + at * source.plane),
                    rows=source.pixels,
                    stride=matrix.stride,
                    blocks=count,
                    tail=emitter.config.cols,
                )
            first += blocks


def _block_groups(blocks: int, together: bool) -> list[tuple[int, int]]:
    """Return a pair for each instruction that moves a map: its first block and its number of
    blocks.

    With `together` one instruction moves all blocks, else each block has its own instruction.
    """
    return [(0, blocks)] if together else [(block, 1) for block in range(blocks)]


def input_view(config: Config, source: FeatureMap, offset: int, times: int) -> HostView:
    """Return the place in host memory of an input that is read into the map `source`.

    The place begins at byte `offset` of the host window, and has room for `times` such maps.
    """
    if source.packed:
        rows, columns = source.height, source.width * source.channels.count
    else:
        rows, columns = source.pixels, source.channels.blocks * config.rows
    matrix = HostMatrix(
        offset=offset,
        rows=times * rows,
        columns=columns,
        block=config.rows,
        pitch=config.input_pitch,
    )
    return _view(matrix, source)


def output_view(config: Config, source: FeatureMap, offset: int, times: int) -> HostView:
    """Return the place in host memory of an output with the layout of the map `source`.

    The place begins at byte `offset` of the host window, and has room for `times` such maps.
    """
    matrix = HostMatrix(
        offset=offset,
        rows=times * source.pixels,
        columns=source.channels.blocks * config.cols,
        block=config.cols,
        pitch=config.output_pitch,
    )
    return _view(matrix, source)


def spill_view(config: Config, source: FeatureMap, offset: int) -> HostView:
    """Return the place, from byte `offset` of the host window on, of a value that is spilled from
    the map `source`.
    """
    pitch = max(config.input_pitch, config.output_pitch)
    matrix = HostMatrix(
        offset=offset,
        rows=source.pixels,
        columns=source.channels.blocks * config.rows,
        block=config.rows,
        pitch=pitch,
    )
    return _view(matrix, source)


def _view(matrix: HostMatrix, source: FeatureMap) -> HostView:
    return HostView(
        matrix=matrix,
        height=source.height,
        width=source.width,
        channels=source.channels,
        packed=source.packed,
        beside=source.beside,
    )
