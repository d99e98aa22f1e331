# SPDX-License-Identifier: Apache-2.0
"""What of this computer's processor matters to references that run on it."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def lacks_vnni() -> bool:
    """Whether products of int8 saturate at 16 bits in ONNX Runtime here; False if unknown.

    It has to do with VPMADDUBSW on x86 processors without VNNI:
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
