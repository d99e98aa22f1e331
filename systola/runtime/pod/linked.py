# SPDX-License-Identifier: Apache-2.0
"""Cores that run programs at the same time, with links if there are several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image, check_image
from systola.arch.isa import Fault
from systola.golden.outcome import FaultReport
from systola.golden.pod import Pod
from systola.runtime.backend import Backend, BackendError, fault_text
from systola.runtime.make_backend import BACKENDS, make_backend
from systola.runtime.rtl import fault_report, simulator_errors

_SILENCE = 1_000_000
"""Cycles without a beat after which a core that waits for a beat ends with a fault."""
_LIMIT = 1 << 40


@dataclass(frozen=True)
class LinkedResult:
    """A record of one run of a program on each core: host memories and cycles."""

    hosts: list[NDArray[np.uint8]]
    """Content of each core's host window."""
    cycles: int | None
    """Cycles until the last core has ended; None without a clock."""


class Linked(Protocol):
    """A set of one or more cores that run programs together.

    On-chip memories persist between runs.
    """

    @property
    def config(self) -> Config:
        """The configuration of each core."""
        ...

    @property
    def cores(self) -> int:
        """The number of cores."""
        ...

    def run(self, images: Sequence[Image]) -> LinkedResult:
        """Run a program on each core, all started at once; `images` are not changed.

        Raises ValueError for an image that check_image rejects, and BackendError for a fault.
        """
        ...


def make_linked(
    name: str,
    config: Config,
    cores: int,
    *,
    latency: int = 0,
    stall: float = 0.0,
    seed: int = 0,
) -> Linked:
    """Make `cores` cores of `config` on the back end called `name`, with links if there are
    several.

    The other arguments and the errors are the same as for make_backend.
    """
    if cores == 1:
        return _Single(make_backend(name, config, latency=latency, stall=stall, seed=seed))
    if not config.links:
        config = replace(config, name=f"{config.name}-links", links=True)
    if name == "iss":
        return _GoldenPod(config, cores)
    if name == "rtl":
        return _RtlPod(config, cores, latency=latency, stall=stall, seed=seed)
    raise ValueError(f"unknown back end '{name}' (known: {', '.join(BACKENDS)})")


class _Single:
    cores = 1

    def __init__(self, machine: Backend) -> None:
        self._machine = machine

    @property
    def config(self) -> Config:
        return self._machine.config

    def run(self, images: Sequence[Image]) -> LinkedResult:
        (image,) = images
        result = self._machine.run(image)
        if result.fault:
            raise BackendError(fault_text(result.fault))
        return LinkedResult([result.host], result.cycles)


class _GoldenPod:
    def __init__(self, config: Config, cores: int) -> None:
        self.config = config
        self.cores = cores
        self._pod = Pod(config, cores)

    def run(self, images: Sequence[Image]) -> LinkedResult:
        own: list[Image] = []
        for image in images:
            check_image(self.config, image)
            own.append(replace(image, host=image.host.copy()))
        outcomes = self._pod.run(own)
        _check([outcome.fault for outcome in outcomes])
        return LinkedResult([image.host for image in own], None)


class _RtlPod:
    def __init__(self, config: Config, cores: int, *, latency: int, stall: float, seed: int):
        # Imported here: runs on the golden model need none of the tools of this import.
        from systola.sim.pod_library import PodSimulator

        self.config = config
        self.cores = cores
        with simulator_errors():
            self._pod = PodSimulator(config, cores, latency=latency, stall=stall, seed=seed)

    def run(self, images: Sequence[Image]) -> LinkedResult:
        for image in images:
            check_image(self.config, image)
        with simulator_errors():
            result = self._pod.run(images, limit=_LIMIT, bus_timeout=_SILENCE)
        _check(
            [
                fault_report(core.fault_cause, core.fault_pc, core.fault_address)
                for core in result.cores
            ]
        )
        return LinkedResult([core.host for core in result.cores], result.cycles)


def _check(faults: Sequence[FaultReport | None]) -> None:
    """Raise BackendError for the first fault, before any POD_STOPPED, which another core causes."""
    found = [(fault, core) for core, fault in enumerate(faults) if fault]
    if found:
        fault, core = min(found, key=lambda pair: pair[0].cause == Fault.POD_STOPPED)
        raise BackendError(f"core {core}: {fault_text(fault)}")
