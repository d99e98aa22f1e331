# SPDX-License-Identifier: Apache-2.0
"""The place of a fault in the source, which finds the same fault in a unit alone.

The same lines make the same cells in the machine and in a unit, under any names of Yosys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from systola.verif.mutation.doubled import Cell, Module
from systola.verif.mutation.mutants import Mutant

Modules = Mapping[str, Module]
"""The modules of a design, as Yosys writes them in JSON."""
_NUMBERED = re.compile(r"(?<=.)\$\d+$")


@dataclass(frozen=True)
class FaultPlace:
    """A place of a fault, independent of the names in a netlist.

    `among` cells of the fault's module have type `kind` and the same `sources`. The fault is in
    cell `number` of these cells, in the design's order, in a port of `width` bits. `unit` is the
    name of the fault's module in the module around it. `file` is the source file of most cells of
    the fault's module; cells that Yosys has made have no source.
    """

    unit: str
    file: str
    kind: str
    sources: str
    number: int
    among: int
    width: int
    port: str
    bit: int
    mode: str
    control: int

    @classmethod
    def of(cls, mutant: Mutant, modules: Modules) -> FaultPlace:
        """Return the place of a mutant in the source, found with the machine's modules."""
        module = modules[mutant.module]
        cell = module["cells"][mutant.cell]
        kind, sources = _made_by(cell)
        same = _alike(module, kind, sources)
        return cls(
            unit=mutant.unit.rpartition(".")[2],
            file=source_file(module),
            kind=kind,
            sources=sources,
            number=same.index(mutant.cell),
            among=len(same),
            width=len(cell["connections"][mutant.port]),
            port=mutant.port,
            bit=mutant.bit,
            mode=mutant.mode,
            control=mutant.control,
        )

    def among_modules(self, modules: Modules) -> Mutant | None:
        """Return the fault as a mutant of another design, None if the design lacks its place.

        A suitable module with the same name gets the fault, or else the first suitable module.
        """
        found: list[Mutant] = []
        for name, module in modules.items():
            same = _alike(module, self.kind, self.sources)
            if len(same) == self.among and source_file(module) == self.file:
                cell = same[self.number]
                if len(module["cells"][cell]["connections"].get(self.port, ())) == self.width:
                    found.append(self._mutant(name, cell))
        found.sort(key=lambda mutant: mutant.unit.rpartition(".")[2] != self.unit)
        return found[0] if found else None

    def _mutant(self, module: str, cell: str) -> Mutant:
        return Mutant(
            number=1,
            mode=self.mode,
            module=module,
            cell=cell,
            port=self.port,
            bit=self.bit,
            control=self.control,
            signal="",
            sources=tuple(self.sources.split("|")),
        )


def source_file(module: Module) -> str:
    """Return the file in hdl/ from which most cells of a module come, such as "walker".

    A module without such cells has an empty name.
    """
    files: Counter[str] = Counter()
    for cell in module["cells"].values():
        for source in _made_by(cell)[1].split("|"):
            folder, _, line = source.rpartition("/")
            if folder.partition("/")[0] == "hdl":
                files[line.partition(".")[0]] += 1
    return max(files, key=lambda name: files[name], default="")


def _made_by(cell: Cell) -> tuple[str, str]:
    """Return type and source lines of a cell; a module in a module has its name as type."""
    kind = _NUMBERED.sub("", cell["type"].rpartition(".")[2])
    return kind, cell["attributes"].get("src", "")


def _alike(module: Module, kind: str, sources: str) -> list[str]:
    cells = module["cells"]
    return [name for name, cell in cells.items() if _made_by(cell) == (kind, sources)]
