# SPDX-License-Identifier: Apache-2.0
"""The waveform of a program, and its save file, which groups signals by unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.runtime import ImageBuilder
from systola.runtime.rtl import RtlBackend


@pytest.mark.thorough
def test_machine(tmp_path: Path) -> None:
    """Both are there and complete at the end of `with`."""
    builder = ImageBuilder("tiny")
    with RtlBackend(preset("tiny"), waves=tmp_path / "w.vcd") as machine:
        result = machine.run(builder.build("nop\nhalt"))
    assert result.fault is None
    saved = (tmp_path / "w.gtkw").read_text().splitlines()
    assert saved[0] == f'[dumpfile] "{tmp_path / "w.vcd"}"'
    assert {"-tpu.core.fetch", "-tpu.core.matrix_unit", "-tpu.core.unified_buffer"} <= set(saved)
    assert re.search(r"^#\d+\n", (tmp_path / "w.vcd").read_text(), re.MULTILINE)
