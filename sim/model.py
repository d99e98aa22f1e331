# SPDX-License-Identifier: Apache-2.0
"""What a Verilated machine and a Verilated pod have in common, seen from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from systola.sim.memory import stall_threshold

HANDLE, WORD, LONG, NUMBER = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
"""Types of arguments and results of the C functions."""
Functions = Iterable[tuple[str, Any, Sequence[Any]]]
"""Names without their prefix, results, and arguments behind the handle."""
_FUNCTIONS: Functions = (
    ("destroy", None, ()),
    ("reset", None, ()),
    ("write", NUMBER, (WORD, WORD)),
    ("read", NUMBER, (WORD, ctypes.POINTER(WORD))),
    ("complaint", ctypes.c_char_p, ()),
    ("coverage", None, (ctypes.c_char_p,)),
)
_LARGEST_SEED = (1 << 31) - 1
"""Of what Verilator's random numbers start from; 0 would be a seed of the moment."""


class SimulationError(RuntimeError):
    """The simulated machine broke a rule: no end within the limit, or a fault on its buses."""


class NoEnd(SimulationError):
    """A program that has not ended within its limit."""


class VerilatedModel:
    """A model behind the C functions of its harness. Not to be shared between threads.

    `latency` (cycles), `stall` (probability) and `seed` describe the memories, see
    systola.sim.memory; on-chip memories start with random contents that depend on `seed`.
    """

    def __init__(self, *, latency: int, stall: float, seed: int) -> None:
        if not 0 <= latency < 1 << 32:
            raise ValueError(f"latency is a number of cycles below 2^32, not {latency}")
        if not 0 <= seed < 1 << 59:
            raise ValueError(f"a seed is below 2^59, not {seed}")
        self._latency = latency
        self._threshold = stall_threshold(stall)
        self._seed = seed

    def _open(
        self, library: Path, prefix: str, functions: Functions, create: Sequence[tuple[Any, Any]]
    ) -> None:
        """Makes the model of a built library, whose functions begin with `prefix`: the common ones
        and these. `create`: types and values of what the model is made of, but for the seed."""
        self._library = ctypes.CDLL(str(library))
        self._prefix = prefix
        for name, result, arguments in (*_FUNCTIONS, *functions):
            function = getattr(self._library, f"{prefix}_{name}")
            function.restype, function.argtypes = result, [HANDLE, *arguments]
        make = getattr(self._library, f"{prefix}_create")
        make.restype, make.argtypes = HANDLE, [*(kind for kind, _ in create), NUMBER]
        self._handle = make(*(value for _, value in create), self._seed % _LARGEST_SEED + 1)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, f"{self._prefix}_{name}")(self._handle, *arguments)

    def close(self) -> None:
        """Frees the model and finishes its waveform, if any. Closing twice is harmless."""
        if self._handle:
            self._call("destroy")
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def write(self, register: int, value: int) -> None:
        """Writes a 32-bit register over AXI4-Lite."""
        if (response := self._call("write", register, value)) != 0:
            raise SimulationError(f"writing register 0x{register:03x}: {_answer(response)}")

    def read(self, register: int) -> int:
        """Reads a 32-bit register over AXI4-Lite."""
        value = WORD()
        if (response := self._call("read", register, ctypes.byref(value))) != 0:
            raise SimulationError(f"reading register 0x{register:03x}: {_answer(response)}")
        return value.value

    def reset(self) -> None:
        """Holds the reset input for some cycles; the memories forget what they were asked for."""
        self._call("reset")

    def write_coverage(self, path: Path) -> None:
        """Writes what has been covered so far, in a library that was built to count it."""
        self._call("coverage", str(path).encode())

    def _check(self) -> None:
        if complaint := self._call("complaint"):
            raise SimulationError(complaint.decode())


def _answer(response: int) -> str:
    return "no answer" if response < 0 else f"AXI response {response}"
