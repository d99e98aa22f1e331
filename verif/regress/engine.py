# SPDX-License-Identifier: Apache-2.0
"""Where jobs run: processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Job = TypeVar("Job")
Report = TypeVar("Report")


def run_here(jobs: Sequence[Job], processes: int, run: Callable[[Job], Report]) -> Iterator[Report]:
    """What `run` makes of the jobs, as they end, from so many processes."""
    if processes == 1:
        yield from map(run, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            # Nothing keeps a report that has been taken: those of coverage are large.
            for future in as_completed([pool.submit(run, job) for job in jobs]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_on_cluster(
    jobs: Sequence[Job], scheduler: str, run: Callable[[Job], Report]
) -> Iterator[Report]:
    """The same from the workers of the Dask scheduler at that address, which have this project."""
    from dask.distributed import Client
    from dask.distributed import as_completed as completed

    with Client(scheduler) as client:
        # Jobs are pure: the same job has the same report, wherever it runs.
        for _, report in completed(client.map(run, list(jobs)), with_results=True):
            yield report
