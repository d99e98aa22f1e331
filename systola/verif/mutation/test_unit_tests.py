# SPDX-License-Identifier: Apache-2.0
"""Tests that a fault of the whole machine can be planted in a single unit, and fails its tests.

A fault is planted in one cell of the machine. A unit that is built alone has the same cell under
another name. A FaultPlace describes the cell, so that the cell can be found there."""

from dataclasses import replace

import pytest

from systola.arch.config import preset
from systola.verif.mutation.design import MachineDesign
from systola.verif.mutation.fault_place import FaultPlace, source_file
from systola.verif.mutation.mutants import Mutant
from systola.verif.mutation.planted_unit import asked_for, planted_verilog
from systola.verif.mutation.unit_tests import UNIT, UnitTests

SOURCE = "hdl/adder.py:7"
UNIT_RTLIL = """
module \\unit
  wire width 2 input 1 \\a
  wire width 2 input 2 \\b
  wire width 2 output 3 \\sum
  attribute \\src "hdl/adder.py:7"
  cell $add $1
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH 2
    parameter \\B_WIDTH 2
    parameter \\Y_WIDTH 2
    connect \\A \\a
    connect \\B \\b
    connect \\Y \\sum
  end
end
"""


def mutant(module, cell, **changes):
    values = {"mode": "inv", "port": "Y", "bit": 1, "control": 0, "signal": "", "sources": ()}
    return Mutant(number=1, module=module, cell=cell, **{**values, **changes})


def cell(kind, width=2, source=SOURCE):
    return {"type": kind, "attributes": {"src": source}, "connections": {"Y": [0] * width}}


def design(**modules):
    return {name: {"cells": cells} for name, cells in modules.items()}


def place(**cells):
    """Return the FaultPlace of a fault in the second of two adders; `cells` are further cells."""
    whole = {"tpu.core$3.adder": {"cells": {"$1": cell("$add"), "$2": cell("$add"), **cells}}}
    return FaultPlace.of(mutant("tpu.core$3.adder", "$2"), whole)


def test_the_same_cell_of_as_many():
    """Check that a FaultPlace finds its cell in a unit, where the cell has another name.

    Further cells in the module, of another type or from another source line, have no influence.
    """
    found = place(other=cell("$sub"), elsewhere=cell("$add", source="hdl/adder.py:8"))
    unit = design(unit={"$7": cell("$sub"), "$8": cell("$add"), "$9": cell("$add")})
    assert found.among_modules(unit) == mutant("unit", "$9", sources=(SOURCE,))


@pytest.mark.parametrize(
    "cells",
    [
        {"$1": cell("$add")},
        {"$1": cell("$add"), "$2": cell("$add"), "$3": cell("$add")},
        {"$1": cell("$add"), "$2": cell("$add", source="hdl/adder.py:8")},
        {"$1": cell("$add", width=3), "$2": cell("$add", width=3)},
    ],
)
def test_another_unit_has_no_such_place(cells):
    assert place().among_modules(design(unit=cells)) is None


def test_cells_without_a_source_are_those_of_the_same_file():
    """Check that a cell without a source line is found only in a module from the same source file.

    Another module with as many cells of this type is not taken.
    """
    nameless = {"$p1": cell("$mux", source=""), "$p2": cell("$mux", source="")}
    whole = {"tpu.adder": {"cells": {"$1": cell("$add"), **nameless}}}
    found = FaultPlace.of(mutant("tpu.adder", "$p2"), whole)
    other = {"$1": cell("$add", source="hdl/parts/walker.py:1"), **nameless}
    assert found.among_modules(design(unit=other)) is None
    same = {"$1": cell("$sub", source="hdl/adder.py:9"), **nameless}
    assert found.among_modules(design(other=other, unit=same)).module == "unit"


def test_a_module_of_the_same_name_goes_first():
    cells = {"$1": cell("$add"), "$2": cell("$add")}
    others = {"unit": {"cells": cells}, "unit.adder": {"cells": cells}}
    assert place().among_modules(others).module == "unit.adder"


def test_modules_in_modules_are_known_by_their_names():
    """Check that a cell that instantiates a submodule is found by the submodule's own name.

    The name of the module around the submodule may differ.
    """
    whole = {"tpu.core": {"cells": {"x": cell("tpu.core.adder$12")}}}
    found = FaultPlace.of(mutant("tpu.core", "x"), whole)
    assert found.among_modules(design(unit={"y": cell("unit.adder$3")})).cell == "y"
    assert found.among_modules(design(unit={"y": cell("unit.subtractor$3")})) is None


def test_the_file_that_most_of_a_module_comes_from():
    cells = {
        "a": cell("$add"),
        "b": cell("$sub"),
        "c": cell("$mux", source="hdl/replica.py:1"),
    }
    assert source_file({"cells": cells}) == "adder"
    assert source_file({"cells": {"a": cell("$add", source="")}}) == ""


def test_planted_verilog(monkeypatch):
    """Check a unit's Verilog with a fault and without.

    For a fault in a cell that the unit does not have, there is no Verilog.
    """
    adder = FaultPlace("adder", "adder", "$add", SOURCE, 0, 1, 2, "Y", 1, "const1", 0)
    found = []
    for chosen in (None, adder, replace(adder, width=3)):
        ((name, text),) = asked_for(chosen).items()
        monkeypatch.setenv(name, text)
        found.append(planted_verilog(UNIT_RTLIL, "unit"))
    plain, faulty, nowhere = found
    assert "1'h1" in faulty and "1'h1" not in plain
    assert nowhere is None


@pytest.mark.thorough
def test_verdicts():
    """Check that unit tests find a fault inside a unit, but no fault in wires between units."""
    tests = UnitTests(MachineDesign(preset("tiny")), 1)
    modules = {source_file(module): name for name, module in tests.modules.items()}
    watchdog = modules["bus_watchdog"]
    cells = tests.modules[watchdog]["cells"]
    adder = next(name for name, each in cells.items() if each["type"] == "$sub")
    core, port = next(
        (name, next(iter(each["connections"])))
        for name, each in tests.modules["tpu"]["cells"].items()
        if each["type"] == "tpu.core"
    )
    inside = mutant(watchdog, adder, bit=0)
    outside = replace(mutant("tpu", core, port=port, bit=0), number=2)
    assert tests.tests_for(inside) == ["units/host/test_bus_watchdog"]
    shown = []
    verdicts = dict(tests.judge_all([inside, outside], 1, shown.append))
    assert (verdicts[1].how, verdicts[1].by) == (UNIT, "units/host/test_bus_watchdog")
    assert verdicts[2] is None
    assert [line.partition(":")[0] for line in shown] == [
        "units/host/test_bus_watchdog without a fault"
    ]
