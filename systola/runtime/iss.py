# SPDX-License-Identifier: Apache-2.0
"""The golden model as a back end: it runs instruction by instruction, without a clock."""

from __future__ import annotations

from collections.abc import Callable

from systola.arch.config import Config
from systola.arch.image import Image, check_image
from systola.golden.machine import Machine
from systola.runtime.backend import Result


class GoldenBackend:
    """A Backend that runs programs on the golden model."""

    def __init__(self, config: Config) -> None:
        self._machine = Machine(config)
        self._programs = 0

    @property
    def config(self) -> Config:
        """The configuration of the machine."""
        return self._machine.config

    @property
    def programs(self) -> int:
        """Number of programs that the machine has begun so far."""
        return self._programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Run the program of `image`, see Backend; `progress` is never called."""
        check_image(self.config, image)
        self._programs += 1
        host = image.host.copy()
        outcome = self._machine.run(host, image.weights, image.program_offset)
        return Result(
            host=host,
            fault=outcome.fault,
            interrupts=outcome.interrupts,
            cycles=None,
            counters={},
            tags=tuple((None, tag) for tag in outcome.tags),
            missing_tags=0,
            simulated_cycles_per_second=None,
        )
