# SPDX-License-Identifier: Apache-2.0
"""Functions that plant a fault in a unit, for a run of the unit's own tests.

The environment variable PLANTED_FAULT has the place of the fault (a FaultPlace) in JSON. With
"none", Yosys converts the unit to Verilog as for a fault, but plants none.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from systola.verif.mutation.design import LINT, sources_shortened
from systola.verif.mutation.fault_place import FaultPlace, Modules
from systola.verif.mutation.mutants import READ, WRITE, run_script

_VARIABLE = "PLANTED_FAULT"
_NONE = "none"
NO_SUCH_PLACE = "the unit as this test makes it has no such place"


def asked_for(place: FaultPlace | None) -> dict[str, str]:
    """Return the environment variable, with its value, that plants this fault in tested units.

    Without a place, the variable's value is "none".
    """
    return {_VARIABLE: json.dumps(asdict(place)) if place else _NONE}


def is_asked_for() -> bool:
    """Return whether the environment requests a fault in the tested units."""
    return _VARIABLE in os.environ


def planted_verilog(rtlil: str, top: str) -> str | None:
    """Return Verilog of a design with the fault that the environment requests.

    Returns None if the design has no cell at the requested place.
    """
    chosen = os.environ[_VARIABLE]
    read = READ.format(top=top)
    rtlil = sources_shortened(rtlil)
    with TemporaryDirectory() as name:
        folder = Path(name)
        commands: list[str] = []
        if chosen != _NONE:
            mutant = FaultPlace(**json.loads(chosen)).among_modules(modules_of(rtlil, top, folder))
            if mutant is None:
                return None
            commands = [mutant.command]
        script = "\n".join([*commands, *WRITE, ""])
        run_script(rtlil, read + script, folder, f"planting a fault in '{top}'")
        waivers = re.findall(r"^lint_off -rule \w+", LINT.read_text(), re.MULTILINE)
        off = (f"// verilator {waiver.replace('-rule ', '')}\n" for waiver in waivers)
        return "".join(off) + (folder / "design.v").read_text()


def modules_of(rtlil: str, top: str, folder: Path) -> Modules:
    """Return the modules of a design, read by Yosys; `folder` is for temporary files."""
    script = READ.format(top=top) + "write_json design.json\n"
    run_script(rtlil, script, folder, f"reading '{top}'")
    return json.loads((folder / "design.json").read_text())["modules"]
