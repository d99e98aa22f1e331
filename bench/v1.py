# SPDX-License-Identifier: Apache-2.0
"""Measures the machine at the original's size: Verilog, simulator, and a 256x256x256 product."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Prints times and memory of each step, with nothing kept from earlier builds."""
    tpu = str(Path(sys.executable).with_name("tpu"))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"SYSTOLA_BUILD": folder}
        started = time.perf_counter()
        verilog = ["verilog", "--preset", "v1", "--output", f"{folder}/v1.v"]
        subprocess.run([tpu, *verilog], env=environment, check=True)
        converted = time.perf_counter()
        gemm = [tpu, "gemm", "256", "256", "256", "--preset", "v1", "--json", "-"]
        subprocess.run(gemm, env=environment, check=True, stdout=subprocess.PIPE)
        built = time.perf_counter()
        run = subprocess.run(gemm, env=environment, check=True, stdout=subprocess.PIPE)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    result = json.loads(run.stdout)
    print(f"Verilog        {converted - started:6.0f} s   (bar 120)")
    print(f"simulator, run {built - converted:6.0f} s   (bar 600)")
    print(f"largest process{memory:6.1f} GiB (bar 8)")
    speed = result["simulated_cycles_per_second"]
    print(f"256x256x256    {result['cycles']:6d} cycles, bit exact: {result['bit_exact']}")
    print(f"simulation     {speed:6.0f} cycles a second (bar 1000)")
    return 0 if result["bit_exact"] and speed >= 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
