# SPDX-License-Identifier: Apache-2.0
"""The picture of the causes of cycles in the benchmarks.

`python -m systola.bench.picture --write docs` draws docs/cycles.svg from the results of the last
`make bench`. `--check docs` exits with status 1 if the picture is missing or out of date.
"""

from __future__ import annotations

import sys

from systola.arch.pages import Pages, write_or_check
from systola.bench.table import PICTURE, Results, find, stored_results
from systola.bench.workloads import CONVOLUTIONS, IDEAL, LOADED, PRESET, PRODUCTS, Convolution
from systola.views.plots import cycles_figure, to_svg


def picture(results: Results) -> bytes:
    """Return an SVG with a bar for each workload and memory."""
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


PAGES: Pages = {PICTURE.name: lambda: picture(stored_results()).decode()}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.bench.picture"))
