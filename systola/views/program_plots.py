# SPDX-License-Identifier: Apache-2.0
"""The figures of one recorded program, with matplotlib: its memories and a piece of its timeline.

Each mark has a name that the SVG keeps, such as `buffer-3`: the number is its place in the list
that it was drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from systola.arch.config import Config
from systola.views.memory_use import Stay, WeightTiles
from systola.views.plots import new_figure
from systola.views.timeline import Timeline, Track, take_lane

if TYPE_CHECKING:
    from systola.views.plots import Figure

FROM_HOST, RESULT, WEIGHTS, AGAIN = "#2a6fb0", "#2a7f62", "#c9a227", "#c44536"
TRACK_COLOURS = {
    Track.FETCH: "#9aa0a6",
    Track.ISSUE: "#d0d4d9",
    Track.HOST_READ: "#2a6fb0",
    Track.WEIGHT_FETCH: "#c9a227",
    Track.ARRAY: "#2a7f62",
    Track.ACTIVATION: "#7d5ba6",
    Track.HOST_WRITE: "#8d6a4f",
}
_LANES = 64
"""Largest number of rows of a unit."""
_CYCLES_AN_INCH = 160
_NAMES_EVERY = 1000
"""Distance, in cycles, at which the name of a track is repeated."""


@dataclass(frozen=True)
class Slice:
    """A bar of the timeline: an instruction in a unit, or a burst of fetched instructions."""

    track: Track
    lane: int
    begin: int
    end: int
    work: int | None
    """Place of the instruction in Timeline.work; None for a burst."""


@dataclass(frozen=True)
class Box:
    """A mark: its corner with the lowest coordinates, its size, and its colour."""

    x: float
    y: float
    width: float
    height: float
    colour: str


def slices_between(timeline: Timeline, begin: int, end: int) -> list[Slice]:
    """Return the slices of `timeline` from cycle `begin` up to cycle `end`, unit by unit."""
    free = {track: [0] * _LANES for track in Track}
    pieces: list[tuple[Track, int, int, int | None]] = [
        (Track.FETCH, first, last, None) for first, last in timeline.fetches
    ]
    for number, work in enumerate(timeline.work):
        pieces.append((Track.ISSUE, work.offered, work.issued + 1, number))
        if work.track and work.begin >= 0 and work.end >= 0:
            pieces.append((work.track, work.begin, work.end, number))
    slices = [
        Slice(track, take_lane(free[track], first, last), first, last, number)
        for track, first, last, number in pieces
        if first < end and last > begin
    ]
    order = list(Track)
    return sorted(slices, key=lambda each: (order.index(each.track), each.begin))


def timeline_figure(slices: Sequence[Slice], begin: int, end: int) -> Figure:
    """Draw `slices` of slices_between, one below the other.

    Marks are called `timeline-0` and so on.
    """
    rows = {
        track: 1 + max((s.lane for s in slices if s.track == track), default=0) for track in Track
    }
    width = max(8.0, (end - begin) / _CYCLES_AN_INCH)
    figure = new_figure(width, 0.8 + 0.26 * (sum(rows.values()) + len(rows)))
    axes: Any = figure.add_subplot()
    tops: dict[Track, int] = {}
    place = 0
    for track, count in rows.items():
        tops[track] = place + 1
        for at in range(begin, end, _NAMES_EVERY):
            axes.text(at, place + 0.9, track.value, fontsize=8, va="bottom")
        place += count + 1
    boxes = [
        Box(
            max(each.begin, begin),
            tops[each.track] + each.lane + 0.08,
            min(each.end, end) - max(each.begin, begin),
            0.84,
            TRACK_COLOURS[each.track],
        )
        for each in slices
    ]
    _draw(axes, "timeline", boxes)
    axes.set(xlim=(begin, end), ylim=(place, 0), xlabel="cycles since START", yticks=[])
    return figure


def buffer_figure(config: Config, stays: Sequence[Stay], cycles: int) -> Figure:
    """Draw the lines of the unified buffer that hold data, over time.

    Marks are called `buffer-0` and so on.
    """
    figure = new_figure(10, 5)
    axes: Any = figure.add_subplot()
    boxes = [
        Box(
            stay.begin,
            stay.first,
            stay.end - stay.begin,
            stay.count,
            FROM_HOST if stay.from_host else RESULT,
        )
        for stay in stays
    ]
    _draw(axes, "buffer", boxes)
    used = max((stay.first + stay.count for stay in stays), default=config.buffer_lines)
    axes.set(
        title=f"{used:,} of {config.buffer_lines:,} lines are used",
        xlim=(0, cycles),
        ylim=(0, used),
        xlabel="cycles since START",
        ylabel="lines of the unified buffer",
    )
    _explain(figure, axes, {"from host memory": FROM_HOST, "result": RESULT})
    return figure


def weights_figure(tiles: Sequence[WeightTiles]) -> Figure:
    """Draw the tiles of weight memory, a row for each layer.

    Marks are called `weights-0` and so on.
    """
    layers = list(dict.fromkeys(each.layer for each in tiles))
    figure = new_figure(10, 1.3 + 0.28 * len(layers))
    axes: Any = figure.add_subplot()
    boxes = [
        Box(
            each.tile,
            layers.index(each.layer) - 0.4,
            each.count,
            0.8,
            WEIGHTS if each.times == 1 else AGAIN,
        )
        for each in tiles
    ]
    _draw(axes, "weights", boxes)
    axes.set_yticks(range(len(layers)), layers, fontsize=8)
    end = max((each.tile + each.count for each in tiles), default=1)
    axes.set(xlim=(0, end), ylim=(len(layers) - 0.5, -0.5), xlabel="tiles of weight memory")
    _explain(figure, axes, {"read once": WEIGHTS, "read several times": AGAIN})
    return figure


def _draw(axes: Any, name: str, boxes: Sequence[Box]) -> None:
    """Draw the boxes as marks, called `name`-0 and so on."""
    marks = axes.bar(
        [each.x for each in boxes],
        [each.height for each in boxes],
        [each.width for each in boxes],
        [each.y for each in boxes],
        align="edge",
        color=[each.colour for each in boxes],
        edgecolor="white",
        linewidth=0.4,
        alpha=0.9,
    )
    for number, mark in enumerate(marks):
        mark.set_gid(f"{name}-{number}")


def _explain(figure: Any, axes: Any, colours: dict[str, str]) -> None:
    """Explain the colours below the axes."""
    for name, colour in colours.items():
        axes.bar(0, 0, color=colour, label=name)
    figure.legend(loc="outside lower center", ncols=len(colours), fontsize=8)
