# SPDX-License-Identifier: Apache-2.0
"""A Pair that finds out what its programs cover."""

from __future__ import annotations

from collections import Counter
from typing import Any

from systola.arch.config import Config
from systola.arch.isa import Fault
from systola.runtime.backend import Image
from systola.sim.library import RunResult, Simulator
from systola.verif.coverage.counted import counting_library
from systola.verif.coverage.functional import Observer
from systola.verif.coverage.record import Coverage
from systola.verif.regress.check import Pair


class _Counting(Simulator):
    """Keeps the causes of the faults that it has reported."""

    def __init__(self, config: Config, **how: Any) -> None:
        self.faults: Counter[Fault] = Counter()
        super().__init__(config, library=counting_library(config), **how)

    def run(self, image: Image, **how: Any) -> RunResult:
        """As of any machine."""
        result = super().run(image, **how)
        self.faults[result.fault_cause] += 1
        return result


class CountingPair(Pair):
    """`coverage` of all that it has run."""

    def __init__(self, config: Config, **how: Any) -> None:
        self._machine, self._golden = _Counting(config, **how), Observer(config)
        super().__init__(self._machine, self._golden)

    def coverage(self) -> Coverage:
        """Of all programs so far."""
        return Coverage.of(self._machine, self._golden, self._machine.faults)
