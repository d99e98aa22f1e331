# SPDX-License-Identifier: Apache-2.0
"""The values of a model's variables between two runs, on a machine or on the host."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.keep import OnChip
from systola.compiler.network import CompiledNetwork
from systola.compiler.program import Program
from systola.runtime.backend import Backend, BackendError, Result, fault_text


class StateLostError(BackendError):
    """An error for variables with values that a machine had and no longer has."""


class State:
    """The values of the variables of a model between two samples, see CompiledModel.state.

    Variables that fit the unified buffer stay there from sample to sample, and from run to run on
    the same machine. They come back to the host when another model or state runs on the machine,
    and when `values` asks for them.
    """

    def __init__(self, compiled: CompiledNetwork) -> None:
        self._first = [variable.first for variable in compiled.variables]
        self._values = list(self._first)
        self._machine: Backend | None = None
        """Machine that has the newest values of some variables; None if the host has all."""
        self._on_chip: OnChip | None = None
        """Variables that the machine has, and the programs that move their values."""
        self._phase = 0
        """Number of the next program, where several run in turn."""
        self._programs = 0
        """Number of programs that the machine had run when the last sample ended."""
        self._lost = ""
        """Reason why values are lost; empty if they are not."""
        self.moving_cycles = 0
        """Cycles, so far, of programs that moved the values to a machine and back."""

    def reset(self) -> None:
        """Begin with the first values again."""
        self._leave()
        self._values[:] = self._first
        self._lost = ""

    def values(self) -> list[NDArray[Any]]:
        """Return copies of the values, in the order of CompiledModel.variables.

        Raises StateLostError if a machine has lost them.
        """
        self._check()
        if self._machine:
            self._read(self._machine)
        return [each.copy() for each in self._values]

    @contextmanager
    def running(
        self, backend: Backend, compiled: CompiledNetwork
    ) -> Generator[tuple[list[NDArray[Any]], int]]:
        """Bring the values to where `compiled` finds them on a machine, for one sample.

        Yields the values on the host, which the sample changes, and the number of the next program,
        where several run in turn. For variables on the machine the list has old values. The new
        values are lost if an error comes out of the context after a program has begun. Raises
        ModelError for variables of other sizes, StateLostError as `values` does, and BackendError
        if the machine fails.
        """
        self._enter(backend, compiled)
        try:
            yield self._values, self._phase
        except BaseException:
            if self._machine and self._machine.programs != self._programs:
                self._lose("a run has failed")
            raise
        if self._on_chip:
            self._programs = backend.programs
            self._phase = (self._phase + 1) % len(self._on_chip.programs)

    def save(self) -> None:
        """Bring values from the machine to the host, and leave the machine."""
        if self._machine:
            self._check()
            self._read(self._machine)
            self._leave()

    def _enter(self, backend: Backend, compiled: CompiledNetwork) -> None:
        expected = [(each.first.shape, each.first.dtype) for each in compiled.variables]
        if expected != [(each.shape, each.dtype) for each in self._first]:
            raise ModelError("the state is of another model")
        self._check()
        if self._machine is backend and self._on_chip is compiled.on_chip:
            return
        self.save()
        vacate(backend)
        if compiled.on_chip:
            values = [self._values[number][np.newaxis] for number in compiled.on_chip.numbers]
            self._moved(backend, compiled.on_chip.load, *values)
            self._machine, self._on_chip, self._phase = backend, compiled.on_chip, 0
            self._programs = backend.programs
            _residents[id(backend)] = self

    def _check(self) -> None:
        """Raise StateLostError if the values are lost."""
        if self._machine and self._machine.programs != self._programs:
            self._lose("the machine has run another program")
        if self._lost:
            raise StateLostError(
                f"the values of the variables are lost, as {self._lost}: reset() begins again"
            )

    def _lose(self, reason: str) -> None:
        """Note that values on the machine are lost, if it has some."""
        if self._machine:
            self._leave()
            self._lost = reason

    def _leave(self) -> None:
        if self._machine and _resident(self._machine) is self:
            del _residents[id(self._machine)]
        self._machine = self._on_chip = None

    def _read(self, backend: Backend) -> None:
        assert self._on_chip
        program = self._on_chip.stores[self._phase]
        results = program.results(self._moved(backend, program).host)
        for number, array in zip(self._on_chip.numbers, results, strict=True):
            self._values[number] = array.reshape(self._first[number].shape)
        self._programs = backend.programs

    def _moved(self, backend: Backend, program: Program, *arrays: NDArray[Any]) -> Result:
        """Run a program that moves values. Raises BackendError if it fails."""
        try:
            result = backend.run(program.bind(*arrays))
        except BaseException:
            self._lose("the machine has failed")
            raise
        if result.fault:
            self._lose("a program has ended in a fault")
            raise BackendError(fault_text(result.fault))
        self.moving_cycles += result.cycles or 0
        return result


_residents: WeakValueDictionary[int, State] = WeakValueDictionary()
"""For each machine, by its identity, the state with values on it. The state keeps the machine
alive.
"""


def _resident(backend: Backend) -> State | None:
    return _residents.get(id(backend))


def vacate(backend: Backend) -> None:
    """Bring the values of the state on a machine to the host, before another program runs.

    If the machine has run other programs meanwhile, the state is lost, which its next use reports.
    """
    if state := _resident(backend):
        with suppress(StateLostError):
            state.save()
