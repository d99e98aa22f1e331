# SPDX-License-Identifier: Apache-2.0
"""The generated parts of docs/signoff.md and docs/errata.md.

`python -m systola.verif.signoff.page --write docs` writes these parts. `--check docs` exits with
status 1 if they are out of date.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from systola.arch.config import PRESETS
from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.verif.coverage.__main__ import PRESETS as COVERED
from systola.verif.coverage.summary import waivers
from systola.verif.figures.record import stored
from systola.verif.formal.proofs import PROOFS
from systola.verif.formal.reached import sums
from systola.verif.kit.checkout import ROOT
from systola.verif.plan.testplan import features
from systola.verif.regress.__main__ import PRESETS as RANDOM

HERE = Path(__file__).parent
STAGES = ("D2", "D3", "V2", "V3")
VERDICTS = ("met", "partly", "not", "n/a")
FOUND = ("simulation", "fuzzing", "mutation", "proof", "synthesis", "trial", "inspection")
OPEN = re.compile(r"\b(TODO|FIXME|XXX)\b")
SOURCES = (".py", ".v", ".h", ".cpp", ".vlt")


@dataclass(frozen=True)
class Line:
    """A line of the sign-off checklist."""

    stage: str
    name: str
    verdict: str
    """Verdict on the line of the checklist, one of VERDICTS."""
    evidence: str
    """Evidence for the verdict, in Markdown; a name in braces stands for a number from `facts`."""


@dataclass(frozen=True)
class Bug:
    """A bug of the machine that was found and mended.

    `commit` is the commit that mended the bug, and `part` is the part of the machine.
    """

    commit: str
    part: str
    bug: str
    found: str
    """Way in which the bug was found, one of FOUND."""


def checklist() -> list[Line]:
    """Return all lines of the checklist, in the order of checklist.toml."""
    content = tomllib.loads((HERE / "checklist.toml").read_text(encoding="utf-8"))
    return [
        Line(stage, name, entry["verdict"], entry["evidence"])
        for stage, lines in content.items()
        for name, entry in lines.items()
    ]


def bugs() -> list[Bug]:
    """Return all known bugs, in the order of bugs.toml."""
    content = tomllib.loads((HERE / "bugs.toml").read_text(encoding="utf-8"))
    return [Bug(**each) for each in content["bug"]]


@cache
def facts() -> dict[str, str]:
    """Return the numbers and texts that the checklist's evidence may quote, by name."""
    hardware = list((ROOT / "hdl").rglob("*.py"))
    promises = Counter(
        path for path in hardware for _ in re.finditer(r"\bpromised\w*\(", path.read_text())
    )
    promises.pop(ROOT / "hdl" / "parts" / "promise.py", None)
    bounded = sum(proof.bounded for proof in PROOFS)
    covered = stored()["coverage"].results
    reached, branches, cone, registers = sums()
    counts = {
        "features": len(features()),
        "todos": open_points(),
        "promises": promises.total(),
        "promise_files": len(promises),
        "hdl_files": len(hardware),
        "proofs": len(PROOFS),
        "proven_units": len({proof.unit for proof in PROOFS}),
        "bounded": bounded,
        "induction": len(PROOFS) - bounded,
        "assumptions": sum(map(len, assumptions().values())),
    }
    return {name: str(count) for name, count in counts.items()} | {
        "bins": f"{covered[0].removeprefix('bins ')} of the bins",
        "code_coverage": "; ".join(covered[1:]),
        "point_waivers": point_waivers(list(waivers()), covered),
        "fpv_branches": f"{reached} of {branches} branches of the units that have proofs",
        "fpv_cone": f"{cone} of {registers} bits of registers of the units that have proofs",
        "formal_faults": stored()["formal"].results[0],
    }


def point_waivers(patterns: Sequence[str], results: Sequence[str]) -> str:
    """Return a text with the number of coverage waivers for lines and for branches.

    `patterns` are the waivers. `results` are lines of the stored coverage run. If that run is older
    than all waivers, the text mentions it.
    """
    lines, branches = (
        sum(pattern.startswith(f"{kind} ") for pattern in patterns) for kind in ("line", "branch")
    )
    later = "" if any(" waived" in result for result in results) else ", all made after that run"
    return f"{lines} waivers of lines and {branches} of branches{later}"


def open_points() -> int:
    """Return the number of notes about open work in all source files under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name.endswith(SOURCES)]
    here = Path(__file__)
    texts = [path.read_text(encoding="utf-8") for path in paths if path.exists() and path != here]
    return sum(len(OPEN.findall(text)) for text in texts)


@cache
def assumptions() -> dict[str, list[str]]:
    """Return the assumptions of formal proofs, by file and class or function ("file.name")."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "verif" / "formal").glob("*.py")):
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(part, ast.ClassDef | ast.FunctionDef) or part.name == "assume_stays":
                continue
            texts = [_assumed(node) for node in ast.walk(part) if isinstance(node, ast.Call)]
            if kept := [text for text in texts if text]:
                found[f"{path.stem}.{part.name}"] = kept
    return found


def _assumed(call: ast.Call) -> str | None:
    """Return the text of an assumption that a call in a proof makes, or None if it makes none."""
    match call.func:
        case ast.Name(id="Assume"):
            return f"`{ast.unparse(call.args[0])}`"
        case ast.Name(id="assume_stays"):
            name = call.args[-1]
            return f"{name.value} stays" if isinstance(name, ast.Constant) else "a payload stays"
        case _:
            return None


def checklist_table() -> str:
    """Return two tables of the checklist.

    The first has the number of lines with each verdict, by stage. The second has all lines.
    """
    lines = checklist()
    counts = {
        stage: Counter(line.verdict for line in lines if line.stage == stage) for stage in STAGES
    }
    sums = table(
        ("stage", *VERDICTS),
        [
            (stage, *(str(count[verdict]) for verdict in VERDICTS))
            for stage, count in counts.items()
        ],
    )
    rows = [
        (line.stage, line.name, line.verdict, line.evidence.format(**facts())) for line in lines
    ]
    return f"{sums}\n{table(('stage', 'line', 'verdict', 'evidence'), rows)}"


def sets_table() -> str:
    """Return a table of configurations, with the test campaigns that run on each of them."""
    where = {
        "random programs, garbage, bus errors, silence, resets, register writes": RANDOM,
        "coverage of all kinds of programs": COVERED,
        "the original's applications, every byte (original.md)": ("v1",),
        "networks of the README, every byte (results.md)": ("base",),
    }
    names = dict.fromkeys(name for group in where.values() for name in group)
    rows = [
        (
            f"`{name}`",
            "preset" if name in PRESETS else "",
            "; ".join(what for what, group in where.items() if name in group),
        )
        for name in names
    ]
    return table(("configuration", "", "campaigns"), rows)


def assumptions_table() -> str:
    """Return a table of the assumptions of formal proofs, with a row for each proof harness."""
    rows = [(f"`{where}`", "; ".join(texts)) for where, texts in assumptions().items()]
    return table(("in", "assumed"), rows)


def bugs_table() -> str:
    """Return two tables of bugs: the number of bugs found in each way, and a row for each bug."""
    known = bugs()
    counts = Counter(bug.found for bug in known)
    sums = table(FOUND, [[str(counts[how]) for how in FOUND]])
    rows = [(bug.commit, bug.part, bug.bug, bug.found) for bug in known]
    return f"{sums}\n{table(('mended in', 'part', 'bug', 'found by'), rows)}"


def signoff() -> str:
    """Return the whole text of docs/signoff.md, with its generated parts brought up to date."""
    return filled(
        DOCS / "signoff.md",
        checklist=checklist_table(),
        sets=sets_table(),
        assumptions=assumptions_table(),
    )


def errata() -> str:
    """Return the whole text of docs/errata.md, with its generated part brought up to date."""
    return filled(DOCS / "errata.md", bugs=bugs_table())


PAGES: Pages = {"signoff.md": signoff, "errata.md": errata}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.verif.signoff.page"))
