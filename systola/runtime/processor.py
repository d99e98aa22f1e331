# SPDX-License-Identifier: Apache-2.0
"""A property of this computer's processor that changes the results of ONNX Runtime."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def lacks_vnni() -> bool:
    """Return whether int8 products saturate at 16 bits in ONNX Runtime here; False if unknown.

    The cause is VPMADDUBSW on x86 processors without VNNI:
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return False
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    return bool(flags) and flags.isdisjoint(("avx512_vnni", "avx_vnni"))
