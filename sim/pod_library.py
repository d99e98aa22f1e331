# SPDX-License-Identifier: Apache-2.0
"""Runs programs on a Verilated pod, clocked entirely in C++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
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
from systola.sim.verilator import build_library

_FUNCTIONS: Functions = (
    ("memory", None, (WORD, NUMBER, HANDLE, LONG, LONG, WORD, WORD, LONG, LONG, LONG)),
    ("begin", None, ()),
    ("run", NUMBER, (LONG,)),
)
_POLLS = 20_000
"""Looks at STATUS after a fault, or a soft reset, until the other cores must have ended."""


@dataclass(frozen=True)
class CoreResult:
    """What the host sees of a core after the programs of a pod."""

    host: NDArray[np.uint8]
    """Content of its host window afterwards, uint8 [bytes]."""
    status: Status
    fault_cause: Fault
    fault_pc: int
    fault_address: int
    cycles: int
    """From the cycle that started all cores to the end of its program."""


@dataclass(frozen=True)
class PodResult:
    """What the host sees of a pod."""

    status: Status
    first_fault: tuple[int, Fault] | None
    """Core and cause."""
    cores: tuple[CoreResult, ...]

    @property
    def cycles(self) -> int:
        """Until the last core has ended."""
        return max(core.cycles for core in self.cores)


class PodSimulator(VerilatedModel):
    """A Verilated pod of `cores` cores of a configuration, which gets links where it has none, each
    with memories of its own.

    `latency`, `stall` and `seed`: see VerilatedModel; `stages` are the registers between two cores,
    and with `uneven` links their credits come back late and unevenly.
    Building the library takes a while the first time; it raises
    systola.sim.verilator.BuildError when it cannot be done.
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
        uneven: bool = False,
    ):
        super().__init__(latency=latency, stall=stall, seed=seed)
        self.config = replace(config, links=True)
        self.cores = cores
        self._memories: dict[tuple[int, bool], NDArray[np.uint8]] = {}
        numbers = " ".join(f"X({core})" for core in range(cores))
        library = build_library(
            pod_verilog_of(self.config, cores, stages, uneven=uneven),
            name=f"{config.name} x {cores}",
            top="pod",
            numbers=f"constexpr unsigned CORES = {cores};\n#define FOR_CORES(X) {numbers}\n",
        )
        self._open(library, "pod", _FUNCTIONS, ())
        if self.read(PodRegister.ID) != POD_IDENTITY:
            raise SimulationError("the pod does not answer with its identity")

    def soft_reset(self) -> None:
        """Abandons whatever runs, and waits until no core is busy."""
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
    ) -> PodResult:
        """Runs the program of each of `images` on its core, all started at once, to their ends.

        `bus_timeout` is for the register of that name in each core; `host_errors` are byte ranges
        [low, high) of the host windows that answer with an AXI error. What still runs after
        `abandon_after` cycles is ended by SOFT_RESET. A fault is a result; raises NoEnd when the
        pod does not stop within `limit` cycles, SimulationError when it breaks a rule of AXI.
        """
        hosts = [np.array(image.host, dtype=np.uint8) for image in images]
        for core, (image, host) in enumerate(zip(images, hosts, strict=True)):
            weights = np.ascontiguousarray(image.weights, dtype=np.uint8)
            self._attach(core, True, host, host_errors[core] if host_errors else (0, 0))
            self._attach(core, False, weights, (0, 0))
            page = core_page(core)
            for register, value in (
                *program_registers(
                    host_base=HOST_BASE,
                    host_bytes=len(host),
                    weight_base=WEIGHT_BASE,
                    tiles=len(weights) // self.config.tile_bytes,
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
            cores=tuple(self._result(core, host) for core, host in enumerate(hosts)),
        )

    def _attach(
        self, core: int, is_host: bool, data: NDArray[np.uint8], errors: tuple[int, int]
    ) -> None:
        base = HOST_BASE if is_host else WEIGHT_BASE
        self._call(
            "memory",
            core,
            int(is_host),
            data.ctypes.data,
            len(data),
            base,
            self._latency,
            self._threshold,
            self._seed + core,
            base + errors[0],
            base + errors[1],
        )
        # The C++ side keeps the pointer: the array must live until the next one takes its place.
        self._memories[core, is_host] = data

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
