# SPDX-License-Identifier: Apache-2.0
"""`make bench-original`: the six applications on the RTL, one after the other or in parallel.

Results of the same machine and program are kept; the other applications are run. So a run can be
interrupted at any time, and goes on with the next application.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tqdm import tqdm

from systola.arch.config import preset
from systola.bench.original.measure import key_of, measure, work_of
from systola.bench.original.page import write_pages
from systola.bench.original.result import PRESET, Result, store, stored
from systola.bench.original.shapes import applications
from systola.runtime.backend import BackendError
from systola.timing.estimate import estimate

STEP = 100
"""Cycles in a unit of the progress bars."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status.

    The status is 1 if a result is wrong, and 2 for an unknown name.
    """
    known = list(applications())
    parser = argparse.ArgumentParser(prog="make bench-original", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="APP", help=f"some of {', '.join(known)}")
    parser.add_argument("--again", action="store_true", help="also what was measured already")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"unknown application '{unknown[0]}' (known: {', '.join(known)})", file=sys.stderr)
        return 2
    names = [name for name in options.names or known if options.again or not _is_measured(name)]
    failed = 0
    for name, result in _results(names, options.jobs):
        if isinstance(result, Result):
            store(name, result)
            print(f"{name}: {result.cycles:,} cycles, {result.tops:.1f} TOPS, every byte right")
        else:
            failed = 1
            print(f"{name}: {result}", file=sys.stderr)
    write_pages()
    return failed


def _is_measured(name: str) -> bool:
    before = stored().get(name)
    if before is None or before.key != key_of(work_of(name)):
        return False
    print(f"{name}: {before.cycles:,} cycles, {before.tops:.1f} TOPS, measured {before.date}")
    return True


def _results(names: Sequence[str], jobs: int) -> Iterator[tuple[str, Result | str]]:
    """Yield the name of each application as it ends, with its result or the text of its error."""
    if jobs == 1 or len(names) < 2:
        for name in names:
            yield name, _run(name, 0)
        return
    with ProcessPoolExecutor(min(jobs, len(names))) as pool:
        # The longest applications start first, so that no long application is left alone at the
        # end.
        running = {pool.submit(_run, name, place): name for place, name in enumerate(names)}
        for future in as_completed(running):
            yield running[future], future.result()


def _run(name: str, place: int) -> Result | str:
    """Run one application, with a progress bar in line `place`."""
    work = work_of(name)
    total = estimate(preset(PRESET), work.image).cycles
    with tqdm(total=total, desc=name, unit="cycle", unit_scale=True, position=place) as bar:
        try:
            return measure(work, lambda cycles: _show(bar, cycles))
        except BackendError as error:
            return str(error)


def _show(bar: tqdm[None], cycles: int) -> None:
    bar.update(cycles - bar.n)


if __name__ == "__main__":
    sys.exit(main())
