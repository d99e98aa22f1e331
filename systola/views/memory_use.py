# SPDX-License-Identifier: Apache-2.0
"""The content of a machine's memories over the time of a recorded program, with the layers that it
belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import Executor, Instruction, Memory, Opcode, Use
from systola.golden.ranges import tiles_consumed
from systola.golden.window import UNSET, Window
from systola.views.timeline import Timeline, Work, executed

REST = "after the last layer"


@dataclass
class Stay:
    """A range of lines in the unified buffer that hold data, from first write to last read."""

    layer: str
    """Layer that the data were written for."""
    mnemonic: str
    """Mnemonic of the instructions that wrote the data."""
    first: int
    count: int
    """Number of lines."""
    begin: int
    end: int
    """Cycles since START in which the lines are first written (`begin`) and last used (`end`)."""
    reads: int = 0
    """Number of instructions that read some of the lines."""

    @property
    def from_host(self) -> bool:
        """Whether the data came from host memory."""
        return self.mnemonic.startswith("read_host")


@dataclass(frozen=True)
class WeightTiles:
    """A range of weight tiles that a layer consumes."""

    layer: str
    tile: int
    count: int
    times: int
    """Number of times that the tiles were read."""


@dataclass(frozen=True)
class _Step:
    """An instruction as it ran; `work` is None if it does not reach a unit."""

    layer: str
    entry: Instruction
    operands: dict[str, int]
    work: Work | None


def buffer_stays(
    config: Config, program: bytes, timeline: Timeline, layers: Sequence[str]
) -> list[Stay]:
    """Return the content of the unified buffer, in the order in which writing began.

    `layers` names the layer that ends with each tag. Consecutive instructions of one layer that
    write consecutive lines are joined.
    """
    stays: list[Stay] = []
    owner = np.full(config.buffer_lines, -1)
    window = UNSET
    for step in _steps(program, timeline, layers):
        work = step.work
        window = _window(step, window)
        if work is None or work.begin < 0 or work.end < 0:
            continue
        for lines in _lines(config, step, step.entry.reads, window):
            found: list[int] = np.unique(owner[lines.start : lines.stop]).tolist()
            for index in found:
                if index >= 0:
                    stays[index].end = max(stays[index].end, work.end)
                    stays[index].reads += 1
        last = next(_lines(config, step, step.entry.writes, window), None)
        if last is None:
            continue
        before = stays[-1] if stays else None
        if (
            before
            and not before.reads
            and (before.layer, before.mnemonic) == (step.layer, step.entry.mnemonic)
            and before.first + before.count == last.start
        ):
            before.count += len(last)
            before.end = max(before.end, work.end)
        else:
            stays.append(
                Stay(step.layer, step.entry.mnemonic, last.start, len(last), work.begin, work.end)
            )
        owner[last.start : last.stop] = len(stays) - 1
    return stays


def weight_tiles(program: bytes, timeline: Timeline, layers: Sequence[str]) -> list[WeightTiles]:
    """Return the tiles of weight memory that each layer consumes, in the order of their addresses.

    Tiles belong to the layer with the MatrixMultiply or Convolve that consumes them, even if
    another layer reads them.
    """
    times: dict[tuple[int, str], int] = {}
    queue = deque[range]()
    window = UNSET
    for step in _steps(program, timeline, layers):
        opcode = step.entry.opcode
        window = _window(step, window)
        if opcode == Opcode.READ_WEIGHTS:
            first = step.operands["tile"]
            queue.append(range(first, first + step.operands["count"]))
        elif step.entry.executor is Executor.MATRIX_UNIT:
            left = tiles_consumed(opcode, step.operands, window)
            while left:
                taken, rest = queue[0][:left], queue[0][left:]
                for tile in taken:
                    times[tile, step.layer] = times.get((tile, step.layer), 0) + 1
                left -= len(taken)
                queue.popleft()
                if rest:
                    queue.appendleft(rest)
    tiles: list[WeightTiles] = []
    for (tile, layer), often in sorted(times.items()):
        before = tiles[-1] if tiles else None
        if (
            before
            and (before.layer, before.times) == (layer, often)
            and before.tile + before.count == tile
        ):
            tiles[-1] = WeightTiles(layer, before.tile, before.count + 1, often)
        else:
            tiles.append(WeightTiles(layer, tile, 1, often))
    return tiles


def _lines(config: Config, step: _Step, uses: Sequence[Use], window: Window) -> Iterator[range]:
    """Yield the lines of the unified buffer that an instruction uses; a range for each of its
    `uses`.
    """
    for use in uses:
        if use.memory is Memory.BUFFER:
            yield step.entry.addresses(use, step.operands, window.sizes(config))


def _window(step: _Step, before: Window) -> Window:
    """Return the window of Set_Config_Window that is in force after a step."""
    if step.entry.opcode != Opcode.SET_CONFIG_WINDOW:
        return before
    return Window(**{each.name: step.operands[each.name] for each in fields(Window)})


def _steps(program: bytes, timeline: Timeline, layers: Sequence[str]) -> Iterator[_Step]:
    """Yield the instructions in the order in which they ran, each with the layer of the next
    tag.
    """
    waiting: list[tuple[Instruction, dict[str, int], Work | None]] = []
    issued = iter(timeline.work)
    work = next(issued, None)
    for number, entry, operands in executed(program):
        reached = None
        if work is not None and work.number == number:
            reached, work = work, next(issued, None)
        waiting.append((entry, operands, reached))
        if entry.opcode == Opcode.DEBUG_TAG:
            tag = operands["tag"]
            name = layers[tag] if tag < len(layers) else f"tag {tag}"
            yield from (_Step(name, *each) for each in waiting)
            waiting.clear()
    yield from (_Step(REST, *each) for each in waiting)
