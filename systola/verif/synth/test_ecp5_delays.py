# SPDX-License-Identifier: Apache-2.0
"""Tests that the models of ECP5 cells have the ports and parameters of Yosys' library."""

import json
import subprocess

import pytest

from systola.synth.ecp5_delays import ecp5_models
from systola.synth.tools import find_tool

CELLS = ("CCU2C", "TRELLIS_DPR16X4", "DP16KD", "MULT18X18D")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Return the cells that Yosys reads from its ECP5 library, and from the project's models."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "models.v").write_text(ecp5_models())
    only_ports = "blackbox =A:whitebox"
    script = (
        "read_verilog -lib -specify +/lattice/cells_sim_ecp5.v +/lattice/cells_bb_ecp5.v",
        *(only_ports, "write_json library.json"),
        "read_verilog -lib -specify -overwrite models.v",
        *(only_ports, "write_json models.json"),
    )
    (folder / "cells.ys").write_text("\n".join(script) + "\n")
    subprocess.run([find_tool("yosys").path, "-q", "cells.ys"], cwd=folder, check=True)
    return [
        json.loads((folder / f"{name}.json").read_text())["modules"]
        for name in ("library", "models")
    ]


@pytest.mark.parametrize("name", CELLS)
def test_same_ports(cells, name):
    library, models = (
        {
            port: (pins["direction"], len(pins["bits"]))
            for port, pins in modules[name]["ports"].items()
        }
        for modules in cells
    )
    assert models == library


@pytest.mark.parametrize("name", CELLS)
def test_all_parameters(cells, name):
    library, models = (set(modules[name]["parameter_default_values"]) for modules in cells)
    assert models >= library


def test_others_stay(cells):
    library, models = cells
    changed = {name for name in library if library[name] != models[name]}
    assert set(models) == set(library) and changed == set(CELLS)
