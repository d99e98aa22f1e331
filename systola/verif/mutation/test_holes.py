# SPDX-License-Identifier: Apache-2.0
"""Test of holes: faults that an earlier mutation campaign did not find.

Trials were later written for each hole, as docs/mutants.md describes. The faults are planted in the
campaigns' machine, since a smaller machine lacks some of the faulty bits.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from systola.hdl.commands import HostReadEntry, MatrixCommand
from systola.verif.kit.seeds import random_seed
from systola.verif.mutation.design import MACHINE
from systola.verif.mutation.doubled import Cell, Module
from systola.verif.mutation.leftovers import leftover_trials
from systola.verif.mutation.limits import edge_trials
from systola.verif.mutation.mutants import READ, Mutant, mutated_library, run_script
from systola.verif.mutation.stops import stop_trials
from systola.verif.mutation.trial import Differs, survive

_QUEUES = "tpu.core.scoreboard"
_MATRIX = MatrixCommand(config=MACHINE.config)
_STEP = _MATRIX["walk"].shape["step"]


def _named(module: Module, name: str) -> str:
    """Return `name`, after a check that a cell of the module has this name."""
    assert name in module["cells"]
    return name


def _written(module: Module, _: str) -> str:
    """Return the name of the module's only cell that writes a memory."""
    (found,) = (name for name, cell in module["cells"].items() if cell["type"] == "$memwr_v2")
    return found


def _reset_of(module: Module, name: str) -> str:
    """Return the name of the multiplexer cell that resets the register `name`."""
    bits = module["netnames"][name]["bits"]
    register = _with(module, "Q", bits)
    return next(
        cell
        for cell, each in module["cells"].items()
        if each["connections"].get("Y") == register["connections"]["D"]
        and "S" in each["connections"]
    )


def _with(module: Module, port: str, bits: list[Any]) -> Cell:
    """Return the module's first cell that has the bits `bits` at the port `port`."""
    return next(c for c in module["cells"].values() if c["connections"].get(port) == bits)


HOLES = {
    "a height decides": (
        *(f"{_QUEUES}.matrix_queue.commands.memory", _written, "", "DATA", "cnot1"),
        _MATRIX["height"].offset + 5,
        _MATRIX["walk"].offset + _STEP.offset + _STEP.shape["oy"].offset + 18,
        "lower edge",
    ),
    "a width decides": (
        *(f"{_QUEUES}.matrix_queue.commands.memory", _written, "", "DATA", "cnot1"),
        *(_MATRIX["width"].offset + 2, _MATRIX["width"].offset + 13, "right edge"),
    ),
    "the number of a late read": (
        *(f"{_QUEUES}.host_read_queue.commands", _written, "", "DATA", "const0"),
        *(HostReadEntry(config=MACHINE.config)["pc"].offset + 16, 0, "far host_read_error"),
    ),
    "the place of the next masks": (
        *(f"{_QUEUES}.matrix_queue", _reset_of, "push_place", "S", "const0", 0, 0),
        "products that wait",
    ),
    "a queue that still has products": (
        *(_QUEUES, _named, "matrix_queue", "scoreboard_rst", "const0", 0, 0),
        "products that wait",
    ),
    "lines that still wait": (
        *("tpu.core.host_writer", _named, "lines", "host_writer_rst", "const0", 0, 0),
        "after lines",
    ),
}
"""Place of the fault for each hole, by the hole's name.

A place has: module, function that finds the cell and its argument, port, mode, bit, control bit.
The last item is a text that is in the names of the trials written for the hole.
"""


@pytest.mark.thorough
def test_holes(tmp_path):
    """Check that all trials pass without a fault, and each fault fails one of its own trials."""
    script = READ.format(top=MACHINE.top) + "write_json design.json\n"
    run_script(MACHINE.rtlil, script, tmp_path, "reading the machine")
    modules = json.loads((tmp_path / "design.json").read_text())["modules"]
    mutants = [
        Mutant(
            **{"number": number, "mode": mode, "module": module, "port": port},
            **{"bit": bit, "control": control, "signal": name, "sources": ()},
            cell=find(modules[module], inside),
        )
        for number, (name, (module, find, inside, port, mode, bit, control, _)) in enumerate(
            HOLES.items(), start=1
        )
    ]
    library = mutated_library(MACHINE, mutants)
    seed = random_seed()
    trials = [
        *edge_trials(MACHINE.config, seed),
        *leftover_trials(MACHINE.config, seed),
        *(trial for trial in stop_trials(MACHINE.config, seed) if trial.name.startswith("far ")),
    ]
    survivors: list[str] = []
    for mutant, hole in zip(mutants, HOLES.values(), strict=True):
        chosen = [trial for trial in trials if hole[-1] in trial.name]
        usual, _ = survive(MACHINE, library, 0, chosen, None)
        try:
            survive(MACHINE, library, mutant.number, chosen, usual)
        except Differs:
            continue
        survivors.append(mutant.signal)
    assert not survivors
