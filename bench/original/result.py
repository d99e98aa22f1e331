# SPDX-License-Identifier: Apache-2.0
"""What the RTL took for each application, and when: results.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from systola.arch.config import PRESETS
from systola.arch.registers import CycleClass

RESULTS = Path(__file__).with_name("results.json")
PRESET = "v1"
MHZ = 700
"""The clock of the original."""


@dataclass(frozen=True)
class Result:
    """One application on the RTL. Every byte that it left in host memory was compared."""

    key: str
    """Of the machine and the program: a result with another key is of something else."""
    macs: int
    """Multiply-accumulates of the layers for the batch: no padded channel, no empty column."""
    weight_bytes: int
    """Bytes of weight tiles that the program reads, padding included."""
    cycles: int
    counters: dict[str, int]
    """Cycles of each CycleClass by its name in lower case; they sum to `cycles`."""
    estimate: int
    """What the timing model says of the program."""
    outputs: int
    """Bytes of outputs."""
    golden_seconds: float
    """What the golden model took."""
    seconds: float
    """What the simulation took, on the machine that ran it."""
    date: str
    commit: str

    @property
    def tops(self) -> float:
        """Operations (two for each multiply-accumulate) a second, by 10^12, at the clock."""
        return 2 * self.macs * MHZ * 1e6 / self.cycles / 1e12

    @property
    def useful(self) -> float:
        """Cycles that the multiply-accumulates would take if all of the array worked on them."""
        return self.macs / PRESETS[PRESET].peak_macs

    def share(self, *classes: CycleClass) -> float:
        """Part of all cycles that belongs to some classes, 0 to 1."""
        return sum(self.counters[which.name.lower()] for which in classes) / self.cycles


def stored(path: Path = RESULTS) -> dict[str, Result]:
    """By the name of the application; those that were never measured are missing."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result(**result) for name, result in content.items()}


def store(name: str, result: Result, path: Path = RESULTS) -> None:
    """Puts one result in the place of its predecessor."""
    content = {known: asdict(of) for known, of in stored(path).items()} | {name: asdict(result)}
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
