# SPDX-License-Identifier: Apache-2.0
"""Measures the machine at the original's size: Verilog, simulator, and a 256x256x256 product.

Verilog and simulator come from the build folder, and stay there for all other runs. `--fresh` makes
them anew, in a folder of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from systola.bench.speed import store

TPU = str(Path(sys.executable).with_name("tpu"))
GEMM = ("gemm", "256", "256", "256", "--preset", "v1", "--json", "-")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print time and memory of each step; return 1 if a result is wrong or the simulation slow."""
    parser = argparse.ArgumentParser(prog="make bench-v1", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="make everything anew")
    fresh = parser.parse_args(arguments).fresh
    with tempfile.TemporaryDirectory() if fresh else nullcontext() as folder:
        environment = os.environ | ({"SYSTOLA_BUILD": folder} if folder else {})
        if fresh:
            _step("Verilog", "120", ["verilog", "--preset", "v1", "--output", "-"], environment)
        _step("simulator, run", "300 on two free cores", GEMM, environment)
        run = subprocess.run([TPU, *GEMM], env=environment, check=True, stdout=subprocess.PIPE)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    result = json.loads(run.stdout)
    print(f"largest process{memory:6.1f} GiB (bar 2)")
    speed = result["simulated_cycles_per_second"]
    print(f"256x256x256    {result['cycles']:6d} cycles, bit exact: {result['bit_exact']}")
    print(f"simulation     {speed:6.0f} cycles a second (bar 1000)")
    store("v1", "256 256 256", result["cycles"], speed, "make bench-v1")
    return 0 if result["bit_exact"] and speed >= 1000 else 1


def _step(name: str, bar: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a command, and print its elapsed time and the processor time of all processors
    together.
    """
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([TPU, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = time.perf_counter() - started
    print(f"{name:15}{seconds:6.0f} s, {work:.0f} s of processor time (bar {bar})")


if __name__ == "__main__":
    sys.exit(main())
