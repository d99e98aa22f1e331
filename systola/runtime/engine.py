# SPDX-License-Identifier: Apache-2.0
"""The places where jobs run: threads or processes of this machine, or a Dask cluster.

Reports come as the jobs end, in any order. Jobs are pure: a job runs again elsewhere if its worker
is lost.
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
"""Number of jobs for each thread of a cluster: one that runs, and one that comes next."""
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1 GB"}
"""A setting of Dask: jobs carry a few megabytes of data, for which no warning is needed."""


class ClusterError(RuntimeError):
    """An error of a cluster that does not answer or has lost too many workers, in one line."""


def has_dask() -> bool:
    """Return whether the packages that `run_on_cluster` needs are installed."""
    return find_spec("distributed") is not None


def run_here(jobs: Sequence[Job], processes: int, run: Callable[[Job], Report]) -> Iterator[Report]:
    """Yield the reports that `run` makes of the jobs, in `processes` processes."""
    if processes == 1:
        yield from map(run, jobs)
        return
    yield from _run(ProcessPoolExecutor(processes), jobs, run)


def run_in_threads(
    jobs: Sequence[Job], threads: int, run: Callable[[Job, Callable[[], bool]], Report]
) -> Iterator[Report]:
    """Yield the reports that `run` makes of the jobs, in threads of this process.

    Threads suit work outside Python. `run` also gets a function that returns whether its report is
    no longer needed.
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
            # No reference to a report is kept here after it is taken: reports of coverage are
            # large.
            for future in as_completed([pool.submit(run, job) for job in jobs]):
                yield future.result()
        finally:
            stop()
            pool.shutdown(cancel_futures=True)


def run_on_cluster(
    jobs: Sequence[Job], scheduler: str, run: Callable[[Job], Report]
) -> Iterator[Report]:
    """Yield the reports that `run` makes of the jobs, on workers of the Dask scheduler at an
    address.

    This project must be installed for the workers. Each thread has a few jobs under way, so that
    neither scheduler nor workers hold the data of all jobs. Raises ClusterError.
    """
    # Dask is optional, and has no type information.
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
                # The number of threads is read again here: workers come and go.
                for future in submit(max(1, AHEAD * _threads(client) - running.count())):
                    running.add(future)
        except cluster.KilledWorker as error:
            raise ClusterError("a job has lost one worker after the other") from error
        except CancelledError as error:
            raise ClusterError(f"the cluster at {scheduler} has gone") from error


def _threads(client: Any) -> int:
    return sum(client.nthreads().values())
