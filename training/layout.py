# SPDX-License-Identifier: Apache-2.0
"""Where a network and its samples lie: shapes in blocks, and places in host memory.

All of it is lines, P bytes apart in host memory (P: the pitch of a vector). A matrix is in the
order in which the machine takes it: weights [block of units][input], the one for the bias the first
of the last C inputs; int16 in pairs of lines, low bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.training.stages import Stage

PROGRAM_BYTES = 1 << 20
TABLES = 4


@dataclass(frozen=True)
class Shape:
    """A stage in blocks of C."""

    inputs: int
    """Blocks of inputs, that of the bias included."""
    units: int
    """Blocks of units."""
    lines: int
    """Inputs, whole blocks: lines of a block of units."""
    bias: int
    """The line among them for the bias, the first of the last block."""


class Layout:
    """The places of everything in the host window, as byte offsets."""

    def __init__(
        self, config: Config, stages: tuple[Stage, ...], batch: int, *, momentum: bool
    ) -> None:
        size = self.size = config.cols
        self.pitch = config.input_pitch
        self.shapes = tuple(_shape(stage, size) for stage in stages)
        self.samples = _blocks(batch, size) * size
        """Rows of a batch, whole blocks."""
        self.groups = self.samples // size
        """Blocks of samples."""
        self.classes = self.shapes[-1].units * size
        """Rows of transposed logits."""
        self._end = 0
        weights = [shape.units * shape.lines for shape in self.shapes]
        self.masters = [self._take(2 * lines) for lines in weights]
        self.velocities = [self._take(2 * lines) for lines in weights] if momentum else []
        self.state_bytes = self._end
        """Of masters and velocities: what a checkpoint keeps."""
        self.x = self._take(self.samples * self.shapes[0].inputs)
        label_lines = 2 * self.groups * self.classes
        self.labels = self._take(label_lines)
        self.valid = self._take(label_lines)
        self.logits = self._take(label_lines)
        self.losses = self._take(2 * self.groups)
        self.survey = self._take(2 * len(stages))
        self.unit_bits = self._take(2 * len(stages))
        self.selected = _blocks(self.groups, size) * size
        """Lines of one for each block of samples, whole blocks of them."""
        select = self.selected // size * self.groups * self.classes
        self.constant_lines = (
            2 * (self.samples + self.selected) + select + self.shapes[-1].units + 4
        )
        self.constants = self._take(self.constant_lines)
        self.entries = self._take(config.parameter_entries * PARAMETER_PLANES)
        self.tables = self._bytes(TABLES * TABLE_BYTES)
        self.program = self._bytes(PROGRAM_BYTES)
        self.window = -(-self._end // HOST_PAGE_BYTES) * HOST_PAGE_BYTES

    def _take(self, lines: int) -> int:
        return self._bytes(lines * self.pitch)

    def _bytes(self, size: int) -> int:
        place = self._end
        self._end = -(-(place + size) // 256) * 256
        return place


def _shape(stage: Stage, size: int) -> Shape:
    bias = _blocks(stage.inputs, size) * size
    lines = bias + size
    return Shape(lines // size, _blocks(stage.units, size), lines, bias)


def _blocks(count: int, size: int) -> int:
    return -(-count // size)
