# SPDX-License-Identifier: Apache-2.0
"""What faults are planted in: a machine, or what makes several a pod."""

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
"""What runs a design."""
M_co = TypeVar("M_co", bound=VerilatedModel, covariant=True)
LINT = Path(__file__).with_name("lint.vlt")
"""Control file of Verilator for what Yosys writes."""
_CONTENTS = "t:$meminit_v2"
"""The initial contents of memories, which have no mutants."""
_POD_SOURCES = ("hdl/pod/", "hdl/link/", "hdl/control/link_")


class Design(Protocol[M_co]):
    """RTLIL to plant faults in, and how it is run."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def top(self) -> str:
        """The module around all others."""
        ...

    @property
    def chosen(self) -> str:
        """Yosys's selection of the cells that faults are planted in."""
        ...

    @property
    def rtlil(self) -> str:
        """The design for Yosys; places in the source are told from the top of the project."""
        ...

    def library(self, verilog: str, optimise: str) -> Path:
        """The simulator of its Verilog with faults; `optimise` is for the C++ compiler."""
        ...

    def simulator(self, library: Path | None, fault: int, memory: tuple[int, float]) -> M_co:
        """It runs, with fault number `fault`, 0 for none, and latency and stalls of its memories;
        without a library, as it is."""
        ...


@dataclass(frozen=True)
class MachineDesign:
    """A machine, all of it."""

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
    """A pod with a shared memory, and of its cores what links them."""

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
    """RTLIL in which places in the source are told from the top of the project."""
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
"""Every unit and every instruction of a machine that does not train. The array is small, and
memories are as large as they may be: so that every bit of an address or a length counts."""
POD = PodDesign(preset("tiny-links"), 3, SharedMemory(word_bytes=16))
"""Two sides, each with a neighbour of its own; every unit of a pod."""
