# SPDX-License-Identifier: Apache-2.0
"""`make whatif`: the applications when one thing about the machine changes, by the timing model.

Each pair of an application and a machine is a job for the engine of the regression: processes of
this machine, or the workers of a Dask scheduler. The results are in whatif.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from tqdm import tqdm

from systola.arch.config import PRESETS, Config
from systola.bench.original.compiled import compiled
from systola.bench.original.page import write_pages
from systola.bench.original.prediction import UNCHANGED, WHATIF, Prediction
from systola.bench.original.result import PRESET
from systola.bench.original.shapes import applications
from systola.runtime.engine import run_here, run_on_cluster
from systola.timing.estimate import estimate

V1 = PRESETS[PRESET]


class Imagined(Config):
    """A machine that exists in the timing model only. It cannot be built, because AXI has no ports
    so wide.
    """

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Change:
    """A machine that differs from `v1` in one respect."""

    name: str
    config: Config
    clock: float = 1.0
    """Clock of the machine as a multiple of the original's. Memory and host keep their clocks, so
    they move fewer bytes a cycle by this factor."""


CHANGES = (
    Change(UNCHANGED, V1),
    Change(
        "array 128 x 128",
        replace(
            V1,
            rows=128,
            cols=128,
            buffer_lines=2 * V1.buffer_lines,
            accumulator_rows=2 * V1.accumulator_rows,
        ),
    ),
    Change("weights 2x", replace(V1, weight_bus_bytes=128)),
    Change("weights 4x", Imagined(**{**vars(V1), "weight_bus_bytes": 256})),
    Change("clock 2x", replace(V1, weight_throttle=(85, 224), host_bus_bytes=16), 2.0),
    Change("clock 4x", replace(V1, weight_throttle=(85, 448), host_bus_bytes=8), 4.0),
    Change("accumulators 4x", replace(V1, accumulator_rows=4 * V1.accumulator_rows)),
    Change("accumulators 1/2x", replace(V1, accumulator_rows=V1.accumulator_rows // 2)),
)


@dataclass(frozen=True)
class Job:
    """A job of one application on one machine."""

    application: str
    change: int


def predict(job: Job) -> Prediction:
    """Compile the application for the machine, and estimate its cycles."""
    change, application = CHANGES[job.change], applications()[job.application]
    work = compiled(change.config, application)
    result = estimate(change.config, work.image)
    return Prediction(
        application.name,
        change.name,
        result.cycles,
        2 * work.macs * 0.7e-3 * change.clock / result.cycles,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict the cycles of all applications on all machines; store them, and write the pages.

    Returns the exit status.
    """
    parser = argparse.ArgumentParser(prog="make whatif", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scheduler", help="address of a Dask scheduler")
    options = parser.parse_args(arguments)
    jobs = [Job(name, n) for name in applications() for n in range(len(CHANGES))]
    results = (
        run_on_cluster(jobs, options.scheduler, predict)
        if options.scheduler
        else run_here(jobs, options.jobs, predict)
    )
    found = list(tqdm(results, total=len(jobs), unit="job"))
    names = [change.name for change in CHANGES]
    found.sort(
        key=lambda each: (list(applications()).index(each.application), names.index(each.change))
    )
    content = [asdict(each) for each in found]
    WHATIF.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
