# SPDX-License-Identifier: Apache-2.0
"""Tests of the timeline of a recorded run, against the run's counters and its program."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from importlib.resources import files
from itertools import accumulate, pairwise

import numpy as np
import pytest

from systola.arch.assembler import assemble
from systola.arch.config import PRESETS
from systola.cli.gemm import random_gemm
from systola.cli.main import main
from systola.compiler.schedule import compile_chain
from systola.runtime.api import compile
from systola.runtime.image_builder import ImageBuilder
from systola.runtime.rtl import RtlBackend
from systola.timing.memory_speed import MemorySpeed
from systola.views import trace_event
from systola.views.timeline import Track, executed, make_timeline
from systola.views.trace_event import RecordedRun, trace, with_model

TINY = PRESETS["tiny"]
M, K, N = 30, 9, 6


@pytest.fixture(scope="module")
def recorded():
    a, layer = random_gemm(M, K, N, 3)
    image = compile_chain(TINY, [layer], M).bind(a)
    with RtlBackend(TINY, latency=7, records=True) as machine:
        return RecordedRun(image, machine.run(image))


def test_loops_and_registers_are_unrolled():
    program = assemble(
        "set_register register=1, value=5\n"
        "loop count=3\n"
        "read_weights tile=10+r1, count=1\n"
        "set_register register=1, value=2, first=1\n"
        "end_loop\n"
        "halt\n"
    )
    found = [(number, operands.get("tile")) for number, _, operands in executed(program)]
    body = [each for tile in (15, 17, 19) for each in ((2, tile), (3, None), (4, None))]
    assert found == [(0, None), (1, None), *body, (5, None)]


def test_close_pieces_are_drawn_together():
    pieces = [(0, 4, 0), (4, 8, 1), (8, 20, 2), (20, 30, 3), (30, 31, 4)]
    together = trace_event.together
    assert [[i for *_, i in group] for group in together(pieces, 0)] == [[0], [1], [2], [3], [4]]
    assert [[i for *_, i in group] for group in together(pieces, 11)] == [[0, 1], [2], [3, 4]]


def test_only_the_rtl_has_a_timeline(tmp_path, capsys):
    path = tmp_path / "t.json"
    command = ["gemm", "2", "2", "2", "--backend", "iss", "--timeline", str(path)]
    assert main(command) == 2
    assert "--timeline goes with --backend rtl" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.thorough
def test_recording_changes_no_cycle(recorded):
    with RtlBackend(TINY, latency=7) as machine:
        plain = machine.run(recorded.image)
    assert plain.recording is None
    assert plain.counters == recorded.result.counters
    assert np.array_equal(plain.host, recorded.result.host)


@pytest.mark.thorough
def test_levels_are_those_of_the_counters_and_the_program(recorded):
    recording = recorded.result.recording
    active = recording.sampled("array active")
    assert active.sum() == recorded.result.counters["array_active"]
    beats = M * -(-N // TINY.cols) * TINY.output_pitch // TINY.host_bus_bytes
    assert recording.sampled("host out").sum() == beats
    tiles = -(-K // TINY.rows) * -(-N // TINY.cols)
    assert recording.sampled("weights").sum() == tiles * TINY.tile_bytes // TINY.weight_bus_bytes
    assert len(active) * recording.interval <= recorded.result.cycles


@pytest.mark.thorough
def test_the_work_of_each_unit(recorded):
    timeline = make_timeline(TINY, recorded.image, recorded.result.recording)
    program = [(n, entry.mnemonic) for n, entry, _ in executed(recorded.image.program)]
    # The timeline has all instructions but Halt, which is the last.
    assert [(work.number, work.entry.mnemonic) for work in timeline.work] == program[:-1]
    by_track = {work.track: work for work in timeline.work}
    for work in timeline.work:
        if work.track:
            assert work.offered <= work.issued < work.begin < work.end <= recorded.result.cycles
    # A product takes a cycle for each tile and vector, and ends when all its weights have come.
    array, activation, out = (
        by_track[track] for track in (Track.ARRAY, Track.ACTIVATION, Track.HOST_WRITE)
    )
    assert array.end - array.begin >= recorded.result.counters["array_active"]
    recording = recorded.result.recording
    assert recording.interval == 1
    assert by_track[Track.WEIGHT_FETCH].end == np.flatnonzero(recording.sampled("weights"))[-1] + 1
    # Activate waits only for the array's sums and for Load_Parameters.
    sources = {timeline.work[wait.source].track for wait in activation.waits}
    assert Track.ARRAY in sources <= {Track.ARRAY, Track.HOST_READ}
    assert [timeline.work[wait.source] for wait in out.waits] == [activation]
    assert array.awaited_weights == recorded.result.counters["weight_stall"]


@pytest.mark.thorough
def test_the_file(recorded):
    content = json.loads(trace(TINY, [recorded, recorded], "product"))
    events = content["traceEvents"]
    cycles = recorded.result.cycles
    assert content["otherData"]["cycles"] == 2 * cycles
    slices = [event for event in events if event["ph"] == "X"]
    for thread in {(event["pid"], event["tid"]) for event in slices}:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in slices
            if (event["pid"], event["tid"]) == thread
        )
        assert all(end <= begin for (_, end), (begin, _) in pairwise(own))
        assert own[0][0] >= 0
        assert own[-1][1] <= 2 * cycles
    texts = {event["args"]["text"] for event in slices if "text" in event.get("args", {})}
    assert any(re.match("matrix_multiply .*buffer=", text) for text in texts), texts
    # Both ends of each flow (an arrow in the trace) lie in a slice.
    flows = [event for event in events if event["ph"] in "sf"]
    assert len(flows) >= 4
    for flow in flows:
        assert any(
            each["tid"] == flow["tid"] and each["ts"] <= flow["ts"] < each["ts"] + each["dur"]
            for each in slices
            if each["pid"] == flow["pid"]
        )
    # A counter keeps its value until the next value, so its area is the number of bytes moved.
    points = [e for e in events if e["ph"] == "C" and e["name"] == "weights: bytes a cycle"]
    times = [*(event["ts"] for event in points), 2 * cycles]
    area = sum(
        event["args"][""] * (after - event["ts"])
        for event, after in zip(points, times[1:], strict=True)
    )
    assert area == 2 * -(-K // TINY.rows) * -(-N // TINY.cols) * TINY.tile_bytes


@pytest.mark.thorough
def test_the_model_beside_it(recorded, monkeypatch):
    """Check that RTL and timing model show the same instructions in the same units.

    The ends of an instruction differ by less than 7 % of the run.
    """
    runs = with_model(TINY, [recorded, recorded], MemorySpeed(7))

    def ends(events, group):
        return {
            (event["tid"] // 64, event["args"]["instruction"]): event["ts"] + event["dur"]
            for event in events
            if event["ph"] == "X" and event["pid"] == group and event["tid"] >= 128
        }

    events = json.loads(trace(TINY, runs, "product"))["traceEvents"]
    measured, expected = ends(events, 1), ends(events, 3)
    # The model shows weights at the instruction that consumes them.
    numbers = dict(expected.keys())
    fetch = list(Track).index(Track.WEIGHT_FETCH)
    assert numbers[fetch] == numbers[list(Track).index(Track.ARRAY)]
    del expected[fetch, numbers[fetch]]
    assert expected.keys() == {key for key in measured if key[0] != fetch}
    cycles = recorded.result.cycles
    for key, end in expected.items():
        assert abs(end - measured[key]) < 0.07 * cycles
        assert end > cycles  # the second run comes after the first on the time axis
    # The limit is large enough for the model's view of one run, but not of two runs.
    monkeypatch.setattr(trace_event, "DETAILED", len(measured) + 4)
    one, two = (with_model(TINY, n * [recorded], MemorySpeed(7))[0].model for n in (1, 2))
    assert one and not two


@pytest.mark.thorough
def test_a_fetch_of_weights_ends_with_its_last_tile():
    """Check that a Read_Weights ends with its last tile, even if others are in flight.

    In this test a weight tile has 4 beats.
    """
    counts = (1, 12, 6)
    text = "".join(
        f"read_weights tile={number}, count={each}\n" for number, each in enumerate(counts)
    )
    text += "matrix_multiply buffer=0, accumulator=0, rows=30, k_tiles=19, n_tiles=1\nhalt\n"
    image = ImageBuilder(TINY).build(text)
    image = replace(image, weights=np.zeros(14 * TINY.tile_bytes, np.uint8))
    with RtlBackend(TINY, latency=7, records=True) as machine:
        result = machine.run(image)
    timeline = make_timeline(TINY, image, result.recording)
    fetches = [work for work in timeline.work if work.track == Track.WEIGHT_FETCH]
    assert result.recording.interval == 1
    beats = np.flatnonzero(result.recording.sampled("weights"))
    assert len(beats) == 4 * sum(counts)
    last = [4 * tiles - 1 for tiles in accumulate(counts)]
    assert [work.end for work in fetches] == [beats[each] + 1 for each in last]
    assert all(work.begin < work.end for work in fetches)


@pytest.mark.thorough
@pytest.mark.parametrize("detailed", [50, 1])
def test_many_instructions_stay_few_slices(monkeypatch, detailed):
    text = (
        "loop count=300\n"
        "read_host_memory host=0, buffer=0, rows=2, stride=64, blocks=1, tail=4\n"
        "end_loop\n"
        "halt\n"
    )
    image = ImageBuilder(TINY).build(text)
    with RtlBackend(TINY, records=True) as machine:
        run = RecordedRun(image, machine.run(image))

    def slices():
        events = json.loads(trace(TINY, [run], "loop"))["traceEvents"]
        return [e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] >= 128]

    whole = slices()
    assert len(whole) == 300
    assert {each["args"]["instruction"] for each in whole} == {2}
    monkeypatch.setattr(trace_event, "DETAILED", detailed)
    short = slices()
    rows = len({each["tid"] for each in whole})
    assert len(short) <= max(detailed, 2 * rows)
    assert max(e["ts"] + e["dur"] for e in short) == max(e["ts"] + e["dur"] for e in whole)


@pytest.mark.thorough
def test_layers_of_a_network(tmp_path):
    folder = files("systola.models")
    model = compile((folder / "mlp_tutorial_pc_softmax.tflite").read_bytes(), preset=TINY, batch=2)
    with np.load(io.BytesIO((folder / "digits_test.npz").read_bytes())) as archive:
        x = archive["x"][:2]
    with RtlBackend(TINY, records=True) as machine:
        run = model.run(x, backend=machine)
    events = json.loads(run.timeline())["traceEvents"]
    layers = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    measured = [event for event in layers if event["tid"] == 0]
    (program, result), *_ = run.recorded
    assert [event["ts"] + event["dur"] for event in measured] == [at for at, _ in result.tags]
    assert measured[0]["name"] == "0 FULLY_CONNECTED"
    assert len(measured) == len(program.layers)
    estimated = [event for event in layers if event["tid"] == 1]
    assert [event["ts"] for event in estimated] == [event["ts"] for event in measured]
    with pytest.raises(ValueError, match="a machine that records"):
        model.run(x, backend="iss").timeline()
