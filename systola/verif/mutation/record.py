# SPDX-License-Identifier: Apache-2.0
"""The record of a campaign's verdicts on mutants, stored on disk, and its figures and page.

A mutant is the machine or pod with one planted fault. Each mutant has a number."""

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
    """Number of trials in the run that gave the verdict on a mutant, by the mutant's number."""
    proofs: dict[int, str] = field(default_factory=dict[int, str])
    """Module inside which a mutant is harmless, by the mutant's number; empty without a proof."""
    tested: dict[int, str] = field(default_factory=dict[int, str])
    """Key, a hash of all unit tests' sources, with which a mutant survived, by mutant number."""

    @classmethod
    def of(cls, folder: Path, mutants: Sequence[Mutant], key: str) -> Record:
        """Return the record for these mutants, with any entries stored earlier under this key."""
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
        """Return whether a run of `trials` trials may change the verdict on a mutant.

        It may if the mutant has no verdict yet, or survived fewer trials. A mutant that is proven
        harmless is not run again.
        """
        known = self.verdicts.get(number)
        if known is None:
            return not self.proof(number)
        return known.how == "survived" and self.trials[number] < trials and not self.proof(number)

    def untested(self, number: int, tests: str) -> bool:
        """Return whether a run of the unit tests with the key `tests` may change a verdict.

        It may if the mutant survives, is not proven harmless, and has not run these unit tests.
        """
        survived = self.how(number) == "survived" and not self.proof(number)
        return survived and self.tested.get(number) != tests

    def unproven(self, number: int) -> bool:
        """Return whether a mutant survives, and no proof that it is harmless has been tried yet."""
        return self.how(number) == "survived" and number not in self.proofs

    def proof(self, number: int) -> str:
        """Return the module inside which a mutant is harmless; empty if none is known."""
        return self.proofs.get(number, "")

    def add(self, verdict: Verdict, trials: int) -> None:
        """Add the verdict of a run of `trials` trials to the record and its file."""
        self._take(verdict, trials)
        self._write({**asdict(verdict), "trials": trials})

    def add_proof(self, mutant: Mutant, within: str) -> None:
        """Record that a mutant is proven harmless inside the module `within`.

        If `within` is empty, record that a proof was tried and not found.
        """
        self.proofs[mutant.number] = within
        self._write({"number": mutant.number, "within": within})

    def add_tested(self, number: int, tests: str) -> None:
        """Record that a mutant has survived the unit tests with the key `tests`."""
        self.tested[number] = tests
        self._write({"number": number, "tests": tests})

    def _take(self, verdict: Verdict, trials: int) -> None:
        self.verdicts[verdict.number] = verdict
        self.trials[verdict.number] = trials

    def _write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def how(self, number: int) -> str:
        """Return the verdict on a mutant, or "survived" if no trial of the mutant has run yet."""
        return self.verdicts[number].how if number in self.verdicts else "survived"

    def state(self, mutant: Mutant) -> str:
        """Return the state of a mutant, such as "killed", "harmless" or "survived"."""
        how = self.how(mutant.number)
        return "harmless" if how == "survived" and self.proof(mutant.number) else how

    def counts(self, mutants: Sequence[Mutant] | None = None) -> dict[str, int]:
        """Return the number of mutants in each state, such as "killed"; by default, all count."""
        found = Counter(self.state(mutant) for mutant in mutants or self.mutants)
        return {what: found[what] for what in WHAT}

    def score(self) -> float:
        """Return the share of mutants that were found, out of all not proven harmless (0 to 1)."""
        counts = self.counts()
        found = counts["killed"] + counts[UNIT] + counts["slower"]
        return found / max(1, found + counts["survived"])

    def summary(self) -> str:
        """Return a line of text with the number of mutants in each state, and the share found."""
        counts = self.counts()
        numbers = ", ".join(f"{count} {what}" for what, count in counts.items())
        return f"{len(self.mutants)} mutants: {numbers}; {100 * self.score():.1f} % found"

    def figures(self) -> dict[str, Any]:
        """Return a dictionary for JSON: the campaign's figures, and the state of each mutant."""
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
        """Return a Markdown page with figures, and lists of the surviving and slower mutants."""
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
