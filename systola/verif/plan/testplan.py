# SPDX-License-Identifier: Apache-2.0
"""The testplan: each feature, its stage, its tests, and the results of the last run.

`python -m systola.verif.plan.testplan --write docs` writes docs/testplan.md from testplan.toml.
`--check docs` exits with status 1 if the page is out of date, or if the plan disagrees with the
present tests or machine. `--results FILE` prints the plan with the results in FILE, a report that
pytest --junitxml has written. The exit status is then 1 if a feature has no passed test, or a
failed test.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from systola.arch.isa import BY_OPCODE, Fault
from systola.arch.pages import table, write_or_check
from systola.verif.kit.checkout import module_name

VERIF = Path(__file__).parents[1]
PLAN = Path(__file__).with_name("testplan.toml")
STAGES = {
    1: "the function is shown",
    2: "its corners and limits, its faults and its neighbours too",
    3: "every case, by exhaustion or proof, or expected values that come from outside",
}
RESULTS = "--results"


@dataclass(frozen=True)
class Feature:
    """A feature that the project promises, with the tests that show it.

    `tests` has names as FOLDER/MODULE (all tests of a module in verif/) or FOLDER/MODULE:NAME.
    """

    name: str
    what: str
    stage: int
    tests: tuple[str, ...]


def features(path: Path = PLAN) -> list[Feature]:
    """Return the features of the testplan, in its order."""
    plan = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Feature(name, entry["what"], entry["stage"], tuple(entry["tests"]))
        for name, entry in plan.items()
    ]


def problems(plan: Sequence[Feature]) -> list[str]:
    """Return a line for each place where the testplan disagrees with the tests or the machine.

    Examples are a test that does not exist, and an instruction without a feature.
    """
    found = [
        f"{feature.name}: no test {test}"
        for feature in plan
        for test in feature.tests
        if not _exists(test)
    ]
    found += [
        f"{feature.name}: no stage {feature.stage}"
        for feature in plan
        if feature.stage not in STAGES
    ]
    found += [f"{feature.name}: no tests" for feature in plan if not feature.tests]
    named = {test for feature in plan for test in feature.tests}
    for path in sorted(VERIF.rglob("test_*.py")):
        module = module_name(path)
        if not any(test.partition(":")[0] == module for test in named):
            found.append(f"{module} is in no feature's tests")
    promised = {feature.name for feature in plan}
    found += [f"{name} is not in the plan" for name in _expected() if name not in promised]
    return found


def _expected() -> Iterator[str]:
    """Yield the names of features that the plan must have.

    Each instruction, fault and hardware unit is such a feature.
    """
    yield from (f"isa.{entry.mnemonic}" for entry in BY_OPCODE.values())
    yield from (f"fault.{fault.name.lower()}" for fault in Fault if fault is not Fault.NONE)
    for path in sorted((VERIF.parent / "hdl").rglob("*.py")):
        if "(wiring.Component)" in path.read_text(encoding="utf-8"):
            yield f"unit.{path.stem}"


def _exists(test: str) -> bool:
    module, _, name = test.partition(":")
    return (VERIF / f"{module}.py").is_file() and (not name or name in _functions(module))


@cache
def _functions(module: str) -> frozenset[str]:
    """Return the names of all functions in a test module, for pytest and for cocotb."""
    tree = ast.parse((VERIF / f"{module}.py").read_text(encoding="utf-8"))
    return frozenset(
        item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def page() -> str:
    """Return the text of docs/testplan.md."""
    plan = features()
    folders = defaultdict[str, list[Feature]](list)
    for feature in plan:
        folders[feature.name.partition(".")[0]].append(feature)
    stages = "\n".join(f"- **{stage}**: {text}" for stage, text in STAGES.items())
    parts = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
        "<!-- Made by `python -m systola.verif.plan.testplan --write docs` from\n"
        "     verif/plan/testplan.toml. Edit that instead. -->\n\n"
        "# Testplan\n\n"
        "What is promised, how far it is tested, and by which tests. Every instruction, every\n"
        "cause of a fault and every unit of the machine has its line, and every test module is\n"
        "in one. "
        "`make lint` checks that, and `make testplan` adds what the last\n`make test-all` said.\n\n"
        f"Stages:\n\n{stages}\n\n"
        "A name without `test_` behind the colon is that of a cocotb test.\n"
    ]
    for folder, members in folders.items():
        parts.append(f"\n## {folder.capitalize()}\n\n")
        parts.append(
            table(
                ("Feature", "What", "Stage", "Tests"),
                (
                    (
                        feature.name.partition(".")[2].replace("_", " "),
                        feature.what,
                        str(feature.stage),
                        ", ".join(f"`{test.replace('/test_', '/')}`" for test in feature.tests),
                    )
                    for feature in members
                ),
            )
        )
    return "".join(parts)


def verdicts(results: Path) -> Mapping[str, Counter[str]]:
    """Return the number of runs with each outcome, for each test function in a report.

    Outcomes are "passed", "failed", "skipped" and "expected failure". Test functions have names as
    in the testplan. `results` is a report that pytest --junitxml wrote.
    """
    found = defaultdict[str, Counter[str]](Counter)
    for case in ElementTree.parse(results).iter("testcase"):
        module = case.attrib["classname"].partition("verif.")[2].replace(".", "/")
        name = case.attrib["name"].partition("[")[0]
        outcome = "passed"
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = "failed"
            elif child.tag == "skipped":
                expected = child.attrib.get("type") == "pytest.xfail"
                outcome = "expected failure" if expected else "skipped"
        found[f"{module}:{name}"][outcome] += 1
    return found


def summary(feature: Feature, found: Mapping[str, Counter[str]]) -> Counter[str]:
    """Return the number of test runs of a feature with each outcome.

    The report has no single cocotb tests, so a cocotb test counts as all tests of its module.
    """
    total: Counter[str] = Counter()
    counted: set[str] = set()
    for test in feature.tests:
        module, _, name = test.partition(":")
        one = name.startswith("test_")
        counted |= {key for key in found if (key == test if one else key.startswith(f"{module}:"))}
    for key in counted:
        total += found[key]
    return total


def _report(results: Path) -> int:
    """Print each feature with the outcomes of its tests in a report, and return the exit status."""
    if not results.is_file():
        print(f"no results in {results}: run make test-all", file=sys.stderr)
        return 2
    found = verdicts(results)
    status = 0
    for feature in features():
        total = summary(feature, found)
        shown = total["passed"] and not total["failed"]
        status |= not shown
        numbers = ", ".join(f"{count} {outcome}" for outcome, count in sorted(total.items()))
        print(
            f"{'shown' if shown else 'NOT SHOWN':10}{feature.name:32}stage {feature.stage}   "
            f"{numbers or 'not run'}"
        )
    return status


def main(arguments: Sequence[str]) -> int:
    """Write or check docs/testplan.md, or print the plan with results; return the exit status."""
    if arguments and arguments[0] == RESULTS:
        return _report(Path(arguments[1]))
    found = problems(features())
    for problem in found:
        print(problem, file=sys.stderr)
    return write_or_check({"testplan.md": page}, __spec__.name, arguments) or bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
