# SPDX-License-Identifier: Apache-2.0
"""Proofs that mutants are harmless, so that no test can find them.

`dead` finds mutants that reach no output of the design at all (systola.verif.mutation.reach).
`harmless` finds mutants without an effect on the module around the fault, with Yosys' SAT solver.

A mutant makes a difference if in some cycle it changes a register, a memory, a multiplier or an
output of the module. State and inputs are the same with and without the fault
(systola.verif.mutation.doubled). A proof refutes such a difference for the first cycles after
power-up and, by induction, for any state that has enough predecessors. Outputs of memories and
multipliers and inputs of the module are free, so a proof holds wherever the module is placed. If a
proof fails, the module around it is tried, up to the whole design.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from systola.synth.tools import find_tool
from systola.verif.mutation.design import Design, M
from systola.verif.mutation.doubled import Bit, Module, doubled
from systola.verif.mutation.mutants import READ, SELECT, Mutant, planting, run_script
from systola.verif.mutation.reach import reaching

DISTANCE = 3
"""Number of successive registers through which a proof follows values back."""
_MODULE = re.compile(r"^module \\(\S+)$")
_CELL = re.compile(r"^  cell \\(\S+) ")
_PROOF = """\
read_json {file}
hierarchy -top top
opt_clean
sat -tempinduct -prove differs 0 -maxsteps {steps}
"""
_PROVEN = "Induction step proven: SUCCESS!"


def dead(design: Design[M], mutants: Sequence[Mutant], folder: Path) -> list[Mutant]:
    """Return the mutants at places from which no path leads to an output of the design.

    `folder` is for temporary files.
    """
    script = [
        *planting(design.top, mutants),
        *("flatten", "opt_expr", "opt_clean", "write_json all.json"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    what = "looking for mutants that reach nothing"
    run_script(design.rtlil, "\n".join(script) + "\n", folder, what)
    module: Module = json.loads((folder / "all.json").read_text())["modules"][design.top]
    select: list[Bit] = module["ports"][SELECT]["bits"]
    reached = reaching(module)
    alive: set[int] = set()
    for cell in module["cells"].values():
        ports = cell["connections"]
        if cell["type"] == "$eq" and select in ports.values() and ports["Y"][0] in reached:
            (value,) = (bits for port, bits in ports.items() if port != "Y" and bits != select)
            alive.add(int("".join(map(str, reversed(value))), 2))
    return [mutant for mutant in mutants if mutant.number not in alive]


def harmless(
    design: Design[M],
    mutants: Sequence[Mutant],
    folder: Path,
    *,
    seconds: int,
    jobs: int,
    tried: Callable[[Mutant, str], None],
) -> None:
    """Try to prove each mutant harmless, and report each result to `tried`.

    `tried` gets the mutant and the module in which it makes no difference, or an empty text without
    a proof. `seconds` is the limit for one proof. The files left in `folder` may be deleted.
    """
    around = _surroundings(design)
    folder.mkdir(parents=True, exist_ok=True)
    work = [(mutant, mutant.module) for mutant in mutants]
    while work:
        _plant(design, work, folder)
        left: list[tuple[Mutant, str]] = []
        with ThreadPoolExecutor(jobs) as pool:
            files = [folder / f"{mutant.number}.json" for mutant, _ in work]
            proofs = pool.map(lambda file: _proven(file, seconds), files)
            for (mutant, module), proven in zip(work, proofs, strict=True):
                if proven or module not in around:
                    tried(mutant, module if proven else "")
                else:
                    left.append((mutant, around[module]))
        work = left


def _surroundings(design: Design[M]) -> dict[str, str]:
    """Return a map from the name of a module to the name of the module that contains it."""
    around: dict[str, str] = {}
    module = ""
    for line in design.rtlil.splitlines():
        if match := _MODULE.match(line):
            module = match[1]
        elif match := _CELL.match(line):
            around[match[1]] = module
    return around


def _plant(design: Design[M], work: Sequence[tuple[Mutant, str]], folder: Path) -> None:
    """Write a netlist for each proof: the flat module, with the logic after the fault copied."""
    script = [*READ.format(top=design.top).splitlines(), "design -save whole"]
    for mutant, module in work:
        script += [
            "design -load whole",
            f"{mutant.command} -ctrl {SELECT} 1 1",
            f"hierarchy -top {module}",
            "flatten",
            "opt_clean",
            f"write_json {mutant.number}.json",
        ]
    run_script(design.rtlil, "\n".join(script) + "\n", folder, "planting survivors")
    for mutant, module in work:
        file = folder / f"{mutant.number}.json"
        whole = json.loads(file.read_text())["modules"][module]
        file.write_text(json.dumps({"modules": {"top": doubled(whole, SELECT, DISTANCE)}}))


def _proven(file: Path, seconds: int) -> bool:
    script = file.with_suffix(".ys")
    script.write_text(_PROOF.format(file=file.name, steps=DISTANCE + 1))
    # The limit is in processor time, so that a proof does not depend on other running work.
    limited = f'ulimit -t {seconds}; exec "$0" "$1"'
    done = subprocess.run(
        ["sh", "-c", limited, find_tool("yosys").path, script.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        errors="replace",
    )
    return done.returncode == 0 and _PROVEN in done.stdout
