# SPDX-License-Identifier: Apache-2.0
"""The record of the verdicts on mutants, kept on disk, with figures and a page made from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from systola.verif.mutation.campaign import Verdict
from systola.verif.mutation.mutants import Mutant
from systola.verif.mutation.unit_tests import UNIT

WHAT = {
    "killed": "a wrong byte, fault, register or tag, a broken rule of AXI, or no end",
    UNIT: "not by programs of the machine, but by the tests of a unit with it",
    "slower": "right, but not in the cycles to which the regression holds the machine",
    "harmless": "proven to make no difference",
    "survived": "not found, and not proven to be harmless",
}


@dataclass
class Record:
    """A record of the verdicts on `mutants`, in a file to which each verdict is added at once."""

    path: Path
    mutants: Sequence[Mutant]
    verdicts: dict[int, Verdict] = field(default_factory=dict[int, Verdict])
    trials: dict[int, int] = field(default_factory=dict[int, int])
    """Number of trials that each surviving mutant has survived, by its number."""
    proofs: dict[int, str] = field(default_factory=dict[int, str])
    """Module inside which a mutant is harmless, by the mutant's number; empty without a proof."""
    tested: dict[int, str] = field(default_factory=dict[int, str])
    """Key of the units' tests that a mutant has survived, by the mutant's number."""

    @classmethod
    def of(cls, folder: Path, mutants: Sequence[Mutant], key: str) -> Record:
        """Return the record for these mutants, with older verdicts stored under the same key."""
        record = cls(folder / f"{key}.jsonl", mutants)
        if record.path.exists():
            for line in record.path.read_text().splitlines():
                entry = json.loads(line)
                if "within" in entry:
                    record.proofs[entry["number"]] = entry["within"]
                elif "tests" in entry:
                    record.tested[entry["number"]] = entry["tests"]
                else:
                    trials = entry.pop("trials")
                    record._take(Verdict(**entry), trials)
        return record

    def open(self, number: int, trials: int) -> bool:
        """Return whether a run of `trials` trials may change the verdict on a mutant."""
        known = self.verdicts.get(number)
        if known is None:
            return not self.proof(number)
        return known.how == "survived" and self.trials[number] < trials and not self.proof(number)

    def untested(self, number: int, tests: str) -> bool:
        """Return whether the units' tests with this key may change the verdict on a mutant."""
        survived = self.how(number) == "survived" and not self.proof(number)
        return survived and self.tested.get(number) != tests

    def unproven(self, number: int) -> bool:
        """Return whether a proof that a mutant is harmless is worth a try."""
        return self.how(number) == "survived" and number not in self.proofs

    def proof(self, number: int) -> str:
        """Return the module inside which a mutant is harmless; empty if none is known."""
        return self.proofs.get(number, "")

    def add(self, verdict: Verdict, trials: int) -> None:
        """Add a verdict to the record."""
        self._take(verdict, trials)
        self._write({**asdict(verdict), "trials": trials})

    def add_proof(self, mutant: Mutant, within: str) -> None:
        """Add a proof to the record; an empty module means that no proof was found."""
        self.proofs[mutant.number] = within
        self._write({"number": mutant.number, "within": within})

    def add_tested(self, number: int, tests: str) -> None:
        """Note that a mutant has survived the units' tests with this key."""
        self.tested[number] = tests
        self._write({"number": number, "tests": tests})

    def _take(self, verdict: Verdict, trials: int) -> None:
        self.verdicts[verdict.number] = verdict
        self.trials[verdict.number] = trials

    def _write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def how(self, number: int) -> str:
        """Return the verdict of the trials; a mutant proven harmless may have had no trial."""
        return self.verdicts[number].how if number in self.verdicts else "survived"

    def state(self, mutant: Mutant) -> str:
        """Return the state of a mutant, one of the keys of `WHAT`."""
        how = self.how(mutant.number)
        return "harmless" if how == "survived" and self.proof(mutant.number) else how

    def counts(self, mutants: Sequence[Mutant] | None = None) -> dict[str, int]:
        """Return the number of mutants in each state, by the keys of `WHAT`."""
        found = Counter(self.state(mutant) for mutant in mutants or self.mutants)
        return {what: found[what] for what in WHAT}

    def score(self) -> float:
        """Return the share found by the regression, among mutants not known to be harmless."""
        counts = self.counts()
        found = counts["killed"] + counts[UNIT] + counts["slower"]
        return found / max(1, found + counts["survived"])

    def summary(self) -> str:
        """Return a line of text with the number of mutants in each state, and the share found."""
        counts = self.counts()
        numbers = ", ".join(f"{count} {what}" for what, count in counts.items())
        return f"{len(self.mutants)} mutants: {numbers}; {100 * self.score():.1f} % found"

    def figures(self) -> dict[str, Any]:
        """Return a dictionary of the figures, and of the state of each mutant."""
        return {
            "mutants": len(self.mutants),
            **self.counts(),
            "found": round(self.score(), 4),
            "seconds": round(sum(verdict.seconds for verdict in self.verdicts.values())),
            "all": [
                {
                    **asdict(mutant),
                    "state": self.state(mutant),
                    "by": self.verdicts[mutant.number].by if mutant.number in self.verdicts else "",
                    "within": self.proof(mutant.number),
                }
                for mutant in self.mutants
            ],
        }

    def page(self, seed: int) -> str:
        """Return a page of text with the figures and the surviving mutants."""
        lines = ["# Mutants", "", f"SEED={seed}. {self.summary()}.", "", "| | mutants | |"]
        lines.append("| --- | --- | --- |")
        lines += [f"| {what} | {n} | {WHAT[what]} |" for what, n in self.counts().items()]
        lines += ["", "## By file", "", f"| file | {' | '.join(WHAT)} |"]
        lines.append("| --- |" + " --- |" * len(WHAT))
        files: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            places = [source.split(":")[0] for source in mutant.sources] or [mutant.unit]
            files.setdefault(places[-1], []).append(mutant)
        for name in sorted(files):
            counts = self.counts(files[name])
            lines.append(f"| {name} | {' | '.join(str(n or '') for n in counts.values())} |")
        for state in ("survived", "slower"):
            lines += ["", f"## {state.capitalize()}", ""]
            lines += [
                f"- {mutant.number}: {mutant.text}"
                for mutant in self.mutants
                if self.state(mutant) == state
            ]
        return "\n".join([*lines, ""])
