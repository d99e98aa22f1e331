# SPDX-License-Identifier: Apache-2.0
"""Tests that units still pass their own tests after synthesis.

`make sim NETLIST=ecp5` does the same with the whole machine. Together, the units of this test have
every kind of cell: look-up tables, carry chains, flip-flops, memories in blocks and in look-up
tables, multipliers.
"""

from importlib import import_module

import pytest

from systola.verif.kit.launch import simulators
from systola.verif.units.unit import file_of, run_unit


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("netlist", "module", "variant"),
    [
        ("ecp5", "test_requantiser", "int8"),
        ("ecp5", "test_accumulators", "narrow"),
        ("ecp5", "test_counters", ""),
        ("generic", "test_accumulators", "narrow"),
    ],
)
def test_netlists(netlist, module, variant, monkeypatch):
    monkeypatch.setenv("NETLIST", netlist)
    room = file_of(module).parent.name
    unit = import_module(f"systola.verif.units.{room}.{module}").unit(variant)
    run_unit(module, simulators()[0], unit, variant=variant)
