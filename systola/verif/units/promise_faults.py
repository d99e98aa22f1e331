# SPDX-License-Identifier: Apache-2.0
"""The planted faults of promise_faults.toml, each of which breaks one promise."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from systola.verif.formal.proof import Fault

TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A promise that a fault breaks: `new` instead of `old` in `unit`.py, seen by `bench`."""

    bench: str
    promise: str
    old: str
    new: str
    unit: str = ""

    @property
    def fault(self) -> Fault:
        """Return the fault; without `unit` it is in the file of the bench."""
        return Fault(unit=self.unit or self.bench, old=self.old, new=self.new)


BROKEN = tuple(Broken(**each) for each in tomllib.loads(TABLE.read_text(encoding="utf-8"))["fault"])
