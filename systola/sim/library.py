# SPDX-License-Identifier: Apache-2.0
"""A Verilated machine that runs programs, clocked entirely in C++."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Fault
from systola.arch.registers import (
    IDENTITY,
    Control,
    CycleClass,
    Interrupt,
    Register,
    Status,
    counter_offset,
    program_registers,
)
from systola.sim.design import is_hierarchical, verilog_of
from systola.sim.events import with_events
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
from systola.sim.recording import Recording, read_recording
from systola.sim.shown import fields_named
from systola.sim.sleep import with_sleeping_lanes
from systola.sim.state import described, with_state
from systola.sim.verilator import build_library
from systola.sim.waves import save_files

HOST_BASE = 0x1_0000_0000
"""Bus address of the host window, above 32 bits, so that the upper words of the bases are tested.
"""
WEIGHT_BASE = 0x2_0000_0000

POLL_CYCLES = 16
"""Cycles between two reads of STATUS, by which the host sees that a program waits. Reads take place
in cycles of a program that are a multiple of this number, unless the host uses the registers.
Between them the host reads new entries of the trace."""

WAVEFORMS = (".vcd", ".fst")

_CYCLES_A_CALL = 1 << 20
"""Cycles between two returns to Python, for progress and the user's Control-C."""
_CYCLE_TIME = 2
"""Units of a waveform's time in a clock cycle: one for each level of the clock."""
_DEFAULT_LIMIT = 1 << 40
_FUNCTIONS: Functions = (
    ("memory", None, (NUMBER, HANDLE, *4 * (LONG,), WORD, WORD, *5 * (LONG,))),
    ("run", NUMBER, (LONG, LONG)),
    ("cycles", LONG, ()),
    ("tags", LONG, (ctypes.POINTER(ctypes.POINTER(WORD)), ctypes.POINTER(LONG))),
    ("now", LONG, ()),
    ("state", WORD, (ctypes.POINTER(ctypes.c_uint8),)),
    ("time", LONG, (LONG,)),
    ("written", ctypes.c_int64, (LONG,)),
    ("recording", WORD, 2 * (ctypes.POINTER(HANDLE), ctypes.POINTER(LONG))),
)
_ONGOING, _WAITING = 0, 2
"""Results of the library's `tpu_run` for a program that still runs, and for a program that waits
for the host."""


class Program(Protocol):
    """A program for `Simulator.run`: the part of a systola.runtime.backend.Image that it needs."""

    @property
    def host(self) -> NDArray[np.uint8]:
        """Content of the host window, uint8 [a multiple of 4096]."""
        ...

    @property
    def program_offset(self) -> int:
        """Byte offset of the first instruction in the host window."""
        ...

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Content of the weight window, uint8 [a multiple of Config.tile_bytes]."""
        ...


@dataclass(frozen=True)
class RunResult:
    """A record of the state that the host sees after a program."""

    host: NDArray[np.uint8]
    """Content of the host window after the program, uint8 [bytes]."""
    status: Status
    fault_cause: Fault
    fault_pc: int
    fault_address: int
    irq_status: Interrupt
    irq_code: int
    cycles: int
    """Cycles from the cycle that accepts START to the cycle in which DONE or FAULT is visible. For
    a program that was abandoned, the cycles to the end of BUSY."""
    counters: dict[str, int]
    """Cycles of each class, by the name of the CycleClass in lower case."""
    tags: tuple[tuple[int, int], ...]
    """The trace: cycle since START and tag of each Debug_Tag instruction, in order. Cycle 0 accepts
    START."""
    missing_tags: int
    """Number of tags that are not in `tags`: later tags replaced them in the trace before the host
    read them."""
    seconds: float
    """Time that the simulation of these cycles took, in seconds."""


class Simulator(VerilatedModel):
    """A Verilated machine with its two memories.

    For `latency`, `stall` and `seed` see VerilatedModel.

    `waves` is the path of a waveform to write, .vcd or .fst, see
    systola.sim.verilator.waveform_suffix. With a `window`, the waveform has only the cycles from
    its first up to its second number. Cycles of all programs are counted one after the other.
    `records` builds a machine that shows its events and levels, see `recording`.

    `verilog` replaces the Verilog that belongs to `config`, in which lanes sleep unless there are
    waves. `library` replaces the library that is built from the Verilog. `fault` is the number of a
    planted fault if the library has such faults, see systola.verif.mutation.

    Building the library takes a while the first time. Raises systola.sim.verilator.BuildError if it
    cannot be built.
    """

    def __init__(
        self,
        config: Config,
        *,
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
        waves: Path | None = None,
        window: tuple[int, int] | None = None,
        records: bool = False,
        verilog: str | None = None,
        library: Path | None = None,
        fault: int = 0,
    ):
        super().__init__(latency=latency, stall=stall, seed=seed)
        if waves is not None and waves.suffix not in WAVEFORMS:
            raise ValueError(f"a waveform is called {' or '.join(WAVEFORMS)}, not {waves.name}")
        self.config = config
        self._how = {"latency": latency, "stall": stall, "seed": seed}
        self._is_own = verilog is None and library is None
        self._waves = waves
        self._program = b""
        if library is None:
            text = verilog if verilog is not None else verilog_of(config, promises=True)
            if records:
                text = with_events(text)
            if waves:
                text = fields_named(text)
            elif self._is_own:
                text = with_sleeping_lanes(text)
            library = build_library(
                text,
                name=config.name,
                hierarchical=is_hierarchical(text),
                waves=waves.suffix if waves else "",
            )
        path = str(waves).encode() if waves else None
        first, end = window or (0, _DEFAULT_LIMIT)
        create = ((ctypes.c_char_p, path), (LONG, first), (LONG, end), (WORD, fault))
        self._open(library, "tpu", _FUNCTIONS, create)
        if self.read(Register.ID) != IDENTITY:
            raise SimulationError("the machine does not answer with its identity")

    def written_at(self, offset: int) -> int | None:
        """Return the cycle in which a byte of the host window was last written; None if it was not
        written.

        The cycle counts from START of the last program, `offset` is in bytes.
        """
        cycle = self._call("written", offset)
        return None if cycle < 0 else cycle

    def save_waves(self, cycle: int | None) -> Path:
        """Write save files beside the waveform, and return the path of GTKWave's.

        A marker stands `cycle` cycles after START of the last program. The waveform is complete
        after `close`.
        """
        assert self._waves is not None
        marker = None if cycle is None else self._call("time", cycle)
        return save_files(
            self._waves,
            verilog_of(self.config, promises=True),
            "tpu",
            scope="tpu.",
            cycle=_CYCLE_TIME,
            marker=marker,
            program=self._program,
        )

    def recording(self) -> Recording:
        """Return the events of the last program; empty unless the machine is built to record."""
        return read_recording(self._library, self._handle)

    def soft_reset(self, *, limit: int = 100_000) -> None:
        """Abandon a program that runs, and wait until the machine is idle."""
        self.write(Register.CONTROL, Control.SOFT_RESET)
        for _ in range(limit):
            if not self.read(Register.STATUS) & Status.BUSY:
                return
        raise SimulationError("still busy long after the soft reset")

    def run(
        self,
        image: Program,
        *,
        limit: int = _DEFAULT_LIMIT,
        progress: Callable[[int], None] | None = None,
        interval: int = _CYCLES_A_CALL,
        host_errors: tuple[int, int] = (0, 0),
        weight_errors: tuple[int, int] = (0, 0),
        host_silence: tuple[int, int] = (0, 0),
        weight_silence: tuple[int, int] = (0, 0),
        bus_timeout: int = 0,
        on_wait: Callable[[NDArray[np.uint8]], None] | None = None,
        abandon_after: int | None = None,
        by_reset: bool = False,
        bases: tuple[int, int] = (HOST_BASE, WEIGHT_BASE),
        skipped: tuple[int, int] = (0, 0),
    ) -> RunResult:
        """Run the program of `image` to its end, and return the state that the host then sees.

        `progress` is called with the cycles so far, every `interval` cycles and at the end.

        `host_errors` and `weight_errors` are byte ranges [low, high) of the windows that answer
        with an AXI error. Bursts with a byte in `host_silence` or `weight_silence` are never
        answered, nor are later bursts. The machine then stays busy, see `reset`. `bus_timeout` is
        for the register of that name.

        `bases` are the bus addresses of the two windows. The first `skipped` bytes of each are not
        in the image and must not be accessed: so a window can be larger than any memory.

        When the program waits at Synchronize_Host, `on_wait` is called with the content of the host
        window, which it may change. Then the host writes RESUME. A program that is still running
        after `abandon_after` cycles is ended by SOFT_RESET or, with `by_reset`, by the reset input.

        A fault of the program is a result. Raises SimulationError if the machine does not stop
        within `limit` cycles, or breaks a rule of AXI.
        """
        host = np.array(image.host, dtype=np.uint8)
        self._program = host[image.program_offset :].tobytes()
        weights = np.ascontiguousarray(image.weights, dtype=np.uint8)
        self._attach(True, host, bases[0] + skipped[0], host_errors, host_silence)
        self._attach(False, weights, bases[1] + skipped[1], weight_errors, weight_silence)
        for register, value in (
            *program_registers(
                host_base=bases[0],
                host_bytes=skipped[0] + len(host),
                weight_base=bases[1],
                tiles=(skipped[1] + len(weights)) // self.config.tile_bytes,
                program=skipped[0] + image.program_offset,
            ),
            (Register.BUS_TIMEOUT, bus_timeout),
            (Register.IRQ_ENABLE, Interrupt.DONE | Interrupt.FAULT),
        ):
            self.write(register, value)
        first = self._call("now")
        started = time.perf_counter()
        self.write(Register.CONTROL, Control.START)
        last = limit if abandon_after is None else min(limit, abandon_after)
        state, spent = _ONGOING, 0
        while state == _ONGOING and spent < last:
            chunk = min(interval if progress else _CYCLES_A_CALL, last - spent)
            state = self._call("run", chunk, POLL_CYCLES)
            if state == _WAITING:
                if on_wait:
                    on_wait(host)
                self.write(Register.CONTROL, Control.RESUME)
                state = _ONGOING
            spent = self._call("now") - first
            if progress:
                progress(spent)
        abandoned = state == _ONGOING and last == abandon_after
        if abandoned:
            if by_reset:
                self.reset()
            else:
                self.soft_reset()
        seconds = time.perf_counter() - started
        self._check()
        if state == _ONGOING and not abandoned:
            about = self._state(self._program)
            raise NoEnd(f"the program has not ended after {limit} cycles{about}")
        return self._result(host, seconds, abandoned)

    def what_hangs(self, image: Program, **how: Any) -> str:
        """Run a program that does not end once more, and describe the state in which the machine
        hangs.

        `how` are arguments of `run`. The program runs after a reset, on a simulator that can show
        this state. This simulator is slower, and is built now. For a machine with a library or
        Verilog of its own the text is empty.
        """
        if not self._is_own:
            return ""
        text = with_state(verilog_of(self.config, promises=True))
        try:
            with Simulator(self.config, verilog=text, **self._how) as other:
                other.run(image, **how)
        except NoEnd as error:
            return str(error).partition("\n")[2]
        return "alone, after a reset, it does end"

    def _attach(
        self,
        is_host: bool,
        data: NDArray[np.uint8],
        base: int,
        errors: tuple[int, int],
        silence: tuple[int, int],
    ) -> None:
        self._call(
            "memory",
            int(is_host),
            data.ctypes.data,
            len(data),
            base,
            base,
            base + len(data),
            self._latency,
            self._threshold,
            self._seed,
            base + errors[0],
            base + errors[1],
            base + silence[0],
            base + silence[1],
        )
        # The C++ side keeps the pointer: the array must live until another replaces it.
        setattr(self, "_host" if is_host else "_weights", data)

    def _result(self, host: NDArray[np.uint8], seconds: float, abandoned: bool) -> RunResult:
        counters: dict[str, int] = {}
        for which in CycleClass:
            low = self.read(counter_offset(which))
            counters[which.name.lower()] = low | self.read(counter_offset(which) + 4) << 32
        tags, missing_tags = self._trace()
        return RunResult(
            host=host,
            status=Status(self.read(Register.STATUS)),
            fault_cause=Fault(self.read(Register.FAULT_CAUSE)),
            fault_pc=self.read(Register.FAULT_PC),
            fault_address=self.read(Register.FAULT_ADDRESS),
            irq_status=Interrupt(self.read(Register.IRQ_STATUS)),
            irq_code=self.read(Register.IRQ_CODE),
            cycles=sum(counters.values()) if abandoned else self._call("cycles"),
            counters=counters,
            tags=tags,
            missing_tags=missing_tags,
            seconds=seconds,
        )

    def _state(self, program: bytes) -> str:
        state = (ctypes.c_uint8 * 64)()
        size = self._call("state", state)
        return f"\n{described(int.from_bytes(state[:size], 'little'), program)}" if size else ""

    def _trace(self) -> tuple[tuple[tuple[int, int], ...], int]:
        pairs, missing = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_uint64()
        count = self._call("tags", ctypes.byref(pairs), ctypes.byref(missing))
        self._check()
        words = pairs[: 2 * count]
        return tuple(zip(words[::2], words[1::2], strict=True)), missing.value
