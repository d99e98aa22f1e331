# SPDX-License-Identifier: Apache-2.0
"""Tests of the function that finds out whether the processor lacks VNNI instructions.

On such a processor, ONNX Runtime saturates sums. The function reads the flags in /proc/cpuinfo.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from systola.runtime import processor
from systola.verif.cli.test_errors import run

MODEL = "onnx_skl_mlp_48relu_qdq_s8s8_pc"


@pytest.mark.parametrize(
    ("machine", "text", "lacks"),
    [
        ("x86_64", "model name : a\nflags\t\t: fpu avx2 avx512f avx512_vnni\n", False),
        ("x86_64", "flags\t\t: fpu avx2 avx_vnni\n", False),
        ("x86_64", "flags\t\t: fpu avx2\nflags\t\t: fpu avx2\n", True),
        ("x86_64", "", False),
        ("x86_64", None, False),
        ("aarch64", "Features : asimd\n", False),
    ],
)
def test_flags(
    machine: str,
    text: str | None,
    lacks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    assert processor.lacks_vnni() == lacks
    path = files("systola.models") / MODEL
    command = f"run {path}.onnx --backend iss --input {path}.npz --limit 1 --output /dev/null"
    status, _, err = run(command, capsys)
    assert status == 0
    assert ("this processor has no VNNI" in err) == lacks
