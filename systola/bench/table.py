# SPDX-License-Identifier: Apache-2.0
"""The tables of the results, as README.md and docs/results.md quote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from systola.bench.moment import stored_line
from systola.bench.workloads import (
    CONVOLUTIONS,
    IDEAL,
    LOADED,
    PRODUCTS,
    Convolution,
    Memory,
    Product,
)

RESULTS = Path(__file__).with_name("results.json")
README = Path(__file__).parents[2] / "README.md"
"""Page that quotes the results of networks."""
RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results.md"
"""Page that quotes the results of products and convolutions."""
PICTURE = Path(__file__).parents[2] / "docs" / "cycles.svg"

Results = dict[str, list[dict[str, Any]]]
"""`products`: JSON objects of `tpu gemm`; `convolutions`: JSON objects of bench/convolution.py."""


def stored_results() -> Results:
    """Return the results of the last `make bench`."""
    return json.loads(RESULTS.read_text())


def tables(results: Results) -> str:
    """Write the results as Markdown tables."""
    lines = [
        "| GEMM (M K N) | ideal memory | bar | latency 30, stall 0.1 | bar | measured elsewhere |",
        "|---|---|---|---|---|---|",
    ]
    for product in PRODUCTS:
        cells = [f"{product.m} {product.k} {product.n}"]
        for memory, bar in ((IDEAL, product.ideal), (LOADED, product.loaded)):
            cells += [_cell(find(results, product, memory)), _bar(bar)]
        lines.append("| " + " | ".join([*cells, product.elsewhere]) + " |")
    lines += [
        "",
        "| Convolution (SAME) | ideal memory | bar | latency 30, stall 0.1 |",
        "|---|---|---|---|",
    ]
    for shape in CONVOLUTIONS:
        ideal, loaded = (_cell(find(results, shape, memory)) for memory in (IDEAL, LOADED))
        lines.append(f"| {shape.name} | {ideal} | {_bar(shape.ideal)} | {loaded} |")
    return "\n".join([*lines, "", stored_line()])


def _cell(result: dict[str, Any]) -> str:
    return f"{result['cycles']:,} cycles, {100 * result['utilization']:.2f} %"


def _bar(bar: float | None) -> str:
    return "-" if bar is None else f"{100 * bar:.1f} %"


def find(results: Results, work: Product | Convolution, memory: Memory) -> dict[str, Any]:
    """Return the result of one product or convolution with one kind of memory."""
    here = [
        r
        for r in (*results["products"], *results["convolutions"])
        if (r["latency"], r["stall"]) == (memory.latency, memory.stall)
    ]
    if isinstance(work, Convolution):
        return next(r for r in here if r.get("convolution") == work.name)
    shape = (work.m, work.k, work.n)
    return next(r for r in here if (r.get("m"), r.get("k"), r.get("n")) == shape)
