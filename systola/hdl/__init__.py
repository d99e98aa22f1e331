# SPDX-License-Identifier: Apache-2.0
"""The machine in Amaranth: a folder for each part of it, one unit in each file."""

from importlib import import_module
from pathlib import Path
from types import ModuleType


def module_of(unit: str) -> ModuleType:
    """Import the file called `unit`, from whichever folder has it. Raises LookupError if there is
    no such file.
    """
    root = Path(__file__).parent
    for path in root.rglob(f"{unit}.py"):
        place = path.relative_to(root).with_suffix("")
        return import_module(".".join(("systola.hdl", *place.parts)))
    raise LookupError(f"no file of hdl/ is called {unit}.py")
