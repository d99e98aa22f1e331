# SPDX-License-Identifier: Apache-2.0
"""Tests of the report on a network's layers, as rows, as a table and as a roofline."""

import re
from math import inf

import pytest

from systola.arch.config import preset
from systola.compiler.host_stage import HostStage
from systola.compiler.lower.batching import largest_batch
from systola.compiler.network import compile_network
from systola.runtime.api import compile
from systola.runtime.backend import Result
from systola.runtime.measurements import Measurements
from systola.runtime.report import HOST, MACHINE, OVERHEAD, LayerRow, Report, make_report
from systola.runtime.report_table import (
    WIDTH,
    compact,
    energy_lines,
    joules,
    percent,
    report_table,
    short_name,
)
from systola.runtime.roofline import roofline
from systola.timing.activity import Activity, activity
from systola.timing.memory_speed import MemorySpeed
from systola.verif.compiler.stored_networks import stored_model
from systola.verif.compiler.test_onnx_refusals import convolution

CONFIG = preset("base")
SAMPLES = 4


def compiled(name="cnn_residual_dw_pool", samples=SAMPLES):
    return compile_network(CONFIG, stored_model(name), samples)


def result(cycles, tags, missing_tags=0):
    return Result(
        host=None,
        fault=None,
        interrupts=(),
        cycles=cycles,
        counters={},
        tags=tuple(tags),
        missing_tags=missing_tags,
        simulated_cycles_per_second=None,
    )


def device_stage(network):
    (number,) = [i for i, s in enumerate(network.stages) if not isinstance(s, HostStage)]
    return number, network.stages[number].program


@pytest.mark.parametrize("name", ["cnn_residual_dw_pool", "lstm_digits_rows_k2"])
def test_rows_sum_to_the_total(name):
    report = make_report(CONFIG, compiled(name), memory=MemorySpeed(30))
    assert report.measured_cycles is None
    estimated = [row.estimated_cycles for row in report.rows if row.place != HOST]
    assert sum(estimated) == pytest.approx(report.estimated_cycles)
    assert sum(row.share for row in report.rows if row.share is not None) == pytest.approx(1)
    assert sum(row.work for row in report.rows) == pytest.approx(1)
    assert report.macs == stored_model(name).macs
    assert report.utilization == pytest.approx(
        report.macs / (CONFIG.peak_macs * report.estimated_cycles)
    )


def test_order_and_places():
    network = compiled()
    report = make_report(CONFIG, network)
    _, program = device_stage(network)
    machine = [row for row in report.rows if row.place == MACHINE]
    assert [row.operator for row in machine] == [layer.operator for layer in program.layers]
    assert [row.shape for row in machine] == [layer.shape for layer in program.layers]
    assert [row.place for row in report.rows].count(OVERHEAD) == 1
    (host,) = [row for row in report.rows if row.place == HOST]
    assert "SOFTMAX" in host.operator and host.elements == 10
    assert 0 < host.work < 0.001
    assert host.estimated_cycles is host.measured_cycles is host.share is None


def test_estimate_is_one_of_an_inference():
    """Check that estimates for an inference agree for one batch and for ten batches."""
    one, many = (
        make_report(CONFIG, compiled(samples=n), memory=MemorySpeed(30))
        for n in (largest_batch(CONFIG), 10 * largest_batch(CONFIG))
    )
    assert one.macs == many.macs
    assert one.estimated_cycles == pytest.approx(many.estimated_cycles, rel=0.05)
    for a, b in zip(one.rows, many.rows, strict=True):
        assert a.weights == b.weights
        assert a.host_out == b.host_out


def test_measured():
    """Check the measured cycles of layers; all but the last layer run once for each of 4 samples.

    The last layer and the outputs run once for all samples. The first pass of a layer includes
    set-up, so only the layer's other three passes count. The remaining cycles of a run are in a row
    for overhead.
    """
    network = compiled("cnn_s2_valid5_same3_1x1")
    number, program = device_stage(network)
    count = len(program.layers)
    alone = count - 2
    times, clock = [], 1000
    for tag in (*SAMPLES * [*range(alone)], alone, alone + 1):
        clock += 10 * (tag + 1)
        times.append((clock, tag))
    times[0] = (1000 + 10, 0)
    measured = Measurements()
    measured.add(number, result(clock + 7, times))
    report = make_report(CONFIG, network, measured=measured)
    machine = [row for row in report.rows if row.place == MACHINE]
    assert [row.measured_cycles for row in machine] == [
        *(10 * (tag + 1) for tag in range(alone)),
        *(10 * (tag + 1) / SAMPLES for tag in range(alone, count)),
    ]
    (rest,) = [row for row in report.rows if row.place == OVERHEAD]
    assert rest.measured_cycles == pytest.approx((1000 + 7) / SAMPLES)
    assert report.measured_cycles == (clock + 7) / SAMPLES
    assert sum(row.share for row in report.rows if row.share is not None) == pytest.approx(1)
    for row in machine:
        if row.macs:
            done = row.macs / (CONFIG.peak_macs * row.measured_cycles)
            assert row.utilization == min(1, done)


def test_single_pass_counts_from_the_start():
    measured = Measurements()
    measured.add(0, result(50, [(20, 0), (35, 1)]))
    assert measured.programs[0].layer(0) == 20
    assert measured.programs[0].layer(1) == 15
    assert measured.programs[0].layer(2) is None


def test_passes_of_a_loop():
    """Check the measured cycles of two layers in a loop of 100 passes.

    The first layer's first pass is not measured, since it has no tag before it. A run with missing
    tags is not measured.
    """
    tags = [(10 * i + 1000, i % 2) for i in range(200)]
    measured = Measurements()
    measured.add(0, result(5000, tags))
    measured.add(0, result(5000, tags[:7], missing_tags=1))
    assert measured.programs[0].layers == {0: [10] * 99, 1: [10] * 100}
    assert (measured.programs[0].runs, measured.programs[0].cycles) == (2, 10000)


def test_without_clock():
    measured = Measurements()
    measured.add(0, result(None, [(None, 0)]))
    assert measured.programs == {}


def test_inferences_per_second():
    report = make_report(CONFIG, compiled(), mhz=200)
    assert report.inferences_per_second == pytest.approx(200e6 / report.cycles)
    assert "at 200 MHz" in report_table(report)


def test_table():
    report = make_report(CONFIG, compiled(), memory=MemorySpeed(30))
    lines = report_table(report).split("\n")
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 1 + len(report.rows) + 2 + 1 + 2
    assert lines[-3].startswith("on the host") and "SOFTMAX (10 elements, <0.1 %)" in lines[-3]
    first, parts = lines[-2:]
    assert first.startswith("energy of an inference") and first.count("TOPS/W") == 2
    assert sum(map(float, re.findall(r"([\d.]+) %", parts))) == pytest.approx(100, abs=0.3)


def test_energy_of_an_inference():
    """Check that an inference has a batch's energy divided by the number of samples.

    Operators on the host add no energy.
    """
    report = make_report(CONFIG, compiled())
    _, program = device_stage(compiled())
    done = activity(CONFIG, program.image.program)
    assert report.activity.scaled(SAMPLES) == done
    for each in report.energy:
        assert each.macs == report.macs
        assert each.joules == pytest.approx(sum(each.units.values()))
    host_only = Report(
        rows=(),
        macs=0,
        estimated_cycles=0.0,
        measured_cycles=None,
        utilization=0.0,
        mhz=None,
        inferences_per_second=None,
        activity=Activity(),
        energy=(),
    )
    assert energy_lines("an inference", host_only.energy) == []


@pytest.mark.parametrize(
    ("energy", "text"),
    [
        (2.5, "2.50 J"),
        (0.0012, "1.20 mJ"),
        (45.6e-6, "45.6 uJ"),
        (7e-9, "7 nJ"),
        (3e-13, "0.30 pJ"),
    ],
)
def test_joules(energy, text):
    assert joules(energy) == text


def test_numbers():
    assert [compact(n) for n in (0, 16, 999, 4720, 12_345, 123_456, 2_359_296)] == [
        "0",
        "16.0",
        "999",
        "4.72k",
        "12.3k",
        "123k",
        "2.36M",
    ]
    assert [percent(n) for n in (None, 0, 0.0004, 0.1234, 1)] == [
        "-",
        "0.0 %",
        "<0.1 %",
        "12.3 %",
        "100 %",
    ]
    assert short_name("node 3 (Conv 'first')") == "3 Conv"
    assert short_name("transpose for node 3 (Conv)") == "transpose for 3 Conv"
    assert short_name("operator 3 (CONV_2D)") == "3 CONV_2D"
    assert short_name("outputs (y)") == "outputs (y)"


def layer(number, macs, cycles, **moved):
    return LayerRow(
        operator=f"operator {number} (CONV_2D)",
        place=MACHINE,
        shape=(1, 4),
        macs=macs,
        estimated_cycles=cycles,
        **moved,
    )


def test_roofline():
    """Check the dots of layers in a roofline.

    A layer that is as fast as the array or a port allows lies on the roof. Other layers lie below.
    """
    rows = (
        layer(0, 25_600, 100, weights=1600),  # at the ridge: 256 MACs a cycle, 16 MACs a byte
        layer(1, 1_000, 625, weights=10_000),  # on the slope: 1.6 MACs a cycle, 0.1 MACs a byte
        layer(2, 1_000, 625, host_in=100, host_out=10_000, weights=9_999),
        layer(3, 12_800, 100, weights=800),
    )
    report = Report(
        rows=rows,
        macs=sum(row.macs for row in rows),
        estimated_cycles=1450,
        measured_cycles=None,
        utilization=0,
        mhz=None,
        inferences_per_second=None,
        activity=Activity(),
        energy=(),
    )
    roof = roofline(CONFIG, report)
    assert (roof.peak, roof.bandwidth) == (256, {"host": 16, "weights": 16})
    ridge, slope, host, below, total = roof.dots
    assert (ridge.x, ridge.y, ridge.port) == (16, 256, "weights")
    assert (slope.x, slope.y, slope.port) == (pytest.approx(0.1), pytest.approx(1.6), "weights")
    assert (host.x, host.y, host.port) == (pytest.approx(0.1), pytest.approx(1.6), "host")
    assert (below.x, below.y) == (16, 128)
    assert total.is_total
    assert total.y == pytest.approx(report.macs / 1450)
    assert not any(dot.is_open for dot in roof.dots)


def test_roofline_of_layers_that_overlap():
    """Check that no dot is above the roof, although a layer starts before the previous layer's end.

    A layer with fewer cycles than its work needs gets an open dot on the roof. A layer that moves
    no bytes has infinitely many multiply-accumulates a byte.
    """
    rows = (
        layer(0, 25_600, 50, weights=1600),
        layer(1, 1_000, 5, weights=10_000),
        layer(2, 1_000, 100),
    )
    report = Report(
        rows=rows,
        macs=sum(row.macs for row in rows),
        estimated_cycles=1000,
        measured_cycles=None,
        utilization=0,
        mhz=None,
        inferences_per_second=None,
        activity=Activity(),
        energy=(),
    )
    first, second, third, _ = roofline(CONFIG, report).dots
    assert (first.x, first.y, first.is_open) == (16, 256, True)
    assert (second.x, second.y, second.is_open) == (0.1, pytest.approx(1.6), True)
    assert (third.x, third.y, third.is_open) == (inf, 10, False)


def test_roofline_of_a_network():
    report = make_report(CONFIG, compiled(), memory=MemorySpeed(30))
    dots = roofline(CONFIG, report).dots
    assert len(dots) == sum(1 for row in report.rows if row.macs) + 1


def test_rows_of_moves() -> None:
    """Check the name of a report row for a step that only reorders an operator's elements.

    The name is "transpose for", followed by the operator's name.
    """
    rows = compile(convolution(), preset="small", batch=1).estimate().rows
    names = [row.operator for row in rows if "(Conv" in row.operator]
    assert len(names) == len(set(names)) == 2
    assert names[0] == f"transpose for {names[1]}"
