# SPDX-License-Identifier: Apache-2.0
"""The designs that faults are planted in: a machine, or the units that join machines to a pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from systola.arch.config import Config, preset
from systola.arch.shared_memory import SharedMemory
from systola.hdl.verilog import generate_pod_rtlil, generate_rtlil
from systola.sim.build import SIM_DIRECTORY
from systola.sim.library import Simulator
from systola.sim.model import VerilatedModel
from systola.sim.pod_library import PodSimulator, build_pod
from systola.sim.verilator import build_library

M = TypeVar("M", bound=VerilatedModel)
"""Type of the simulator that runs a design."""
M_co = TypeVar("M_co", bound=VerilatedModel, covariant=True)
LINT = Path(__file__).with_name("lint.vlt")
"""Control file of Verilator for Verilog that Yosys writes."""
_CONTENTS = "t:$meminit_v2"
"""Pattern of Yosys for cells with the initial contents of memories, which have no mutants."""
_POD_SOURCES = ("hdl/pod/", "hdl/link/", "hdl/control/link_")


class Design(Protocol[M_co]):
    """A design for mutation tests: RTLIL to plant faults in, and functions that simulate it."""

    @property
    def name(self) -> str:
        """Return the design's name for messages."""
        ...

    @property
    def top(self) -> str:
        """Return the name of the design's top module."""
        ...

    @property
    def chosen(self) -> str:
        """Return the pattern with which Yosys selects the cells that faults are planted in."""
        ...

    @property
    def rtlil(self) -> str:
        """Return the design in RTLIL, with source files relative to the top of the project."""
        ...

    def library(self, verilog: str, optimise: str) -> Path:
        """Return a simulator, built from Verilog of the design with faults.

        `optimise` is an option of the C++ compiler.
        """
        ...

    def simulator(self, library: Path | None, fault: int, memory: tuple[int, float]) -> M_co:
        """Return a running simulator with fault number `fault`, 0 for no fault.

        `memory` is the latency and the stall probability of the memories. Without a library, the
        simulator is built from the design without mutants.
        """
        ...


@dataclass(frozen=True)
class MachineDesign:
    """A design that is a whole machine."""

    config: Config
    top: ClassVar[str] = "tpu"
    chosen: ClassVar[str] = f"{_CONTENTS} %n"

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def rtlil(self) -> str:
        return sources_shortened(generate_rtlil(self.config))

    def library(self, verilog: str, optimise: str) -> Path:
        name = f"{self.name} with mutants"
        return build_library(verilog, name=name, options=(str(LINT),), optimise=optimise)

    def simulator(self, library: Path | None, fault: int, memory: tuple[int, float]) -> Simulator:
        latency, stall = memory
        return Simulator(
            self.config, latency=latency, stall=stall, seed=1, library=library, fault=fault
        )


@dataclass(frozen=True)
class PodDesign:
    """A design that is a pod with a shared memory; faults are in the units of pods and links."""

    config: Config
    cores: int
    shared: SharedMemory
    top: ClassVar[str] = "pod"
    chosen: ClassVar[str] = (
        " ".join(f"a:src=*{source}*" for source in _POD_SOURCES)
        + " %u" * (len(_POD_SOURCES) - 1)
        + f" {_CONTENTS} %d"
    )

    @property
    def name(self) -> str:
        return f"{self.config.name} x {self.cores}"

    @cached_property
    def rtlil(self) -> str:
        return sources_shortened(generate_pod_rtlil(self.config, self.cores, self.shared))

    def library(self, verilog: str, optimise: str) -> Path:
        how = {"options": (str(LINT),), "optimise": optimise}
        return build_pod(verilog, self.config, self.cores, self.shared, **how)

    def simulator(
        self, library: Path | None, fault: int, memory: tuple[int, float]
    ) -> PodSimulator:
        latency, stall = memory
        return PodSimulator(
            self.config,
            self.cores,
            latency=latency,
            stall=stall,
            seed=1,
            shared=self.shared,
            library=library,
            fault=fault,
        )


def sources_shortened(rtlil: str) -> str:
    """Return RTLIL with the names of source files relative to the top of the project."""
    return rtlil.replace(f"{SIM_DIRECTORY.parent}/", "")


MACHINE = MachineDesign(
    Config(
        name="mutated",
        rows=4,
        cols=4,
        columns_per_stage=2,
        buffer_lines=1 << 19,
        accumulator_rows=1 << 15,
        parameter_entries=2048,
        tables=8,
        host_bus_bytes=4,
        weight_bus_bytes=4,
        max_burst_beats=256,
    )
)
"""The machine for mutation tests, with all units and instructions but those for training.

The array is small, and the memories have their largest sizes, so that every bit of an address or a
length matters.
"""
POD = PodDesign(preset("tiny-links"), 3, SharedMemory(word_bytes=16))
"""The pod for mutation tests, which has every unit of a pod.

The pod has three cores, so that a core has two different neighbours.
"""
