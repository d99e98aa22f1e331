# SPDX-License-Identifier: Apache-2.0
"""Tests of pods on a cluster of worker processes.

If a worker is lost, another process replaces it, and results stay the same.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import LocalCluster

from systola.runtime import Strategy, compile
from systola.runtime.backend import UnavailableError
from systola.runtime.engine import ClusterError, run_on_cluster
from systola.verif.runtime.cluster_jobs import ends, fails, squared

PATH = Path(str(files("systola.models"))) / "mlp_odd_relu6_tanh_sigmoid.tflite"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster


def pids(cluster: Any) -> set[int]:
    return {worker.process.pid for worker in cluster.workers.values() if worker.process}


def until(what: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_worker_is_killed(cluster: Any) -> None:
    """Check a run in which a worker process is killed: all results are right and in order.

    Afterwards the cluster has two workers again.
    """
    x = np.random.default_rng(2).integers(-128, 128, (90, 1, 61), dtype=np.int8)
    expected = compile(PATH, preset="tiny").run(x, backend="iss").y
    with Strategy(3, "tiny", backend="iss", scheduler=cluster.scheduler_address).scope():
        model = compile(PATH, batch=2)
    before = pids(cluster)
    victim = min(before)
    done: list[int] = []

    def progress(count: int) -> None:
        if not done:
            os.kill(victim, signal.SIGKILL)
        done.append(count)

    run = model.run(x, progress=progress)
    assert np.array_equal(run.y, expected)
    assert done == list(range(2, 91, 2))
    assert [core.samples for core in run.cores] == [30, 30, 30]
    assert run.pieces[0].samples == 90
    until(lambda: len(pids(cluster)) == 2 and victim not in pids(cluster))
    assert np.array_equal(model.predict(x[:6]), expected[:6])


def test_jobs_wait_their_turn(cluster: Any) -> None:
    """Check that at most eight of 30 jobs are at a cluster's scheduler at one time.

    The scheduler gets another job when a job is done.
    """
    given: list[int] = []

    class Jobs(list[int]):
        def __iter__(self) -> Iterator[int]:
            for number in range(30):
                given.append(number)
                yield number

    most = 0
    found: list[int] = []
    for report in run_on_cluster(Jobs(), cluster.scheduler_address, squared):
        found.append(report)
        most = max(most, len(given) - len(found))
    assert sorted(found) == [number * number for number in range(30)]
    assert most <= 8


def test_what_goes_wrong(cluster: Any) -> None:
    with pytest.raises(KeyError, match="7"):
        list(run_on_cluster([7], cluster.scheduler_address, fails))
    with pytest.raises(ClusterError, match="a job has lost one worker after the other"):
        list(run_on_cluster([1], cluster.scheduler_address, ends))
    until(lambda: len(pids(cluster)) == 2)


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def scoped(address: str) -> Any:
        with Strategy(2, "tiny", backend="iss", scheduler=address).scope():
            return compile(PATH)

    x = np.zeros((1, 1, 61), np.int8)
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        with pytest.raises(UnavailableError, match=r"no cluster answers at tcp://localhost:1$"):
            scoped("tcp://localhost:1").predict(x)
        with pytest.raises(UnavailableError, match="no cluster answers at nonsense://"):
            scoped("nonsense://").predict(x)
    monkeypatch.setattr("systola.runtime.pod.strategy.has_dask", lambda: False)
    with pytest.raises(UnavailableError, match="a cluster needs Dask: pip install"):
        scoped("tcp://localhost:1").predict(x)
