# SPDX-License-Identifier: Apache-2.0
"""Measures the table of matrix products with `tpu gemm`, and writes it where it is quoted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from systola.arch.registers import CycleClass
from systola.bench.table import (
    BEGIN,
    END,
    IDEAL,
    LOADED,
    PICTURE,
    PRESET,
    PRODUCTS,
    README,
    RESULTS,
    Memory,
    Product,
    find,
    table,
)

COLOURS = {
    CycleClass.ARRAY_ACTIVE: "#2a7f62",
    CycleClass.WEIGHT_STALL: "#c44536",
    CycleClass.WEIGHT_SHIFT: "#e09f3e",
    CycleClass.INPUT_STALL: "#335c81",
    CycleClass.OPERAND_STALL: "#7d5ba6",
    CycleClass.ACCUMULATOR_STALL: "#b084cc",
    CycleClass.OUTPUT_STALL: "#8d6a4f",
    CycleClass.FETCH: "#9aa0a6",
    CycleClass.DRAIN: "#d0d4d9",
}


def measure(product: Product, memory: Memory) -> dict[str, Any]:
    """The JSON object that `tpu gemm` prints for one product."""
    command = [
        str(Path(sys.executable).with_name("tpu")),
        "gemm",
        *map(str, (product.m, product.k, product.n)),
        *("--preset", PRESET, "--json", "-"),
        *("--latency", str(memory.latency), "--stall", str(memory.stall)),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command[1:])} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def picture(results: Sequence[dict[str, Any]]) -> str:
    """Where the cycles go, as an SVG: one bar for each product and memory."""
    width, left, height, gap = 620, 190, 18, 6
    rows = [(p, memory) for p in PRODUCTS for memory in (IDEAL, LOADED)]
    bottom = 30 + len(rows) * (height + gap)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {bottom + 60}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18">share of all cycles, preset {PRESET}</text>',
    ]
    for index, (product, memory) in enumerate(rows):
        result = find(results, product, memory)
        y = 30 + index * (height + gap)
        label = f"{product.m} {product.k} {product.n}" + ("" if memory is IDEAL else ", loaded")
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{label}</text>')
        x = float(left)
        for which, colour in COLOURS.items():
            share = width * result["counters"][which.name.lower()] / result["cycles"]
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{share:.1f}" height="{height}" fill="{colour}"/>'
            )
            x += share
        parts.append(f'<text x="{x + 6:.0f}" y="{y + 13}">{result["cycles"]:,}</text>')
    for index, (which, colour) in enumerate(COLOURS.items()):
        x, y = left + 130 * (index % 5), bottom + 14 + 20 * (index // 5)
        name = which.name.lower().replace("_", " ")
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Measures everything; 1 when a result is wrong or below its bar."""
    runs = [(product, memory) for product in PRODUCTS for memory in (IDEAL, LOADED)]
    results = [measure(*run) for run in tqdm(runs, desc="measuring", unit="run")]
    speed = max(result["simulated_cycles_per_second"] for result in results)
    for result in results:
        # The one figure that depends on the machine under the desk.
        del result["simulated_cycles_per_second"]
    RESULTS.write_text(json.dumps({"products": results}, indent=1) + "\n")
    PICTURE.write_text(picture(results))
    text = README.read_text()
    before, rest = text.split(BEGIN, 1)
    README.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.split(END, 1)[1]}")

    print(table(results))
    print(f"simulation: {speed:,.0f} cycles a second")
    missed = 0
    for product, memory in runs:
        result = find(results, product, memory)
        bar = product.ideal if memory is IDEAL else product.loaded
        if not result["bit_exact"] or (bar and result["utilization"] < bar):
            print(f"MISSED: {product.m} {product.k} {product.n}, {memory.name}")
            missed = 1
    return missed


if __name__ == "__main__":
    sys.exit(main())
