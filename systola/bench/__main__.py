# SPDX-License-Identifier: Apache-2.0
"""Measures all workloads, and writes the results into the pages that quote them."""

from __future__ import annotations

import json
import sys

from tqdm import tqdm

from systola.arch.pages import filled
from systola.bench import convolution, gemm, moment, networks
from systola.bench.picture import picture
from systola.bench.speed import store as store_speed
from systola.bench.table import PICTURE, README, RESULTS, RESULTS_PAGE, Results, find, tables
from systola.bench.workloads import (
    CONVOLUTIONS,
    IDEAL,
    LOADED,
    PRESET,
    PRODUCTS,
    Convolution,
)

LONGEST = PRODUCTS[-1]
"""Product that runs long enough to show how fast the machine is simulated."""


def main() -> int:
    """Measure everything; return 1 if a result is wrong or below its bar."""
    memories = (IDEAL, LOADED)
    runs = [(work, memory) for work in (*PRODUCTS, *CONVOLUTIONS) for memory in memories]
    results: Results = {"products": [], "convolutions": []}
    for work, memory in tqdm(runs, desc="measuring", unit="run"):
        if isinstance(work, Convolution):
            results["convolutions"].append(convolution.measure(work, memory))
        else:
            result = gemm.measure(work, memory)
            speed = result.pop("simulated_cycles_per_second")
            if work == LONGEST and memory is IDEAL:
                store_speed(
                    PRESET, f"{work.m} {work.k} {work.n}", result["cycles"], speed, "make bench"
                )
            results["products"].append(result)

    measured = [
        networks.measure(network, batch)
        for network in tqdm(networks.NETWORKS, desc="networks", unit="network")
        for batch in networks.BATCHES
    ]

    moment.store()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PICTURE.write_bytes(picture(results))
    networks.RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    RESULTS_PAGE.write_text(filled(RESULTS_PAGE, products=tables(results)))
    README.write_text(filled(README, networks=networks.table(measured)))

    print(f"{networks.table(measured)}\n\n{tables(results)}")
    missed = 0
    for work, memory in runs:
        result = find(results, work, memory)
        loaded = None if isinstance(work, Convolution) else work.loaded
        bar = work.ideal if memory is IDEAL else loaded
        if not result["bit_exact"] or (bar and result["utilization"] < bar):
            print(f"MISSED: {work}, {memory.name}")
            missed = 1
    for network in networks.NETWORKS:
        for batch in networks.BATCHES:
            result = networks.find(measured, network, batch)
            bar = network.bar if network.batch == batch else None
            if not result["bit_exact"] or (bar and result["utilization"] < bar):
                print(f"MISSED: {network.title}, {batch} at a time")
                missed = 1
    return missed


if __name__ == "__main__":
    sys.exit(main())
