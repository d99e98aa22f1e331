# SPDX-License-Identifier: Apache-2.0
"""The matrix products that are measured, what they must reach, and the table of the results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
README = Path(__file__).parents[1] / "README.md"
PICTURE = Path(__file__).parents[1] / "docs" / "cycles.svg"
PRESET = "base"
BEGIN, END = "<!-- bench: written by make bench -->", "<!-- bench: end -->"


@dataclass(frozen=True)
class Product:
    """An M x K x N product, and the utilisation (0 to 1) that it must reach on PRESET.

    `ideal` holds for memories that answer at once, `loaded` for LOADED; None: only reported.
    `elsewhere` is the best figure measured on another open machine.
    """

    m: int
    k: int
    n: int
    ideal: float
    loaded: float | None
    elsewhere: str


@dataclass(frozen=True)
class Memory:
    """How host and weight memory behave."""

    name: str
    latency: int
    stall: float


IDEAL = Memory("ideal", 0, 0.0)
LOADED = Memory("latency 30, stall 0.1", 30, 0.1)
PRODUCTS = (
    Product(64, 64, 64, 1024 / 1111, 0.80, "1,111 cycles (OpenTPU)"),
    Product(16, 64, 64, 0.70, None, "40.8 % (OpenTPU)"),
    Product(255, 16, 128, 0.963, 0.80, "96.3 % (OpenTPU)"),
    Product(16, 784, 512, 0.97, 0.85, "99.8 %, array only"),
    Product(512, 512, 512, 0.98, 0.95, ""),
)


def stored_results() -> list[dict[str, Any]]:
    """What `make bench` measured last: the JSON objects of `tpu gemm`, with the memory's name."""
    return json.loads(RESULTS.read_text())["products"]


def table(results: Sequence[dict[str, Any]]) -> str:
    """The results as the Markdown table of the README."""
    lines = [
        "| GEMM (M K N) | ideal memory | bar | latency 30, stall 0.1 | bar | measured elsewhere |",
        "|---|---|---|---|---|---|",
    ]
    for product in PRODUCTS:
        cells = [f"{product.m} {product.k} {product.n}"]
        for memory, bar in ((IDEAL, product.ideal), (LOADED, product.loaded)):
            result = find(results, product, memory)
            cells.append(f"{result['cycles']:,} cycles, {100 * result['utilization']:.2f} %")
            cells.append("-" if bar is None else f"{100 * bar:.1f} %")
        lines.append("| " + " | ".join([*cells, product.elsewhere]) + " |")
    return "\n".join(lines)


def find(results: Sequence[dict[str, Any]], product: Product, memory: Memory) -> dict[str, Any]:
    """The result of one product with one kind of memory."""
    wanted = (product.m, product.k, product.n, memory.latency, memory.stall)
    return next(r for r in results if (r["m"], r["k"], r["n"], r["latency"], r["stall"]) == wanted)


def quoted(readme: str) -> str:
    """The table as it stands in the text of the README."""
    return readme.split(BEGIN, 1)[1].split(END, 1)[0].strip()
