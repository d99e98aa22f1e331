# SPDX-License-Identifier: Apache-2.0
"""The command `make regress`, which runs random programs and compares them with the golden model.

A program that fails is made shorter and explained."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from systola.cli.arguments import OneLineParser, whole_number
from systola.runtime.engine import NO_DASK, ClusterError, has_dask, run_here, run_on_cluster
from systola.sim.build import build_root
from systola.sim.verilator import BuildError, waveform_suffix
from systola.sim.waves import how_to_look
from systola.verif.coverage.record import Coverage
from systola.verif.kit.machines import wrong_name
from systola.verif.regress.cases import KINDS
from systola.verif.regress.job import Report, jobs, record, run_job

PRESETS = ("tiny", "7x5", "small", "base")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make regress` and return its exit status.

    The status is 1 if a program failed, 2 if the run stopped before its end, and 0 otherwise.
    """
    options = _parser().parse_args(arguments)
    if problem := wrong_name(options.preset):
        print(f"regress: {problem}", file=sys.stderr)
        return 2
    work = jobs(
        options.kind,
        options.preset,
        options.seed,
        options.first,
        options.programs,
        counting=options.coverage is not None,
    )
    if options.waves:
        name = f"regress_{options.kind}_{options.preset[0]}{waveform_suffix()}"
        path = build_root() / name
        problem, save = record(work[0], options.first + options.programs - 1, path)
        print(problem or "nothing differs")
        print(how_to_look(save))
        return int(problem is not None)
    if options.scheduler and not has_dask():
        print(f"regress: {NO_DASK}", file=sys.stderr)
        return 2
    print(f"SEED={options.seed}")
    reports = (
        run_on_cluster(work, options.scheduler, run_job)
        if options.scheduler
        else run_here(work, options.jobs, run_job)
    )
    total = Report()
    done, stopped = 0, None
    with tqdm(total=len(work), unit="job", disable=None) as bar:
        try:
            for report in reports:
                total.add(report)
                done += 1
                bar.update()
                for failure in report.failures:
                    bar.write(failure)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except (BuildError, BrokenProcessPool, ClusterError) as error:
            stopped = str(error)
    totals = total.totals
    print(
        f"{totals.programs} programs, {totals.words} instructions reached, {totals.faults} faults, "
        f"{totals.abandoned} abandoned, {totals.cut_short} cut short, {totals.cycles} cycles: "
        f"{len(total.failures)} failures"
    )
    if total.left_out:
        print(f"{total.left_out} programs were not run: a job stops at its first failure")
    if stopped is not None:
        print(f"regress: stopped after {done} of {len(work)} jobs: {stopped}", file=sys.stderr)
    if options.json:
        figures = {"totals": asdict(totals), "failures": total.failures}
        options.json.write_text(json.dumps({"seed": options.seed, **figures}, indent=1) + "\n")
    if options.coverage:
        coverage = Coverage.read(options.coverage) if options.coverage.exists() else Coverage()
        coverage.add(total.coverage)
        coverage.write(options.coverage)
    if total.failures:
        return 1
    return 0 if stopped is None else 2


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="regress", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--preset", nargs="+", default=PRESETS, help="default: four of them")
    parser.add_argument(
        "--programs", type=whole_number(1), default=200, metavar="N", help="on each preset"
    )
    parser.add_argument(
        "--first", type=whole_number(0), default=0, metavar="N", help="number of the first"
    )
    parser.add_argument("--seed", type=whole_number(0), default=random.randrange(1 << 32))
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask cluster, instead of --jobs")
    parser.add_argument("--waves", action="store_true", help="of the last program, alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--coverage", type=Path, metavar="FILE", help="adds what is covered; see make coverage"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
