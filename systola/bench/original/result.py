# SPDX-License-Identifier: Apache-2.0
"""The results of the applications on the RTL, with their dates: results.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from systola.arch.config import PRESETS
from systola.arch.registers import CycleClass

RESULTS = Path(__file__).with_name("results.json")
PRESET = "v1"
MHZ = 700
"""Clock of the original, in MHz."""


@dataclass(frozen=True)
class Result:
    """A result of one application on the RTL. All its bytes in host memory were compared."""

    key: str
    """Key of the machine and the program. A result with another key was measured on another machine
    or program.
    """
    macs: int
    """Multiply-accumulates of the layers for the batch, without padded channels and empty columns.
    """
    weight_bytes: int
    """Bytes of weight tiles that the program reads, padding included."""
    cycles: int
    counters: dict[str, int]
    """Cycles of each CycleClass by its name in lower case; their sum is `cycles`."""
    estimate: int
    """Cycles of the program in the timing model."""
    outputs: int
    """Number of bytes of all outputs."""
    golden_seconds: float
    """Time of the golden model, in seconds."""
    seconds: float
    """Time of the simulation on the computer that ran it, in seconds."""
    date: str
    commit: str

    @property
    def tops(self) -> float:
        """Speed at the clock, in 10^12 operations a second; a multiply-accumulate is two
        operations.
        """
        return 2 * self.macs * MHZ * 1e6 / self.cycles / 1e12

    @property
    def useful(self) -> float:
        """Cycles that the multiply-accumulates would take if all of the array worked on them."""
        return self.macs / PRESETS[PRESET].peak_macs

    def share(self, *classes: CycleClass) -> float:
        """Return the share of all cycles, 0 to 1, that belongs to some classes."""
        return sum(self.counters[which.name.lower()] for which in classes) / self.cycles


def stored(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results by the name of the application, without applications never measured."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result(**result) for name, result in content.items()}


def store(name: str, result: Result, path: Path = RESULTS) -> None:
    """Store one result in place of its predecessor."""
    content = {known: asdict(of) for known, of in stored(path).items()} | {name: asdict(result)}
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
