# SPDX-License-Identifier: Apache-2.0
"""A Verilated pod that runs programs, clocked entirely in C++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import Fault
from systola.arch.registers import (
    POD_IDENTITY,
    Control,
    CycleClass,
    PodInterrupt,
    PodRegister,
    Register,
    Status,
    core_page,
    counter_offset,
    program_registers,
)
from systola.arch.shared_memory import SharedMemory
from systola.sim.design import pod_verilog_of
from systola.sim.library import HOST_BASE, WEIGHT_BASE, Program
from systola.sim.model import (
    HANDLE,
    LONG,
    NUMBER,
    WORD,
    Functions,
    NoEnd,
    SimulationError,
    VerilatedModel,
)
from systola.sim.sleep import with_sleeping_lanes
from systola.sim.verilator import OPTIMISE, build_library

_FUNCTIONS: Functions = (
    ("memory", None, (WORD, NUMBER, HANDLE, LONG, LONG, WORD, WORD, LONG, LONG, LONG)),
    ("begin", None, ()),
    ("run", NUMBER, (LONG,)),
)
_POLLS = 20_000
"""Largest number of reads of STATUS after a fault or a soft reset. By then the other cores must
have ended.
"""


@dataclass(frozen=True)
class CoreResult:
    """A record of the state that the host sees of a core after the programs of a pod."""

    host: NDArray[np.uint8]
    """Content of the core's host window after the program, uint8 [bytes]."""
    status: Status
    fault_cause: Fault
    fault_pc: int
    fault_address: int
    cycles: int
    """Cycles from the cycle that started all cores to the end of this core's program."""


@dataclass(frozen=True)
class PodResult:
    """A record of the state that the host sees of a pod."""

    status: Status
    first_fault: tuple[int, Fault] | None
    """Core and cause of the first fault; None without a fault."""
    cores: tuple[CoreResult, ...]

    @property
    def cycles(self) -> int:
        """Cycles from the common start until the last core has ended."""
        return max(core.cycles for core in self.cores)


@dataclass(frozen=True)
class _Window:
    """A record of a core's memories: bus addresses, and `host`, the array that the core changes."""

    host: NDArray[np.uint8]
    host_base: int
    weight_base: int


def _ports(config: Config, cores: int, shared: SharedMemory | None) -> str:
    """Return the ports of a pod as C++ for the harness."""
    hosts = weights = " ".join(f"X({core}, m_axi_NAME{core})" for core in range(cores))
    if shared:
        hosts, weights = "X(0, m_axi_memory)", ""
    numbers = {
        "MEMORIES": 1 if shared else cores,
        "HOST_BUS": shared.word_bytes if shared else config.host_bus_bytes,
        "WEIGHT_BUS": shared.word_bytes if shared else config.weight_bus_bytes,
        "SHARED": int(shared is not None),
    }
    return "".join(
        [
            *(f"constexpr unsigned {name} = {number};\n" for name, number in numbers.items()),
            f"#define FOR_HOSTS(X) {hosts.replace('NAME', 'host')}\n",
            f"#define FOR_WEIGHTS(X) {weights.replace('NAME', 'weight')}\n",
        ]
    )


def build_pod(
    verilog: str,
    config: Config,
    cores: int,
    shared: SharedMemory | None,
    *,
    options: Sequence[str] = (),
    optimise: str = OPTIMISE,
) -> Path:
    """Build the library of a pod from its Verilog; see build_library."""
    return build_library(
        verilog,
        name=f"{config.name} x {cores}",
        options=options,
        optimise=optimise,
        top="pod",
        numbers=_ports(config, cores, shared),
    )


class PodSimulator(VerilatedModel):
    """A Verilated pod of `cores` cores of a configuration, which gets links if it has none.

    Each core has memories of its own, or all cores have one memory if it is `shared`. For
    `latency`, `stall` and `seed` see VerilatedModel. `stages` is the number of registers between
    two cores. With `uneven` links, credits come back late and unevenly. `library` is a library that
    has been built already, with planted faults; `fault` chooses one of them. Building the library
    takes a while the first time. Raises systola.sim.verilator.BuildError if it cannot be built.
    """

    def __init__(
        self,
        config: Config,
        cores: int,
        *,
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
        stages: int = 2,
        shared: SharedMemory | None = None,
        uneven: bool = False,
        library: Path | None = None,
        fault: int = 0,
    ):
        super().__init__(latency=latency, stall=stall, seed=seed)
        self.config = replace(config, links=True)
        self.cores = cores
        self._shared = shared
        self._memories: dict[tuple[int, bool], NDArray[np.uint8]] = {}
        if library is None:
            verilog = pod_verilog_of(self.config, cores, stages, shared, uneven=uneven)
            library = build_pod(with_sleeping_lanes(verilog), self.config, cores, shared)
        self._open(library, "pod", _FUNCTIONS, ((WORD, fault),))
        if self.read(PodRegister.ID) != POD_IDENTITY:
            raise SimulationError("the pod does not answer with its identity")

    def soft_reset(self) -> None:
        """Abandon programs that run, and wait until no core is busy."""
        self.write(PodRegister.CONTROL, Control.SOFT_RESET)
        self._wait_idle()

    def run(
        self,
        images: Sequence[Program],
        *,
        limit: int = 1_000_000,
        bus_timeout: int = 0,
        host_errors: Sequence[tuple[int, int]] = (),
        abandon_after: int | None = None,
        bases: tuple[int, int] = (HOST_BASE, WEIGHT_BASE),
    ) -> PodResult:
        """Run the program of each of `images` on its core, all started at once, to their ends.

        `bus_timeout` is for the register of that name in each core. `host_errors` are byte ranges
        [low, high) of the host windows that answer with an AXI error. `bases` are the bus addresses
        of each core's host window and weight window; a shared memory begins at the address for host
        windows. Programs that still run after `abandon_after` cycles are ended by SOFT_RESET. A
        fault is a result. Raises NoEnd if the pod does not stop within `limit` cycles, and
        SimulationError if it breaks a rule of AXI.
        """
        windows = self._attached(images, host_errors, bases)
        for core, (image, window) in enumerate(zip(images, windows, strict=True)):
            page = core_page(core)
            for register, value in (
                *program_registers(
                    host_base=window.host_base,
                    host_bytes=len(window.host),
                    weight_base=window.weight_base,
                    tiles=len(image.weights) // self.config.tile_bytes,
                    program=image.program_offset,
                ),
                (Register.BUS_TIMEOUT, bus_timeout),
            ):
                self.write(page + register, value)
        self.write(PodRegister.IRQ_STATUS, PodInterrupt.DONE | PodInterrupt.FAULT)
        self.write(PodRegister.IRQ_ENABLE, PodInterrupt.DONE | PodInterrupt.FAULT)
        self._call("begin")
        self.write(PodRegister.CONTROL, Control.START)
        ended = self._call("run", min(limit, abandon_after or limit))
        self._check()
        if ended == 0 and abandon_after is None:
            raise NoEnd(f"the pod has not ended after {limit} cycles: {self._standing()}")
        if ended == 0:
            self.soft_reset()
        self._wait_idle()
        self._check()
        status = Status(self.read(PodRegister.STATUS))
        first = self.read(PodRegister.FIRST_FAULT)
        return PodResult(
            status=status,
            first_fault=(first >> 8, Fault(first & 0xFF)) if status & Status.FAULT else None,
            cores=tuple(
                self._result(core, np.array(window.host)) for core, window in enumerate(windows)
            ),
        )

    def _attached(
        self,
        images: Sequence[Program],
        host_errors: Sequence[tuple[int, int]],
        bases: tuple[int, int],
    ) -> list[_Window]:
        """Fill the memories, and return the place of each core's windows."""
        errors = host_errors or [(0, 0)] * len(images)
        host_base, weight_base = bases
        if not self._shared:
            windows: list[_Window] = []
            for core, image in enumerate(images):
                host = np.array(image.host, dtype=np.uint8)
                self._attach(core, True, host, host_base, errors[core])
                weights = np.ascontiguousarray(image.weights, dtype=np.uint8)
                self._attach(core, False, weights, weight_base, (0, 0))
                windows.append(_Window(host, host_base, weight_base))
            return windows
        # Offsets of memories: of weights by their content, of a host window by the number of its
        # core.
        places: dict[bytes | int, int] = {}
        parts: list[NDArray[np.uint8]] = []
        size = 0
        for core, image in enumerate(images):
            for key, part in ((image.weights.tobytes(), image.weights), (core, image.host)):
                if key not in places:
                    places[key] = size
                    padding = np.zeros(-len(part) % HOST_PAGE_BYTES, np.uint8)
                    parts += [np.asarray(part, np.uint8), padding]
                    size += len(part) + len(padding)
        memory = np.concatenate(parts)
        wrong = [
            (places[core] + low, places[core] + high)
            for core, (low, high) in enumerate(errors)
            if low < high
        ]
        self._attach(0, True, memory, host_base, wrong[0] if wrong else (0, 0))
        return [
            _Window(
                memory[places[core] : places[core] + len(image.host)],
                host_base + places[core],
                host_base + places[image.weights.tobytes()],
            )
            for core, image in enumerate(images)
        ]

    def _attach(
        self,
        number: int,
        is_host: bool,
        data: NDArray[np.uint8],
        base: int,
        errors: tuple[int, int],
    ) -> None:
        self._call(
            "memory",
            number,
            int(is_host),
            data.ctypes.data,
            len(data),
            base,
            self._latency,
            self._threshold,
            self._seed + number,
            base + errors[0],
            base + errors[1],
        )
        # The C++ side keeps the pointer: the array must live until another replaces it.
        self._memories[number, is_host] = data

    def _wait_idle(self) -> None:
        for _ in range(_POLLS):
            if not self.read(PodRegister.STATUS) & Status.BUSY:
                return
        raise NoEnd(f"the pod is still busy: {self._standing()}")

    def _standing(self) -> str:
        states = [
            Status(self.read(core_page(core) + Register.STATUS)) for core in range(self.cores)
        ]
        return ", ".join(f"core {core} {state!s}" for core, state in enumerate(states))

    def _result(self, core: int, host: NDArray[np.uint8]) -> CoreResult:
        page = core_page(core)
        cycles = 0
        for which in CycleClass:
            offset = page + counter_offset(which)
            cycles += self.read(offset) | self.read(offset + 4) << 32
        return CoreResult(
            host=host,
            status=Status(self.read(page + Register.STATUS)),
            fault_cause=Fault(self.read(page + Register.FAULT_CAUSE)),
            fault_pc=self.read(page + Register.FAULT_PC),
            fault_address=self.read(page + Register.FAULT_ADDRESS),
            cycles=cycles,
        )
