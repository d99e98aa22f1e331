# SPDX-License-Identifier: Apache-2.0
"""The common part of a Verilated machine and a Verilated pod, as Python sees it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from systola.sim.memory import stall_threshold

HANDLE, WORD, LONG, NUMBER = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
"""Types of arguments and results of the C functions: a pointer to the model, and integers of 32
bits, of 64 bits and with a sign."""
Functions = Iterable[tuple[str, Any, Sequence[Any]]]
"""Type of a list of C functions.

Each has its name without prefix, the type of its result, and the types of the arguments after the
handle.
"""
_FUNCTIONS: Functions = (
    ("destroy", None, ()),
    ("reset", None, ()),
    ("write", NUMBER, (WORD, WORD)),
    ("read", NUMBER, (WORD, ctypes.POINTER(WORD))),
    ("complaint", ctypes.c_char_p, ()),
    ("coverage", None, (ctypes.c_char_p,)),
)
_LARGEST_SEED = (1 << 31) - 1
"""Largest seed of Verilator's random numbers. For seed 0 Verilator would choose a seed by the time.
"""


class SimulationError(RuntimeError):
    """An error of a simulated machine: no end within the limit, or a broken rule of its buses."""


class NoEnd(SimulationError):
    """An error for a program that has not ended within its limit."""


class VerilatedModel:
    """A model with the C functions of its harness. Threads must not share a model.

    `latency` (cycles), `stall` (probability) and `seed` describe the memories, see
    systola.sim.memory. On-chip memories start with random contents that depend on `seed`.
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
        """Make the model of a built library with functions that begin with `prefix`.

        `functions` are added to the common functions. `create` has types and values of the
        arguments of the function that makes the model, except the seed.
        """
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
        """Free the model and finish its waveform, if any. Closing twice is harmless."""
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
        """Write a 32-bit register over AXI4-Lite."""
        if (response := self._call("write", register, value)) != 0:
            raise SimulationError(f"writing register 0x{register:03x}: {_answer(response)}")

    def read(self, register: int) -> int:
        """Read a 32-bit register over AXI4-Lite."""
        value = WORD()
        if (response := self._call("read", register, ctypes.byref(value))) != 0:
            raise SimulationError(f"reading register 0x{register:03x}: {_answer(response)}")
        return value.value

    def reset(self) -> None:
        """Hold the reset input for some cycles; the memories drop all requests."""
        self._call("reset")

    def write_coverage(self, path: Path) -> None:
        """Write the coverage so far to a file, in a library that was built to count it."""
        self._call("coverage", str(path).encode())

    def _check(self) -> None:
        if complaint := self._call("complaint"):
            raise SimulationError(complaint.decode())


def _answer(response: int) -> str:
    return "no answer" if response < 0 else f"AXI response {response}"
