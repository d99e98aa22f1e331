# SPDX-License-Identifier: Apache-2.0
"""The planted faults of promise_faults.toml, each of which breaks one promise of a unit."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from systola.verif.formal.proof import Fault

TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A promise, and a fault that breaks it: text `new` instead of `old` in `unit`.py.

    The bench named `bench` must see it.
    """

    bench: str
    promise: str
    old: str
    new: str
    unit: str = ""

    @property
    def fault(self) -> Fault:
        """The fault to plant, in the file of `unit`, or of the bench's unit if `unit` is empty."""
        return Fault(unit=self.unit or self.bench, old=self.old, new=self.new)


BROKEN = tuple(Broken(**each) for each in tomllib.loads(TABLE.read_text(encoding="utf-8"))["fault"])
