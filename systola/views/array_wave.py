# SPDX-License-Identifier: Apache-2.0
"""The registers of a small array, cycle by cycle, from a waveform of the RTL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from systola.arch.config import PRESETS
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.rtl import RtlBackend
from systola.runtime.run_result import RunResult
from systola.sim.vcd import variables

CONFIG = replace(PRESETS["tiny"], name="4x4, a column a cycle", columns_per_stage=1)
"""Configuration of a small machine with an array as in textbooks: a value that moves along a row
takes a cycle from column to column. In the presets several columns share a register, so that the
wave would only run downwards."""
FIRST, CYCLES = 1, 240
"""Cycles that are watched: the first cycle of the program, and the number of cycles."""

_ARRAY = "tpu.tpu.core.matrix_unit.mxu."
_WEIGHT, _ACTIVATION = "tile.row_{}.factor_{}_0", "tile.row_{}.activation_{}"
"""Names, in the waveform, of the two operand registers of the multiplier in a row and a column;
each column is a stage.
"""
_SUM = "tile.partial_{}_{}"


@dataclass(frozen=True)
class ArrayState:
    """A state of the array's registers in one cycle; lists have indices [row][column]."""

    weights: list[list[int]]
    """Active weights."""
    activations: list[list[int]]
    """Activations that meet the weights in this cycle."""
    sums: list[list[int]]
    """Partial sums; the bottom row has the results of the columns."""


def watch(model: CompiledModel, x: object) -> tuple[RunResult, list[ArrayState]]:
    """Run `model`, which is compiled for CONFIG, on `x`, and return the states of the array while
    it runs.

    Returns the result of the run, and a state of the array for each cycle from FIRST on. Raises
    BackendError if the simulator cannot be built.
    """
    with TemporaryDirectory() as folder:
        waveform = Path(folder) / "array.vcd"
        window = (FIRST, FIRST + CYCLES)
        with RtlBackend(CONFIG, waves=waveform, window=window) as machine:
            run = model.run(x, backend=machine)  # type: ignore[arg-type]
        return run, list(read_states(waveform, CONFIG.rows, CONFIG.cols))


def read_states(waveform: Path, rows: int, cols: int) -> Iterator[ArrayState]:
    """Yield the state at the end of each cycle from a VCD file, for an array of one tile."""
    names = _names(rows, cols)
    with waveform.open() as file:
        codes: dict[str, list[tuple[str, int]]] = {}
        for path, width, code in variables(file):
            scope, _, name = path.partition(_ARRAY)
            if not scope and name in names:
                codes.setdefault(code, []).append((name, width))
        values = dict.fromkeys(names, 0)
        half = None
        for line in file:
            if line[0] == "#":
                # The clock is low in the first half of a cycle: all signals have settled.
                if half is not None and half % 2 == 0:
                    yield _state(values, rows, cols)
                half = int(line[1:])
            elif line[0] == "b":
                bits, code = line[1:].split()
                for name, width in codes.get(code, ()):
                    value = int(bits, 2)
                    values[name] = value - (value >> (width - 1) << width)


def _names(rows: int, cols: int) -> set[str]:
    return {
        name
        for k in range(rows)
        for c in range(cols)
        for name in (_WEIGHT.format(k, c), _ACTIVATION.format(k, c), _SUM.format(k, c))
    }


def _state(values: dict[str, int], rows: int, cols: int) -> ArrayState:
    def table(name: str) -> list[list[int]]:
        return [[values[name.format(k, c)] for c in range(cols)] for k in range(rows)]

    return ArrayState(weights=table(_WEIGHT), activations=table(_ACTIVATION), sums=table(_SUM))
