# SPDX-License-Identifier: Apache-2.0
"""Matrix products, measured with `tpu gemm`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from systola.bench.workloads import PRESET, Memory, Product


def measure(product: Product, memory: Memory) -> dict[str, Any]:
    """Return the JSON object that `tpu gemm` prints for one product."""
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
