# SPDX-License-Identifier: Apache-2.0
"""The execution of a compiled network: programs on a machine, other stages on the host."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from systola.compiler.host_stage import HostStage
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import CompiledNetwork
from systola.compiler.operations import Value
from systola.compiler.printable import printable
from systola.compiler.program import Program
from systola.runtime.backend import Backend, BackendError, Result, fault_text
from systola.runtime.interpreters import Session


class HostError(ValueError):
    """An error for values that a host stage has no result for, with the reason in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def run_compiled(
    backend: Backend,
    compiled: CompiledNetwork,
    x: Sequence[NDArray[Any]],
    observe: Callable[[int, Program, Result], None],
    sessions: Mapping[bytes, Session],
    variables: list[NDArray[Any]],
    phase: int,
) -> list[NDArray[Any]]:
    """Return the outputs of `compiled` for the samples `x`, as many as it was compiled for.

    `variables` has the values of the variables before the samples, and gets the values after them.
    Values of variables that stay on the machine are neither read nor changed. `phase` is the number
    of the next program, where several run in turn. `observe` is called with the number of the
    stage, the program and its result for each program. `sessions` has an interpreter for each model
    that an interpreter runs, see open_sessions. Raises BackendError if the machine stops, and
    HostError for values that a host stage does not accept.
    """
    # A sample of the stages may be a part of a sample of the model.
    values: dict[Value, NDArray[Any]] = {
        value: array.reshape(-1, *value.shape)
        for value, array in zip(compiled.sources, x, strict=True)
    }
    samples = len(next(iter(values.values())))
    for number in compiled.on_host:
        before = compiled.variables[number].before
        values[before] = variables[number].reshape(1, *before.shape)
    for number, stage in enumerate(compiled.stages):
        sources = [values[source] for source in stage.sources]
        if isinstance(stage, HostStage):
            values[stage.result] = _run_host_stage(stage, sources, samples)
        elif isinstance(stage, InterpretedStage):
            arrays = _run_interpreter(stage, sessions[stage.model], sources)
            values.update(zip(stage.results, arrays, strict=True))
        else:
            on_chip = compiled.on_chip
            program = on_chip.programs[phase] if on_chip else stage.program
            result = backend.run(program.bind(*sources))
            if result.fault:
                raise BackendError(fault_text(result.fault))
            observe(number, program, result)
            arrays = program.results(result.host)
            for value, array in zip(stage.results, arrays, strict=True):
                values[value] = array.reshape(samples, *value.shape)
    for number in compiled.on_host:
        variable = compiled.variables[number]
        variables[number] = values[variable.after].reshape(variable.before.shape)
    return [values[output] for output in compiled.results]


def _run_host_stage(
    stage: HostStage, sources: Sequence[NDArray[Any]], samples: int
) -> NDArray[Any]:
    result = stage.result
    try:
        # Numbers beyond the limits of a type become its limits: no warning is needed.
        with np.errstate(all="ignore"):
            array = stage.function(*sources).reshape(samples, *result.shape)
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        raise HostError(f"{stage.operator}: {error}") from None
    if array.dtype.name != result.dtype:
        raise HostError(f"{stage.operator}: its result is {array.dtype}, not {result.dtype}")
    return array


Sessions = dict[bytes, Session]
_idle: WeakKeyDictionary[CompiledNetwork, Sessions] = WeakKeyDictionary()
"""Interpreters that no run uses at present: it takes most of a second to start one."""
_MOST_IDLE = 4
"""Largest number of networks that keep idle interpreters."""


@contextmanager
def open_sessions(compiled: CompiledNetwork) -> Generator[Sessions]:
    """Yield an interpreter for each model in the stages; its variables have their first values.

    Afterwards the interpreters wait for the next run of the network. Raises ModelError if an
    interpreter is not installed.
    """
    stages = [stage for stage in compiled.stages if isinstance(stage, InterpretedStage)]
    if not stages:
        yield {}
        return
    sessions = _restarted(_idle.pop(compiled, {}))
    if not sessions:
        finalize(compiled, _close, sessions)
    try:
        for stage in stages:
            if stage.model not in sessions:
                sessions[stage.model] = Session(stage.interpreter, stage.model)
        yield sessions
    except BaseException:
        _close(sessions)
        raise
    while len(_idle) >= _MOST_IDLE:
        _close(_idle.popitem()[1])
    _idle[compiled] = sessions


def _restarted(sessions: Sessions) -> Sessions:
    """Return the sessions with the first values of their variables, or none where one has ended."""
    try:
        for session in sessions.values():
            session.restart()
    except ValueError:
        _close(sessions)
        return {}
    return sessions


def _close(sessions: Sessions) -> None:
    for session in sessions.values():
        session.close()


def _run_interpreter(
    stage: InterpretedStage, session: Session, sources: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    """Return the results of a stage, which an interpreter runs sample by sample."""
    name = stage.operators[0] if len(stage.operators) == 1 else f"{stage.operators[0]} and others"
    try:
        rows = [session.run(sample) for sample in zip(*sources, strict=True)]
    except ValueError as error:
        raise HostError(f"{name}: {error}") from None
    for results in rows:
        for array, value in zip(results, stage.results, strict=True):
            if array.shape != value.shape or array.dtype.name != value.dtype:
                raise HostError(
                    f"{name}: its result is {array.dtype} of shape {array.shape}, not "
                    f"{value.dtype} of shape {value.shape}"
                )
    return [np.array(each) for each in zip(*rows, strict=True)]
