# SPDX-License-Identifier: Apache-2.0
"""The command `make coverage`: it runs random programs of every kind and reports the coverage.

Earlier coverage on the same hardware is kept and added to. The exit status is 1 if a program fails
or if a required item is not covered.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from systola.cli.arguments import OneLineParser, whole_number
from systola.runtime.engine import run_here
from systola.sim.build import build_root
from systola.verif.coverage.page import page
from systola.verif.coverage.record import Coverage
from systola.verif.coverage.summary import (
    BARS,
    Part,
    functional_parts,
    idle,
    point_parts,
    total,
    waivers,
)
from systola.verif.kit.machines import wrong_name
from systola.verif.regress.cases import KINDS
from systola.verif.regress.job import Report, jobs, run_job

PRESETS = ("4x4-training-attention", "bare")
"""The first preset has all features except links; the second has only the required features."""

_TIMES = {"faults": 12}
"""Programs of a kind for each program of a kind that is not listed.

A program of the kind "faults" is a single instruction and hits a single bin.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make coverage` and return its exit status."""
    options = _parser().parse_args(arguments)
    if problem := wrong_name(options.preset):
        print(f"coverage: {problem}", file=sys.stderr)
        return 2
    coverage = Coverage()
    for file in (options.file, *options.merge):
        if file.exists() and not (options.fresh and file == options.file):
            coverage.add(Coverage.read(file))
    failures = 0
    if options.programs:
        print(f"SEED={options.seed}")
        work = [
            job
            for kind in KINDS
            for job in jobs(
                kind,
                options.preset,
                options.seed,
                0,
                options.programs * _TIMES.get(kind, 1),
                counting=True,
            )
        ]
        report = Report()
        with tqdm(total=len(work), unit="job", disable=None) as bar:
            for result in run_here(work, options.jobs, run_job):
                report.add(result)
                bar.update()
                for failure in result.failures:
                    bar.write(failure)
        failures = len(report.failures)
        coverage.add(report.coverage)
        coverage.write(options.file)
    reasons = waivers()
    good = not failures
    parts = functional_parts(coverage, reasons)
    for part in list(parts):
        good &= not part.missing
        print(_line(part.name, part))
    bins = total(parts)
    print(_line("bins", bins))
    for preset in coverage.points:
        modules = point_parts(coverage, preset, reasons)
        parts += modules
        for kind in ("line", "branch", "toggle"):
            part = total(part for part in modules if part.group == kind)
            good &= part.share >= BARS.get(kind, 0)
            print(_line(f"{preset}, {kind}", part))
    for pattern in idle(reasons, parts):
        good = False
        print(f"a waiver of nothing: {pattern}")
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(coverage, reasons, f"SEED={options.seed}"))
    print(options.page)
    return int(not good)


def _line(name: str, part: Part) -> str:
    counts = (f"{len(part.covered)} covered", f"{len(part.waived)} waived")
    return f"{name:20} {100 * part.share:5.1f} %, {', '.join(counts)}, {len(part.missing)} missing"


def _parser() -> OneLineParser:
    folder = build_root() / "coverage"
    parser = OneLineParser(prog="coverage", description=__doc__)
    parser.add_argument(
        "--programs",
        type=whole_number(0),
        default=200,
        metavar="N",
        help="of each kind and preset, twelve times as many lone faults; 0: none",
    )
    parser.add_argument(
        "--preset", nargs="+", default=PRESETS, help=f"default: {' and '.join(PRESETS)}"
    )
    parser.add_argument("--seed", type=whole_number(0), default=random.randrange(1 << 32))
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        default=(),
        metavar="FILE",
        help="of make regress COVERAGE=",
    )
    parser.add_argument("--file", type=Path, default=folder / "coverage.json", help="what is kept")
    parser.add_argument("--page", type=Path, default=folder / "index.html", metavar="FILE")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
