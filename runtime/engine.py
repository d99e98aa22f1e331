# SPDX-License-Identifier: Apache-2.0
"""Where jobs run: threads or processes of this machine, or a Dask cluster.

Reports come as the jobs end, in any order. Jobs are pure: one whose worker is lost runs again
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from threading import Event
from typing import Any, TypeVar

Job = TypeVar("Job")
Report = TypeVar("Report")

NO_DASK = "a cluster needs Dask: pip install '.[cluster]'"
AHEAD = 2
"""Jobs that a cluster has for each of its threads: one that runs, one that comes next."""
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1 GB"}
"""Jobs carry their data: of a few megabytes Dask need not warn."""


class ClusterError(RuntimeError):
    """A cluster that does not answer or has lost too many workers, in one line."""


def has_dask() -> bool:
    """Whether what `run_on_cluster` needs is installed."""
    return find_spec("distributed") is not None


def run_here(jobs: Sequence[Job], processes: int, run: Callable[[Job], Report]) -> Iterator[Report]:
    """What `run` makes of the jobs, from so many processes."""
    if processes == 1:
        yield from map(run, jobs)
        return
    yield from _run(ProcessPoolExecutor(processes), jobs, run)


def run_in_threads(
    jobs: Sequence[Job], threads: int, run: Callable[[Job, Callable[[], bool]], Report]
) -> Iterator[Report]:
    """The same from threads of this process, for work that Python leaves to others.

    `run` also gets a function that tells whether nobody waits for its report any more.
    """
    stop = Event()
    yield from _run(ThreadPoolExecutor(threads), jobs, lambda job: run(job, stop.is_set), stop.set)


def _run(
    pool: Executor,
    jobs: Sequence[Job],
    run: Callable[[Job], Report],
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Report]:
    with pool:
        try:
            # Nothing keeps a report that has been taken: those of coverage are large.
            for future in as_completed([pool.submit(run, job) for job in jobs]):
                yield future.result()
        finally:
            stop()
            pool.shutdown(cancel_futures=True)


def run_on_cluster(
    jobs: Sequence[Job], scheduler: str, run: Callable[[Job], Report]
) -> Iterator[Report]:
    """The same from the workers of the Dask scheduler at that address, which have this project.

    A few jobs a thread are under way, so that neither scheduler nor workers hold the data of all.
    Raises ClusterError.
    """
    # Optional, and without type information.
    dask: Any = import_module("dask")
    cluster: Any = import_module("dask.distributed")
    try:
        client: Any = cluster.Client(scheduler)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no cluster answers at {scheduler}") from error
    left = iter(jobs)

    def submit(count: int) -> list[Any]:
        return [client.submit(run, job, pure=False) for job in islice(left, count)]

    with client, dask.config.set(_LARGE):
        try:
            first = submit(AHEAD * max(1, _threads(client)))
            running = cluster.as_completed(first, with_results=True)
            for _, report in running:
                yield report
                # Workers come and go.
                for future in submit(max(1, AHEAD * _threads(client) - running.count())):
                    running.add(future)
        except cluster.KilledWorker as error:
            raise ClusterError("a job has lost one worker after the other") from error
        except CancelledError as error:
            raise ClusterError(f"the cluster at {scheduler} has gone") from error


def _threads(client: Any) -> int:
    return sum(client.nthreads().values())
