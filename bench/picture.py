# SPDX-License-Identifier: Apache-2.0
"""Where the cycles of the benchmarks go, as a picture.

`python -m systola.bench.picture --write docs` draws docs/cycles.svg from what `make bench` measured
last, `--check docs` exits with status 1 where it is missing or out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from systola.bench.table import PICTURE, Results, find, stored_results
from systola.bench.workloads import CONVOLUTIONS, IDEAL, LOADED, PRESET, PRODUCTS, Convolution
from systola.views.plots import cycles_figure, to_svg


def picture(results: Results) -> bytes:
    """An SVG with a bar for each workload and memory."""
    labelled = [
        (
            (work.name if isinstance(work, Convolution) else f"{work.m} {work.k} {work.n}")
            + ("" if memory is IDEAL else ", loaded"),
            find(results, work, memory),
        )
        for work in (*PRODUCTS, *CONVOLUTIONS)
        for memory in (IDEAL, LOADED)
    ]
    return to_svg(cycles_figure(f"where the cycles go, preset {PRESET}", labelled))


def main() -> int:
    """Writes the picture, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", metavar="FOLDER", type=Path)
    what.add_argument("--check", metavar="FOLDER", type=Path)
    arguments = parser.parse_args()
    drawn = picture(stored_results())
    path = (arguments.write or arguments.check) / PICTURE.name
    if arguments.write:
        path.write_bytes(drawn)
    elif not path.is_file() or path.read_bytes() != drawn:
        print(f"{path} is out of date: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
