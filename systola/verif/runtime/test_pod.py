# SPDX-License-Identifier: Apache-2.0
"""Tests of pods: the samples of a run are divided among the cores, and all cycles are counted.

The results must be in order, and equal one core's results."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.arch.config import ConfigError, preset
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.cli.gemm import random_gemm
from systola.compiler.errors import CompileError, ModelError
from systola.golden.outcome import FaultReport
from systola.runtime import Strategy, compile, load
from systola.runtime.backend import BackendError, Result
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.iss import GoldenBackend
from systola.runtime.pod import work
from systola.runtime.pod.gemm import even_shares, share_gemm
from systola.runtime.pod.model import PodModel
from systola.runtime.pod.work import run_work
from systola.runtime.reference import layer_reference
from systola.timing.memory_speed import MemorySpeed
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

MODELS = Path(str(files("systola.models")))
PATH = MODELS / "mlp_odd_relu6_tanh_sigmoid.tflite"
SAMPLES = 19


@pytest.fixture(scope="module")
def one() -> CompiledModel:
    return compile(PATH, preset="tiny", batch=8)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (SAMPLES, 1, 61), dtype=np.int8)


@pytest.fixture(scope="module")
def y(one: CompiledModel, x: np.ndarray) -> np.ndarray:
    return one.run(x, backend="iss").y


def pod_model(strategy: Strategy, **how: object) -> PodModel:
    with strategy.scope():
        return compile(PATH, **how)


@pytest.mark.parametrize("batch", [None, 1, 3, 64])
@pytest.mark.parametrize("cores", [1, 3, 8, 40])
@pytest.mark.parametrize("count", [1, 6, 8, SAMPLES])
def test_any_number_of_samples(
    count: int, cores: int, batch: int | None, x: np.ndarray, y: np.ndarray
) -> None:
    model = pod_model(Strategy(cores, "tiny", backend="iss"), batch=batch)
    done: list[int] = []
    run = model.run(x[:count], progress=done.append)
    assert np.array_equal(run.y, y[:count])
    assert np.array_equal(model.predict(x[:count]), y[:count])
    assert (done[-1], done) == (count, sorted(set(done)))
    shares = [core.samples for core in run.cores]
    assert (len(shares), sum(shares)) == (cores, count)
    assert max(shares) - min(shares) <= 1 and shares == sorted(shares, reverse=True)
    assert (run.cycles, run.efficiency, run.utilization) == (None, None, None)


def test_no_samples(x: np.ndarray) -> None:
    run = pod_model(Strategy(2, "tiny", backend="iss")).run(x[:0])
    assert (run.y.shape, run.samples, run.cycles, run.reports()) == ((0, 1, 10), 0, None, ())


def test_shapes(x: np.ndarray, y: np.ndarray) -> None:
    model = pod_model(Strategy(2, "tiny", backend="iss"))
    assert np.array_equal(model.predict(x[3]), y[3])
    assert np.array_equal(model.predict(x[:, 0]), y[:, 0])
    assert np.array_equal(model.predict({model.inputs[0].name: x}), y)
    with pytest.raises(ModelError, match="does not fit the model"):
        model.predict(x[:, :, 1:])


def test_evaluate(one: CompiledModel, x: np.ndarray, y: np.ndarray) -> None:
    labels = y.reshape(SAMPLES, 10).argmax(axis=1)
    labels[:4] = (labels[:4] + 1) % 10
    model = pod_model(Strategy(3, "tiny", backend="iss"))
    assert model.evaluate(x, labels) == model.evaluate(x, labels.reshape(-1, 1)) == 15 / 19
    for wrong, says in (
        (labels[1:], "18 labels do not fit 19 samples"),
        (labels * 1.0, "labels are whole numbers, not float64"),
        (labels - 10, "labels are 0 to 9, not -"),
        (labels + 10, "labels are 0 to 9, not 1"),
    ):
        for each in (model, one):
            with pytest.raises(ModelError, match=says):
                each.evaluate(x, wrong)
    with pytest.raises(ModelError, match="0 labels do not fit 0 samples"):
        model.evaluate(x[:0], labels[:0])


def test_scope(one: CompiledModel, tmp_path: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Check that a model compiled or loaded in the scope of a Strategy runs on its pod.

    A model that is compiled outside any scope runs on one core.
    """
    outer, inner = Strategy(2, "tiny", backend="iss"), Strategy(3, "tiny", backend="iss")
    with outer.scope() as entered:
        assert entered is outer
        with inner.scope():
            three = compile(PATH)
        two = compile(PATH)
        with pytest.raises(ValueError, match="the pod is of 'tiny', not of 'small'"):
            compile(PATH, preset="small")
        with pytest.raises(CompileError, match="a batch has at least 1 sample"):
            compile(PATH, batch=-1)
    assert [len(each.run(x).cores) for each in (two, three)] == [2, 3]
    assert isinstance(compile(PATH), CompiledModel)
    one.save(tmp_path / "p")
    with outer.scope():
        loaded = load(tmp_path / "p")
    assert np.array_equal(loaded.predict(x), y)
    with Strategy(2, "small").scope():
        with pytest.raises(ModelError, match="compiled for 'tiny', the pod is of 'small'"):
            load(tmp_path / "p")
    with Strategy(2, "tiny", split=True).scope():
        with pytest.raises(ModelError, match="a compiled program stays in one piece"):
            load(tmp_path / "p")
    assert "on 2 cores" in repr(two)


def test_strategies() -> None:
    assert Strategy().num_replicas_in_sync == 8
    assert Strategy(4, split=True).num_replicas_in_sync == 1
    assert Strategy(4, preset("small")).config == preset("small")
    for cores in (0, -1, 1025, 2.0, True):
        with pytest.raises(ValueError, match="a pod has 1 to 1024 cores"):
            Strategy(cores)
    with pytest.raises(ValueError, match="unknown back end 'gpu'"):
        Strategy(2, backend="gpu")
    with pytest.raises(ConfigError, match="unknown preset 'big'"):
        Strategy(2, "big")


@pytest.mark.parametrize("memory", [(0, 0.0), thorough((9, 0.3))])
def test_rtl(memory: tuple[int, float], one: CompiledModel, x: np.ndarray, y: np.ndarray) -> None:
    """Check that a core of a pod takes as many cycles for its samples as a single machine.

    The run's cycles are the slowest core's cycles.
    """
    latency, stall = memory
    how = {"latency": latency, "stall": stall}
    run = pod_model(Strategy(3, "tiny", **how), batch=4).run(x)
    assert np.array_equal(run.y, y)
    alone = compile(PATH, preset="tiny", batch=4)
    begin = 0
    for number, core in enumerate(run.cores):
        share = x[begin : begin + core.samples]
        same = [
            alone.run(share[start : start + 4], **how, seed=number)
            for start in range(0, len(share), 4)
        ]
        assert core.cycles == core.end == sum(each.cycles for each in same)
        assert sum(core.counters.values()) == core.cycles
        assert core.counters["drain"] == sum(each.counters["drain"] for each in same)
        begin += core.samples
    assert run.cycles == max(core.cycles for core in run.cores)
    assert run.core_cycles == sum(core.cycles for core in run.cores)
    assert run.efficiency == pytest.approx(run.core_cycles / (3 * run.cycles))
    assert run.inferences_per_second(50) == pytest.approx(SAMPLES * 50e6 / run.cycles)
    (report,) = run.reports(50)
    assert report.measured_cycles and report.measured_cycles < run.core_cycles / 16
    assert run.pieces[0].samples == SAMPLES
    assert "3 cores" in repr(run)


def test_elsewhere(x: np.ndarray, y: np.ndarray) -> None:
    """Check that a pod's work can be pickled and run elsewhere with the same results and counts."""
    model = pod_model(Strategy(2, "tiny", backend="iss"), batch=4)
    here = model.run(x)

    class Elsewhere(Strategy):
        def run(self, works):
            for each in reversed(works):
                yield pickle.loads(pickle.dumps(run_work(pickle.loads(pickle.dumps(each)))))

    there = pod_model(Elsewhere(2, "tiny", backend="iss"), batch=4).run(x)
    assert np.array_equal(there.y, y)
    assert there.cores == here.cores
    assert there.instructions == here.instructions
    assert len(there.pieces[0].totals) == len(here.pieces[0].totals)


class Faulty(GoldenBackend):
    """A back end on which the second started program ends in a fault.

    The other programs call `progress` until it stops them.
    """

    begun = 0

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        Faulty.begun += 1
        if Faulty.begun == 2:
            result = super().run(image)
            return replace(result, fault=FaultReport(Fault.HOST_READ_ERROR, 3, 0))
        assert progress
        for _ in range(5_000):
            progress(1)
            time.sleep(0.001)
        raise AssertionError("nobody has told it to stop")


def test_a_core_that_fails(monkeypatch: pytest.MonkeyPatch, x: np.ndarray) -> None:
    """Check that the fault of a core is reported, and that the other cores are stopped."""
    monkeypatch.setattr(work, "make_backend", lambda name, config, **_: Faulty(config))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    model = pod_model(Strategy(8, "tiny"))
    Faulty.begun = 0
    started = time.monotonic()
    with pytest.raises(BackendError, match="instruction 3: HOST_READ_ERROR"):
        model.run(x)
    assert Faulty.begun <= 3
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("cores", [1, 2, 3, 5, 16])
def test_products(cores: int) -> None:
    """Check a matrix product divided among cores: exactly one core calculates each result."""
    config, seed = preset("tiny"), random_seed()
    rng = np.random.default_rng(seed)
    for _ in range(5):
        m, k, n = (int(each) for each in rng.integers(1, 30, 3))
        a, layer = random_gemm(m, k, n, seed)
        result, times = np.zeros((m, n), np.int8), np.zeros((m, n), int)
        shares = share_gemm(config, a, layer, cores, MemorySpeed(0, 0.0))
        assert 1 <= len(shares) <= cores
        for share in shares:
            ran = GoldenBackend(config).run(share.image)
            result[share.rows, share.columns] = share.program.result(ran.host)
            times[share.rows, share.columns] += 1
        assert (times == 1).all()
        assert np.array_equal(result, layer_reference(a, layer)), (m, k, n, cores, seed)


def test_few_rows_are_divided_by_columns() -> None:
    """Check that a matrix product with few rows is divided among cores by columns, not by rows.

    If it were divided by rows, each core would have to load all weights.
    """
    a, layer = random_gemm(8, 64, 64, 0)
    shares = share_gemm(preset("base"), a, layer, 4, MemorySpeed(0, 0.0))
    assert [share.columns for share in shares] == even_shares(64, 4)
    a, layer = random_gemm(256, 64, 16, 0)
    shares = share_gemm(preset("base"), a, layer, 4, MemorySpeed(0, 0.0))
    assert [share.rows for share in shares] == even_shares(256, 4)
