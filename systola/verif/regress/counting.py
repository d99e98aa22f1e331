# SPDX-License-Identifier: Apache-2.0
"""A simulated machine, and a Pair with a golden model, that record coverage of their programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.sim.library import RunResult, Simulator
from systola.verif.coverage.counted import counting_library
from systola.verif.coverage.functional import Observer
from systola.verif.coverage.record import Coverage
from systola.verif.regress.check import Pair


class CountingSimulator(Simulator):
    """A simulated machine that counts coverage; `faults` counts the ends of programs by fault."""

    def __init__(self, config: Config, **how: Any) -> None:
        self.faults: Counter[Fault] = Counter()
        super().__init__(config, library=counting_library(config), **how)

    def run(self, image: Image, **how: Any) -> RunResult:
        """Run a program as Simulator.run does, and count the fault in which the program ends."""
        result = super().run(image, **how)
        self.faults[result.fault_cause] += 1
        return result


class CountingPair(Pair):
    """A pair of machine and golden model that records the coverage of all programs run on them."""

    def __init__(self, machine: CountingSimulator) -> None:
        self._machine, self._golden = machine, Observer(machine.config)
        super().__init__(machine, self._golden)

    def coverage(self) -> Coverage:
        """Return the coverage of all programs that the pair has run so far."""
        return Coverage.of(self._machine, self._golden, self._machine.faults)
