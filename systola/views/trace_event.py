# SPDX-License-Identifier: Apache-2.0
"""Recorded programs as a trace for Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing).

The format is the trace-event format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsChNtSj0U. A cycle is shown as
a microsecond. Programs stand one after the other, each from its START to its DONE.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.assembler import disassemble
from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, decode
from systola.compiler.program import Program
from systola.runtime.backend import Result
from systola.runtime.report_table import short_name
from systola.sim.events import ARRAY, HOST_DATA, HOST_FETCH, HOST_WRITE, WEIGHTS
from systola.sim.recording import Recording
from systola.timing.estimate import UnitWork, estimate, estimated_work
from systola.timing.memory_speed import MemorySpeed
from systola.timing.record import Unit
from systola.views.timeline import Timeline, Track, Work, make_timeline, take_lane

DETAILED = 50_000
"""Largest number of instructions that are drawn one by one, with their flows.

If there are more, neighbours in a unit are drawn together. The span of such a group, in cycles, is
chosen so that at most this number of slices is left.
"""
POINTS = 4096
"""Largest number of points of a counter, over all programs."""
_UNITS, _LAYERS, _MODEL = 1, 2, 3
"""Numbers of the groups of tracks: units as measured, layers, and units as estimated."""
_MODEL_TRACKS = {
    Unit.HOST_READ: Track.HOST_READ,
    Unit.WEIGHTS: Track.WEIGHT_FETCH,
    Unit.ARRAY: Track.ARRAY,
    Unit.ACTIVATION: Track.ACTIVATION,
    Unit.HOST_WRITE: Track.HOST_WRITE,
}
_LANES = 64
"""Number of rows that a unit has for instructions that overlap.

It is above the number of instructions that a unit can hold at one time.
"""

Event = dict[str, Any]
_Piece = tuple[int, int, int]
"""Type of a piece of a track: its begin, its end, and a number that the caller chooses."""


@dataclass(frozen=True)
class RecordedRun:
    """A program that ran on a machine that records."""

    image: Image
    result: Result
    layers: tuple[str, ...] = ()
    """Name of the layer that ends with each tag."""
    estimates: Mapping[int, float] = field(default_factory=dict[int, float])
    """For each tag, the estimated cycles of one pass."""
    model: tuple[UnitWork, ...] = ()
    """Estimated work of all units."""


def with_model(
    config: Config, runs: Sequence[RecordedRun], memory: MemorySpeed | None
) -> list[RecordedRun]:
    """Return the runs with the estimates of the timing model for memories of this speed.

    If all runs together have more than DETAILED instructions, estimates are for layers alone.
    """
    few = _instructions(runs) <= DETAILED
    models: dict[int, RecordedRun] = {}
    found: list[RecordedRun] = []
    for run in runs:
        if id(run.image) not in models:
            tags = estimate(config, run.image, memory).tags
            models[id(run.image)] = replace(
                run,
                estimates={each.tag: each.cycles / each.passes for each in tags},
                model=estimated_work(config, run.image, memory) if few else (),
            )
        model = models[id(run.image)]
        found.append(replace(run, estimates=model.estimates, model=model.model))
    return found


def network_trace(
    config: Config,
    recorded: Sequence[tuple[Program, Result]],
    memory: MemorySpeed | None,
    title: str,
) -> bytes:
    """Return a trace of a network's programs, with its layers above their instructions.

    It has measured cycles, and estimated cycles for memories of the given speed; see `trace`.
    """
    runs = [
        RecordedRun(
            program.image, result, tuple(short_name(each.operator) for each in program.layers)
        )
        for program, result in recorded
    ]
    return trace(config, with_model(config, runs, memory), title)


def trace(config: Config, runs: Sequence[RecordedRun], title: str) -> bytes:
    """Return the trace of programs as the content of a .json file.

    Each result must have a recording.
    """
    events: list[Event] = []
    instructions = _instructions(runs)
    start = 0
    for run in runs:
        assert run.result.cycles is not None
        recording = _recording(run)
        timeline = make_timeline(config, run.image, recording)
        share = len(timeline.work) / max(1, instructions)
        events += _Trace(timeline, run, start).events(max(1, round(share * DETAILED)))
        events += _counters(config, timeline, recording, start, max(16, POINTS // len(runs)))
        start += run.result.cycles
    threads = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    events += _names(title, threads)
    # One event a line costs few bytes, and people can read it.
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    about = json.dumps({"machine": config.name, "time": "1 us is 1 cycle", "cycles": start})
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{lines}\n]}}\n'.encode()


def _recording(run: RecordedRun) -> Recording:
    assert run.result.recording is not None
    return run.result.recording


def _instructions(runs: Sequence[RecordedRun]) -> int:
    """Return the number of instructions issued."""
    return sum(int(np.count_nonzero(_recording(run).events & 1)) for run in runs)


def _names(title: str, threads: Iterable[tuple[int, int]]) -> Iterator[Event]:
    """Yield the names and the order of the tracks."""
    for place, (group, name) in enumerate(
        ((_LAYERS, "layers"), (_UNITS, "units"), (_MODEL, "units, by the timing model"))
    ):
        yield _about("process_name", group, 0, name=f"{name}: {title}")
        yield _about("process_sort_index", group, 0, sort_index=place)
    for group, thread in sorted(threads):
        name = (
            ("measured", "estimated")[thread] if group == _LAYERS else list(Track)[thread // _LANES]
        )
        yield _about("thread_name", group, thread, name=name)
        yield _about("thread_sort_index", group, thread, sort_index=thread)


def _about(what: str, group: int, thread: int, **arguments: object) -> Event:
    return {"ph": "M", "name": what, "pid": group, "tid": thread, "args": arguments}


def _thread(track: Track, lane: int = 0) -> int:
    return list(Track).index(track) * _LANES + lane


class _Trace:
    """A trace of one program, with its slices and flows; the program begins at `start` in the
    trace.
    """

    def __init__(self, timeline: Timeline, run: RecordedRun, start: int) -> None:
        self._work, self._run, self._start = timeline.work, run, start
        self._places = _places(timeline.work)
        self._texts = disassemble(run.image.program).splitlines()
        issues = [(each.offered, each.issued + 1, i) for i, each in enumerate(self._work)]
        self._threads: dict[int, list[_Piece]] = {_thread(Track.ISSUE): issues}
        lanes = [0] * _LANES
        for begin, end in timeline.fetches:
            thread = _thread(Track.FETCH, take_lane(lanes, begin, end))
            self._threads.setdefault(thread, []).append((begin, end, 0))
        for index, thread in self._places.items():
            work = self._work[index]
            self._threads.setdefault(thread, []).append((work.begin, work.end, index))
        self._layers: list[_Piece] = []
        begin = 0
        for cycle, tag in run.result.tags:
            assert cycle is not None
            self._layers.append((begin, cycle, tag))
            begin = cycle

    def events(self, detailed: int) -> Iterator[Event]:
        """Yield all events, with at most `detailed` slices in all units together.

        Layers have at most as many slices again.
        """
        units = [
            each for thread, each in self._threads.items() if thread >= _thread(Track.HOST_READ)
        ]
        span, cycles = 0, self._run.result.cycles or 0
        while span < cycles and (
            sum(1 for each in units for _ in together(each, span)) > detailed
            or sum(1 for _ in together(self._layers, span)) > detailed
        ):
            span = 2 * span or 16
        shown: list[int] = []
        for thread, all_pieces in self._threads.items():
            for group in together(all_pieces, span):
                begin, end, index = group[0][0], group[-1][1], group[0][2]
                more: dict[str, object] = {}
                if thread < _thread(Track.ISSUE):
                    name = "burst" if len(group) == 1 else f"{len(group)} bursts"
                elif len(group) > 1:
                    name = f"{len(group)} instructions"
                else:
                    name = self._work[index].entry.mnemonic
                    if thread != _thread(Track.ISSUE):
                        shown.append(index)
                        more = self._details(self._work[index])
                yield self._slice(_UNITS, thread, name, begin, end, more)
        yield from self._flows(sorted(shown))
        yield from self._model(span)
        yield from self._passes(span)

    def _model(self, span: int) -> Iterator[Event]:
        """Yield the estimated work of the units. Instructions that overlap are in several rows."""
        work = self._run.model
        free = {track: [0] * _LANES for track in Track}
        threads: dict[int, list[_Piece]] = {}
        for index, each in enumerate(work):
            track = _MODEL_TRACKS[each.unit]
            begin, end = max(0, round(each.begin)), max(1, round(each.end))
            thread = _thread(track, take_lane(free[track], begin, end))
            threads.setdefault(thread, []).append((begin, end, index))
        for thread, pieces in threads.items():
            for group in together(pieces, span):
                begin, end, index = group[0][0], group[-1][1], group[0][2]
                if len(group) > 1:
                    yield self._slice(_MODEL, thread, f"{len(group)} instructions", begin, end, {})
                    continue
                number = work[index].number
                text = self._texts[number]
                name = text.split()[0] if work[index].unit != Unit.WEIGHTS else "weights"
                more = {"instruction": number, "text": text}
                yield self._slice(_MODEL, thread, name, begin, end, more)

    def _slice(
        self, group: int, thread: int, name: str, begin: float, end: float, more: Event
    ) -> Event:
        place = {"pid": group, "tid": thread, "ts": self._start + begin, "dur": end - begin}
        return {"ph": "X", "name": name, **place, **({"args": more} if more else {})}

    def _details(self, work: Work) -> dict[str, object]:
        """Return the details that a click on an instruction shows."""
        waited = [
            f"{wait.cycles} cycles for {wait.resource} "
            f"(instruction {self._work[wait.source].number})"
            for wait in work.waits
        ]
        if work.awaited_weights:
            waited.append(f"{work.awaited_weights} cycles for weights")
        # The text shows operands before index registers are added to them. So the values after
        # the addition are shown, too.
        place = work.number * INSTRUCTION_BYTES
        word = decode(self._run.image.program[place : place + INSTRUCTION_BYTES])
        assert word is not None
        indexed = {
            field.indexes: work.operands[field.indexes]
            for field in work.entry.fields
            if field.indexes and word[1][field.name]
        }
        return {
            "instruction": work.number,
            "text": self._texts[work.number],
            **indexed,
            "issued": self._start + work.issued,
            **({"waited": "; ".join(waited)} if waited else {}),
        }

    def _flows(self, shown: Sequence[int]) -> Iterator[Event]:
        """Yield flows to an instruction from the instructions that it waited for."""
        all_shown = set(shown)
        for index in shown:
            work = self._work[index]
            for number, wait in enumerate(work.waits):
                if wait.source not in all_shown:
                    continue
                source = self._work[wait.source]
                left = max(source.begin, min(source.end - 1, work.begin))
                flow = {
                    "cat": "waits",
                    "name": wait.resource,
                    "id": f"{self._start}.{index}.{number}",
                    "pid": _UNITS,
                }
                for kind, at, thread in (
                    ({"ph": "s"}, left, self._places[wait.source]),
                    ({"ph": "f", "bp": "e"}, max(left, work.begin), self._places[index]),
                ):
                    yield {**kind, **flow, "tid": thread, "ts": self._start + at}

    def _passes(self, span: int) -> Iterator[Event]:
        """Yield a slice for each pass of a layer, and below it the estimated pass."""
        layers, estimates = self._run.layers, self._run.estimates
        for group in together(self._layers, span):
            begin, end, tag = group[0][0], group[-1][1], group[0][2]
            if len(group) > 1:
                yield self._slice(_LAYERS, 0, f"{len(group)} layers", begin, end, {})
                continue
            name = layers[tag] if tag < len(layers) else f"tag {tag}"
            yield self._slice(_LAYERS, 0, name, begin, end, {"tag": tag})
            if tag in estimates:
                length = round(estimates[tag], 1)
                yield self._slice(_LAYERS, 1, name, begin, begin + length, {"tag": tag})


def _places(work: Sequence[Work]) -> dict[int, int]:
    """Return the row in the trace (a thread of the format) of each instruction that began and ended
    in a unit.
    """
    free: dict[Track, list[int]] = {track: [0] * _LANES for track in Track}
    return {
        index: _thread(each.track, take_lane(free[each.track], each.begin, each.end))
        for index, each in enumerate(work)
        if each.track is not None and each.begin >= 0 and each.end >= 0
    }


def together(pieces: Iterable[_Piece], span: int) -> Iterator[list[_Piece]]:
    """Yield the pieces in groups of neighbours. A group is a single piece, or pieces that together
    take at most `span` cycles.
    """
    group: list[_Piece] = []
    for each in pieces:
        if group and each[1] - group[0][0] > span:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _counters(
    config: Config, timeline: Timeline, recording: Recording, start: int, points: int
) -> Iterator[Event]:
    """Yield bytes a cycle on each port, the use of the array, and the instructions that wait.

    Instructions are counted for each unit.
    """
    samples = len(recording.samples)
    stride = max(1, -(-samples // points))
    edges = np.unique([*range(0, samples, stride), samples])
    cycles = np.diff(edges) * recording.interval
    begins = edges[:-1] * recording.interval
    ports = (
        ("host in: bytes a cycle", HOST_DATA, config.host_bus_bytes),
        ("host in, instructions: bytes a cycle", HOST_FETCH, config.host_bus_bytes),
        ("host out: bytes a cycle", HOST_WRITE, config.host_bus_bytes),
        ("weights: bytes a cycle", WEIGHTS, config.weight_bus_bytes),
        ("array: use in %", ARRAY, 100),
    )
    for name, level, scale in ports:
        sums = np.add.reduceat(recording.sampled(level), edges[:-1])
        yield from _counter(name, begins, scale * sums / cycles, start)
    for track in list(Track)[2:]:
        changes = sorted(
            (cycle, change)
            for work in timeline.work
            if work.track == track
            for cycle, change in ((work.issued, 1), (work.begin, -1))
            if cycle >= 0
        )
        times = np.array([cycle for cycle, _ in changes], np.int64)
        depth = np.concatenate([[0], np.cumsum([change for _, change in changes])])
        values = depth[times.searchsorted(begins, side="right")]
        yield from _counter(f"waiting for {track.value}", begins, values, start)


def _counter(
    name: str, times: NDArray[np.int64], values: NDArray[Any], start: int
) -> Iterator[Event]:
    """Yield an event for each change of a counter's value."""
    before = None
    for time, value in zip(times.tolist(), np.round(values, 2).tolist(), strict=True):
        if value != before:
            yield {"ph": "C", "name": name, "pid": _UNITS, "ts": start + time, "args": {"": value}}
        before = value
