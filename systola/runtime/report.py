# SPDX-License-Identifier: Apache-2.0
"""A report on the layers of a compiled network: their work, their cycles, and their limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from systola.arch.config import Config
from systola.compiler.host_stage import HostStage, View
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import CompiledNetwork
from systola.compiler.program import LayerWork, Program
from systola.runtime.measurements import Measurements, ProgramTimes
from systola.timing.activity import Activity, activity
from systola.timing.energy import Energy, energies
from systola.timing.memory_speed import MemorySpeed

MACHINE, HOST, OVERHEAD = "machine", "host", "overhead"
"""Places where cycles or work go. OVERHEAD belongs to a program, but to none of its layers: it
loads constants and parameters once, and fills and drains the machine."""


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A layer on the machine, or a stage on the host; figures are averages of one inference."""

    operator: str
    place: str
    """Place of the work: MACHINE, HOST or OVERHEAD."""
    shape: tuple[int, ...]
    """Shape of the result."""
    macs: int = 0
    elements: int = 0
    """Elements of the result; 0 for a mere change of shape."""
    work: float = 0.0
    """Share of the network's operations: multiply-accumulates, or elements if there are none."""
    estimated_cycles: float | None = None
    """Estimated cycles from the end of the layer before to the end of this layer. None on the host.
    """
    measured_cycles: float | None = None
    """Measured cycles between the same ends; None without a clock, and for a layer that the trace
    lost."""
    utilization: float | None = None
    """Share of the multiply-accumulates that the array could do in the measured, else the estimated
    cycles. None for a layer without any; at most 1, even if some were done before the layer before
    had ended."""
    limit: str | None = None
    """The unit that is busy most of the time, or a text for units that wait for each other, see
    systola.timing.record."""
    host_in: float = 0.0
    """Bytes from host memory to the machine: inputs, parameters, tables."""
    host_out: float = 0.0
    weights: float = 0.0
    """Bytes from weight memory."""
    share: float | None = None
    """Share of all cycles: measured if all layers are measured, else estimated."""

    @property
    def cycles(self) -> float | None:
        """The measured cycles, else the estimated ones."""
        return self.estimated_cycles if self.measured_cycles is None else self.measured_cycles

    @property
    def bytes_moved(self) -> float:
        """Bytes to and from both memories."""
        return self.host_in + self.host_out + self.weights


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report of a network on a machine; figures are averages of one inference."""

    rows: tuple[LayerRow, ...]
    macs: int
    """Multiply-accumulates on the machine."""
    estimated_cycles: float
    measured_cycles: float | None
    utilization: float
    mhz: float | None
    inferences_per_second: float | None
    """Inferences in a second at the clock `mhz`."""
    activity: Activity
    """Counts of the work of each part of the machine; the host is left out."""
    energy: tuple[Energy, ...]
    """The energy of `activity`, in each technology of systola.timing.technology."""

    @property
    def cycles(self) -> float:
        """The measured cycles, else the estimated ones."""
        return self.estimated_cycles if self.measured_cycles is None else self.measured_cycles


def make_report(
    config: Config,
    compiled: CompiledNetwork,
    *,
    measured: Measurements | None = None,
    memory: MemorySpeed | None = None,
    mhz: float | None = None,
) -> Report:
    """Make the report of `compiled`, with the cycles of its runs in `measured`, if there are any.

    `memory` describes the memories for the estimate. `mhz` is the clock for inferences per second.
    """
    programs = measured.programs if measured else {}
    rows: list[LayerRow] = []
    total_estimated, total_measured = 0.0, 0.0
    timed = True
    done = Activity()
    for number, stage in enumerate(compiled.stages):
        if isinstance(stage, HostStage):
            rows.append(_host_row(stage))
            continue
        if isinstance(stage, InterpretedStage):
            rows.append(_interpreted_row(stage))
            continue
        times = programs.get(number)
        layers, cycles = _program_rows(config, stage.program, compiled.samples, times, memory)
        rows += layers
        total_estimated += cycles
        done += activity(config, stage.program.image.program).scaled(1 / compiled.samples)
        if times:
            total_measured += times.cycles / times.runs / compiled.samples
        else:
            timed = False
    total = total_measured if timed else total_estimated
    macs = sum(row.macs for row in rows if row.place != HOST)
    work = sum(row.macs or row.elements for row in rows)
    rows = [
        replace(
            row,
            # A network that only changes shapes is no work at all.
            work=(row.macs or row.elements) / work if work else 0.0,
            share=None if row.place == HOST or row.cycles is None else row.cycles / total,
        )
        for row in rows
    ]
    return Report(
        rows=tuple(rows),
        macs=macs,
        estimated_cycles=total_estimated,
        measured_cycles=total_measured if timed else None,
        utilization=macs / (config.peak_macs * total) if total else 0.0,
        mhz=mhz,
        inferences_per_second=mhz * 1e6 / total if mhz and total else None,
        activity=done,
        energy=energies(config, done, macs),
    )


def _host_row(stage: HostStage) -> LayerRow:
    shape = stage.result.shape
    # A change of shape is no work.
    elements = 0 if isinstance(stage.function, View) else prod(shape)
    return LayerRow(operator=stage.operator, place=HOST, shape=shape, elements=elements)


def _interpreted_row(stage: InterpretedStage) -> LayerRow:
    """Return one row for all operators of a stage."""
    others = len(stage.operators) - 1
    operator = f"{stage.operators[0]} and {others} more" if others else stage.operators[0]
    elements = sum(prod(value.shape) for value in stage.results)
    return LayerRow(
        operator=operator,
        place=HOST,
        shape=stage.results[0].shape,
        macs=stage.macs,
        elements=elements,
    )


def _program_rows(
    config: Config,
    program: Program,
    samples: int,
    times: ProgramTimes | None,
    memory: MemorySpeed | None,
) -> tuple[list[LayerRow], float]:
    """Return the rows of a program of `samples` inferences, and the estimated cycles of one
    inference.
    """
    # Imported here: the estimate takes its constants from the hardware, and Amaranth loads slowly.
    from systola.timing.estimate import estimate

    expected = estimate(config, program.image, memory)
    rows: list[LayerRow] = []
    for tag in expected.tags:
        layer: LayerWork = program.layers[tag.tag]
        one_pass = times.layer(tag.tag) if times else None
        cycles = None if one_pass is None else one_pass * tag.passes / samples
        row = LayerRow(
            operator=layer.operator,
            place=MACHINE,
            shape=layer.shape,
            macs=layer.macs // samples,
            elements=prod(layer.shape),
            estimated_cycles=tag.cycles / samples,
            measured_cycles=cycles,
            limit=tag.limit,
            host_in=tag.traffic.host_in / samples,
            host_out=tag.traffic.host_out / samples,
            weights=tag.traffic.weights / samples,
        )
        if row.macs and row.cycles:
            row = replace(row, utilization=min(1.0, row.macs / (config.peak_macs * row.cycles)))
        rows.append(row)
    rest = None
    if times:
        known = [row.measured_cycles for row in rows if row.measured_cycles is not None]
        if len(known) == len(rows):
            rest = times.cycles / times.runs / samples - sum(known)
    rows.append(
        LayerRow(
            operator="set-up and end",
            place=OVERHEAD,
            shape=(),
            estimated_cycles=expected.rest / samples,
            measured_cycles=rest,
        )
    )
    return rows, expected.cycles / samples
