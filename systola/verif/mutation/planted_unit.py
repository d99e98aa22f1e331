# SPDX-License-Identifier: Apache-2.0
"""A unit with a planted fault, for the unit's own tests.

PLANTED_FAULT in the environment has the place of the fault in JSON. With "none" the unit goes the
same way to Verilog without a fault.
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
    """Return the environment in which tests get units with this fault."""
    return {_VARIABLE: json.dumps(asdict(place)) if place else _NONE}


def is_asked_for() -> bool:
    """Return whether the tests of units are to get a fault."""
    return _VARIABLE in os.environ


def planted_verilog(rtlil: str, top: str) -> str | None:
    """Return Verilog of a design with the fault that the environment requests.

    Returns None if the design does not have its place.
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
    """Return the modules in which faults are planted; `folder` is for temporary files."""
    script = READ.format(top=top) + "write_json design.json\n"
    run_script(rtlil, script, folder, f"reading '{top}'")
    return json.loads((folder / "design.json").read_text())["modules"]
