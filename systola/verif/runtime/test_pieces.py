# SPDX-License-Identifier: Apache-2.0
"""Tests of models cut into pieces, each of which runs on a core of its own (a pipeline).

The results must equal the whole model's bytes, and the pieces' cycles must be balanced."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from systola.compiler.operations import Concatenation, Value
from systola.compiler.read_model import read_model
from systola.runtime import Strategy, compile
from systola.runtime.pod.bands import Band, Banded, Layer, in_bands
from systola.runtime.pod.model import PodModel
from systola.runtime.pod.pieces import balanced, even_cuts, moved
from systola.runtime.pod.result import Books
from systola.runtime.run_result import RunResult, Totals
from systola.timing.memory_speed import MemorySpeed
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

MODELS = Path(str(files("systola.models")))
NETWORKS = (
    "mlp_odd_relu6_tanh_sigmoid.tflite",
    "mlp_floatio.tflite",
    "cnn_residual_dw_pool.tflite",
    "conv1d_movements.tflite",
    thorough("ds_cnn_kws.tflite"),
    "lenet5.tflite",
    thorough("lstm_digits_rows_unrolled_k3.tflite"),
    thorough("std_resnet8_cifar.tflite"),
    thorough("mobilenet_v2_035_96.tflite"),
    "onnx_cnn_res_dw_qdq_s8s8_pc.onnx",
)


def samples(name: str, count: int) -> np.ndarray:
    with np.load(MODELS / Path(name).with_suffix(".npz")) as archive:
        return archive["x"][:count]


def in_pieces(name: str, cores: int, batch: int | None = None, **how: object) -> PodModel:
    with Strategy(cores, split=True, **how).scope():
        return compile(MODELS / name, batch=batch)


@pytest.mark.parametrize("cores", [2, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_bytes(name: str, cores: int) -> None:
    x = samples(name, 3)
    run = in_pieces(name, cores, 2, preset="small", backend="iss").run(x)
    whole = compile(MODELS / name, preset="small", batch=2).run(x, backend="iss")
    assert 2 <= len(run.pieces) <= cores
    assert len(run.outputs) == len(whole.outputs)
    for ours, theirs in zip(run.outputs, whole.outputs, strict=True):
        assert np.array_equal(ours, theirs)
    assert sum(each.macs for each in run.pieces) == run.macs
    assert [core.samples for core in run.cores] == [3] * len(run.pieces) + [0] * (
        cores - len(run.pieces)
    )


def test_several_values_between_pieces() -> None:
    """Check a network with two inputs and two outputs that is cut into pieces.

    A piece hands on values that only a later piece uses.
    """
    writer = ModelWriter()
    shape = (1, 1, 1, 4)
    a, b, c, d, e = (writer.tensor(shape, "int8", 0.1) for _ in range(5))
    writer.operator("SUB", [a, b], [c])
    writer.operator("ADD", [c, c], [d])
    writer.operator("SUB", [d, b], [e])
    content = writer.content([a, b], [e, c])
    x = np.random.default_rng(3).integers(-40, 40, (2, 5, 1, 1, 4), dtype=np.int8)
    whole = compile(content, preset="small", batch=2).run(*x, backend="iss")
    for cores in (2, 3, 9):
        with Strategy(cores, "small", split=True, backend="iss").scope():
            model = compile(content)
        first, second = model.predict(*x)
        assert np.array_equal(first, whole.outputs[0])
        assert np.array_equal(second, whole.outputs[1])
        assert 2 <= len(model.run(*x).pieces) <= min(cores, 3)


def test_even_cuts() -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(60):
        size, count = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        costs = [float(each) for each in rng.integers(0, 100, size)]

        def slowest(cuts: tuple[int, ...], costs: list[float] = costs) -> float:
            return max(sum(costs[a:b]) for a, b in pairwise((0, *cuts, len(costs))))

        best = min(
            slowest(cuts)
            for pieces in range(min(size, count))
            for cuts in combinations(range(1, size), pieces)
        )
        found = even_cuts(costs, count)
        assert len(found) < count
        assert slowest(found) == pytest.approx(best, abs=1)


def test_cuts_move_to_where_it_is_faster() -> None:
    """Check that a cut between pieces moves if the transfer of values at the cut costs too much."""
    costs = [10, 10, 10, 10, 10, 10]
    extra = {3: 9.0}
    crossing = Counter(extra)

    def cycles(begin: int, end: int) -> float:
        return sum(costs[begin:end]) + crossing[begin] + crossing[end]

    # At this cut, each piece takes 39 cycles. At any other cut, a piece takes 40 cycles or more.
    assert moved([0, 3, 6], cycles) == [0, 3, 6]
    extra[3] = 11.0
    crossing = Counter(extra)
    assert moved([0, 3, 6], cycles) in ([0, 2, 6], [0, 4, 6])
    assert moved([0, 1, 6], lambda begin, end: float("inf") if begin == 1 else 1) != [0, 1, 6]


def _run(cycles: int, samples: int = 1) -> RunResult:
    model = compile(MODELS / NETWORKS[0], preset="tiny", batch=1)
    total = Totals(model.compiled, samples=samples, cycles=cycles, timed=True)
    total.counters.update(fetch=cycles)
    return RunResult(outputs=(), macs=0, config=model.config, memory=None, totals=(total,))


def test_time_of_a_pipeline() -> None:
    """Check the calculated cycles of a pipeline of pieces.

    If a piece takes t cycles for a batch, a pipeline of k equal pieces takes (m + k - 1) * t cycles
    for m batches. If pieces differ, the slowest piece determines the cycles.
    """
    equal, other = _run(100), [_run(cycles) for cycles in (10, 30, 20)]
    books = Books(4, MemorySpeed())
    for _ in range(7):
        books.add(0, [equal] * 4)
    assert [core.end for core in books.cores()] == [700, 800, 900, 1000]
    assert [core.cycles for core in books.cores()] == [700] * 4
    books = Books(4, MemorySpeed())
    for _ in range(5):
        books.add(1, other)
    assert [core.end for core in books.cores()] == [0, 50, 10 + 5 * 30, 10 + 5 * 30 + 20]
    assert [core.cycles for core in books.cores()] == [None, 50, 150, 100]
    assert books.batches == 5
    assert [piece.cycles for piece in books.pieces()] == [50, 150, 100]


def test_time_of_replicas() -> None:
    books = Books(3, MemorySpeed())
    for core, cycles in ((0, 10), (1, 30), (0, 20), (1, 5)):
        books.add(core, [_run(cycles, samples=2)])
    assert [core.end for core in books.cores()] == [30, 35, 0]
    assert [core.samples for core in books.cores()] == [4, 4, 0]


def test_rtl() -> None:
    """Check two pieces on the RTL: the second starts a batch when the first has ended it."""
    name = NETWORKS[0]
    x = samples(name, 8)
    run = in_pieces(name, 2, 2, preset="tiny").run(x)
    assert np.array_equal(run.y, compile(MODELS / name, preset="tiny", batch=2).run(x).y)
    first, second = run.cores
    assert first.end == first.cycles and second.end > second.cycles
    assert run.cycles == second.end < first.cycles + second.cycles
    assert run.batches == 4
    bound = 4 / (4 + 2 - 1)
    assert run.efficiency < bound * 1.1
    assert [len(report.rows) > 1 for report in run.reports()] == [True, True]


@pytest.mark.thorough
def test_batches_of_a_pipeline() -> None:
    """Check that a pipeline by default runs eight samples of a network as eight batches.

    This network takes as many cycles for a sample in small batches as in large batches.
    """
    with Strategy(4, "base", split=True, backend="iss").scope():
        model = compile(MODELS / "ds_cnn_kws.tflite")
    run = model.run(samples("ds_cnn_kws.tflite", 8))
    assert run.batches == 8


@pytest.mark.parametrize("name", ["cnn_residual_dw_pool.tflite", "lenet5.tflite"])
def test_bands_are_the_rows_of_their_layer(name: str) -> None:
    """Check cuts at each row band of a network's layers.

    The two bands of a cut layer together have all its rows, each once. Other layers do not change.
    """
    network, _ = read_model((MODELS / name).read_bytes())
    items = network.translation.items
    elements = [each for item in items for each, _ in in_bands(item, 10.0, 3.0)]
    banded = Banded(elements)
    bands = [each for each in elements if isinstance(each, Band)]
    assert len(bands) > 8
    assert banded.items(0, len(elements), ()) == items
    for cut in range(1, len(elements)):
        parts = banded.items(0, cut, (cut,)), banded.items(cut, len(elements), (cut,))
        made = [item.result for part in parts for item in part]
        assert len(set(made)) == len(made)
        assert {item.result for item in items} <= set(made)
        element = elements[cut]
        inside = isinstance(element, Band) and element.start > 0
        joined = [each for part in parts for each in part if isinstance(each, Concatenation)]
        joined = [each for each in joined if each not in items]
        assert len(joined) == inside
        for each in joined:
            above, below = each.parts
            assert above.shape[1] + below.shape[1] == each.result.shape[1]
            assert above in [item.result for item in parts[0]]
            assert below in [item.result for item in parts[1]]


def test_pieces_have_what_they_take() -> None:
    """Check three cuts at any places: each piece gets all its inputs from the pieces before it.

    For a part of a cut layer, a piece gets only the input rows that this part needs.
    """
    network, _ = read_model((MODELS / "cnn_residual_dw_pool.tflite").read_bytes())
    items = network.translation.items
    banded = Banded(elements := [each for item in items for each, _ in in_bands(item, 10.0, 3.0)])
    inputs = set(network.translation.inputs)
    for cuts in combinations(range(1, len(elements)), 3):
        there = set(inputs)
        for begin, end in pairwise((0, *cuts, len(elements))):
            part, later = (banded.items(*each, cuts) for each in ((begin, end), (end, None)))
            made = set[Value]()
            for item in part:
                assert made.union(there).issuperset(item.sources)
                made.add(item.result)
                if isinstance(item, Layer) and item.source not in inputs:
                    assert item.window.first[0] <= 0
            there |= made.intersection(source for item in later for source in item.sources)


def test_balanced() -> None:
    """Check that pieces are balanced although the estimated costs of operators are wrong.

    The cycles of compiled pieces correct the estimates.
    """
    true = [3.0] * 10 + [1.0] * 30

    def cycles(begin: int, end: int) -> float:
        return sum(true[begin:end]) + 2

    ends = balanced([1.0] * 40, 4, cycles)
    assert ends[0] == 0 and ends[-1] == 40
    assert max(cycles(*each) for each in pairwise(ends)) <= 2 + 1.2 * sum(true) / 4
    assert balanced([1.0], 4, lambda begin, end: 1.0) == [0, 1]
