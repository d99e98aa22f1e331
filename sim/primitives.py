# SPDX-License-Identifier: Apache-2.0
"""Models of the blocks of FPGAs that Verilog instantiates, for simulation."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "primitives"
"""Our own models, written from the vendors' documents, one file for each block."""


def models_of(verilog: str) -> str:
    """Verilog of the blocks that `verilog` places and that have a model here."""
    return "".join(
        file.read_text()
        for file in sorted(_FOLDER.glob("*.v"))
        if re.search(rf"^\s*{file.stem}\s", verilog, re.MULTILINE)
    )
