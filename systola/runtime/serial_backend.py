# SPDX-License-Identifier: Apache-2.0
"""A back end that is a board at the other end of a serial line."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image, check_image
from systola.arch.isa import Fault
from systola.arch.registers import (
    IDENTITY,
    TRACE_DEPTH,
    VERSION,
    Control,
    CycleClass,
    Interrupt,
    Register,
    Status,
    counter_offset,
    program_registers,
    trace_offset,
)
from systola.arch.serial_protocol import IDENTITY as BOARD_IDENTITY
from systola.arch.serial_protocol import MAX_WORDS, WORD_BYTES, BoardWord, configuration_word
from systola.golden.outcome import FaultReport
from systola.runtime.backend import BackendError, Result, UnavailableError
from systola.runtime.serial_link import Line, SerialLink
from systola.sim.notices import sign_of_life

PROGRAM_SECONDS = 300.0
"""Time that a program may take by default, in seconds."""
RESET_SECONDS = 5.0
"""Time for transfers under way to end after a soft reset, in seconds."""
_BLOCK = MAX_WORDS * WORD_BYTES


class RoomError(BackendError):
    """An error for a program that needs more memory than the board has."""


class SerialBackend:
    """A Backend that runs programs on the board at the other end of `line`.

    The host window lies at the start of the board's memory, the weight window after it. Blocks that
    the board is known to hold are not sent again. `moved` is called with the bytes of memory
    transferred so far. A program may take `program_seconds`, in seconds of this computer's clock.
    Raises UnavailableError if the board does not answer, or if another device is at the other end
    of the line. Raises UnavailableError, too, if the board has a machine other than `config`.
    """

    def __init__(
        self,
        config: Config,
        line: Line,
        *,
        moved: Callable[[int], None] | None = None,
        program_seconds: float = PROGRAM_SECONDS,
    ) -> None:
        self._config = config
        self._name = line.name
        self._program_seconds = program_seconds
        self._programs = 0
        self._link = link = SerialLink(line, moved=moved)
        if (found := link.read_board(BoardWord.IDENTITY)) != BOARD_IDENTITY:
            raise UnavailableError(f"what answers on {line.name} is no board: 0x{found:08x}")
        identity, version = link.read_registers(Register.ID, 2)
        if (identity, version) != (IDENTITY, VERSION):
            raise UnavailableError(
                f"the board on {line.name} has registers of version {version}, not {VERSION}"
            )
        if link.read_board(BoardWord.CONFIGURATION) != configuration_word(config):
            geometry = link.read_registers(Register.GEOMETRY, 1)[0]
            raise UnavailableError(
                f"the board on {line.name} has another machine than '{config.name}': an array "
                f"of {geometry & 0xFFFF}x{geometry >> 16}, built with other sizes or options"
            )
        self._size = link.read_board(BoardWord.MEMORY_BYTES)
        self._clock_hz = link.read_board(BoardWord.CLOCK_HZ)
        self._content = np.zeros(self._size, np.uint8)
        self._known = np.zeros(-(-self._size // _BLOCK), np.bool_)

    @property
    def config(self) -> Config:
        """The configuration of the machine."""
        return self._config

    @property
    def clock_hz(self) -> int:
        """The clock of the machine, in hertz."""
        return self._clock_hz

    @property
    def programs(self) -> int:
        """Number of programs that the machine has begun so far."""
        return self._programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Run the program of `image`, see Backend.

        Raises RoomError if the windows are larger than the memory of the board. Raises
        UnavailableError if the board no longer answers, or the program takes too long.
        """
        check_image(self._config, image)
        link = self._link
        size = len(image.host)
        weights = -(-size // HOST_PAGE_BYTES) * HOST_PAGE_BYTES
        if (needed := weights + len(image.weights)) > self._size:
            raise RoomError(
                f"the program needs {needed:,} bytes for its windows, the board has {self._size:,}"
            )
        self._reset()
        self._send(0, image.host)
        self._send(weights, image.weights)
        for register, value in program_registers(
            host_base=0,
            host_bytes=size,
            weight_base=weights,
            tiles=len(image.weights) // self._config.tile_bytes,
            program=image.program_offset,
        ):
            link.write_register(register, value)
        self._known[: -(-size // _BLOCK)] = False
        self._programs += 1
        link.write_register(Register.CONTROL, Control.START)
        with sign_of_life("the board runs the program"):
            status = self._await_end(progress)
        host = self._fetch(size)
        fault = None
        if status & Status.FAULT:
            cause, pc, address = link.read_registers(Register.FAULT_CAUSE, 3)
            fault = FaultReport(Fault(cause), pc, address)
        raised = link.read_registers(Register.IRQ_STATUS, 1)[0] & Interrupt.PROGRAM
        counters = self._counters()
        tags, missing = self._trace()
        return Result(
            host=host,
            fault=fault,
            interrupts=link.read_registers(Register.IRQ_CODE, 1) if raised else (),
            cycles=sum(counters.values()),
            counters=counters,
            tags=tags,
            missing_tags=missing,
            simulated_cycles_per_second=None,
        )

    def _await_end(self, progress: Callable[[int], None] | None) -> int:
        """Return STATUS after the program has ended, and resume the program at each
        Synchronize_Host.
        """
        last = time.monotonic() + self._program_seconds
        while not (status := self._status()) & (Status.DONE | Status.FAULT):
            cycles = sum(self._counters().values())
            if time.monotonic() > last:
                raise UnavailableError(
                    f"the program on {self._name} has not ended after {self._program_seconds:g} s "
                    f"and {cycles:,} cycles (--program-seconds N waits longer)"
                )
            if status & Status.WAITING:
                self._link.write_register(Register.CONTROL, Control.RESUME)
            if progress:
                progress(cycles)
        return status

    def _status(self) -> int:
        return self._link.read_registers(Register.STATUS, 1)[0]

    def _reset(self) -> None:
        """End a program that another process may have left running."""
        if not self._status() & Status.BUSY:
            return
        self._link.write_register(Register.CONTROL, Control.SOFT_RESET)
        last = time.monotonic() + RESET_SECONDS
        while self._status() & Status.BUSY:
            if time.monotonic() > last:
                raise UnavailableError(
                    f"the board on {self._name} stays busy after a reset: switch it off and on"
                )

    def _send(self, base: int, content: NDArray[np.uint8]) -> None:
        """Write the blocks of `content` that the memory does not hold.

        `base` is a byte address, a multiple of the size of a block.
        """
        for start in range(0, len(content), _BLOCK):
            part = content[start : start + _BLOCK]
            place = slice(base + start, base + start + len(part))
            block = (base + start) // _BLOCK
            if not self._known[block] or not np.array_equal(self._content[place], part):
                padded = part.tobytes() + bytes(-len(part) % WORD_BYTES)
                self._known[block] = False
                self._link.write_memory(place.start, padded)
                self._content[place] = part
                self._known[block] = len(part) == _BLOCK

    def _fetch(self, size: int) -> NDArray[np.uint8]:
        """Read the host window, which is whole blocks."""
        content = np.frombuffer(self._link.read_memory(0, size), np.uint8).copy()
        self._content[:size] = content
        self._known[: size // _BLOCK] = True
        return content

    def _counters(self) -> dict[str, int]:
        words = self._link.read_registers(counter_offset(CycleClass(0)), 2 * len(CycleClass))
        return {
            which.name.lower(): words[2 * which] | words[2 * which + 1] << 32
            for which in CycleClass
        }

    def _trace(self) -> tuple[tuple[tuple[int, int], ...], int]:
        """Return the tags that the trace still holds, in order, and the number of tags lost."""
        count = self._link.read_registers(Register.TAGS, 1)[0]
        if not count:
            return (), 0
        words = self._link.read_registers(Register.TRACE, 2 * TRACE_DEPTH)
        tags: list[tuple[int, int]] = []
        for number in range(max(0, count - TRACE_DEPTH), count):
            first = (trace_offset(number) - Register.TRACE) // WORD_BYTES
            tags.append((words[first], words[first + 1]))
        return tuple(tags), count - len(tags)
