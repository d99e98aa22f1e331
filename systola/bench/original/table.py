# SPDX-License-Identifier: Apache-2.0
"""The paper's Table 3 beside the same figures of this machine, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from systola.arch.pages import table
from systola.arch.registers import CycleClass
from systola.bench.energy import Counted
from systola.bench.original.paper import (
    BUSY_WATTS,
    IDLE_WATTS,
    MEASURED,
    TDP_WATTS,
    Measured,
)
from systola.bench.original.prediction import UNCHANGED, Prediction
from systola.bench.original.result import MHZ, Result
from systola.timing.energy import energies
from systola.timing.technology import TECHNOLOGIES

Row = tuple[str, Callable[[Measured], float], Callable[[Result], float]]

NON_MATRIX = (
    CycleClass.INPUT_STALL,
    CycleClass.OPERAND_STALL,
    CycleClass.ACCUMULATOR_STALL,
    CycleClass.VECTOR,
    CycleClass.OUTPUT_STALL,
    CycleClass.HOST_WAIT,
    CycleClass.FETCH,
    CycleClass.DRAIN,
)
ROWS: tuple[Row, ...] = (
    ("array active", lambda p: p.active, lambda r: _percent(r, CycleClass.ARRAY_ACTIVE)),
    ("useful MACs", lambda p: p.useful, lambda r: 100 * r.useful / r.cycles),
    (
        "unused MACs",
        lambda p: p.unused,
        lambda r: _percent(r, CycleClass.ARRAY_ACTIVE) - 100 * r.useful / r.cycles,
    ),
    ("weight stall", lambda p: p.weight_stall, lambda r: _percent(r, CycleClass.WEIGHT_STALL)),
    ("weight shift", lambda p: p.weight_shift, lambda r: _percent(r, CycleClass.WEIGHT_SHIFT)),
    ("non-matrix", lambda p: p.non_matrix, lambda r: _percent(r, *NON_MATRIX)),
    ("RAW stalls", lambda p: p.raw_stalls, lambda r: _percent(r, CycleClass.OPERAND_STALL)),
    ("input stalls", lambda p: p.input_stalls, lambda r: _percent(r, CycleClass.INPUT_STALL)),
)


def _percent(result: Result, *classes: CycleClass) -> float:
    return 100 * result.share(*classes)


def table_3(results: Mapping[str, Result], predictions: Sequence[Prediction]) -> str:
    """Write the paper's figures and ours side by side, in per cent of all cycles."""
    header = ["% of cycles: paper, here"]
    lines = [[name] for name, _, _ in ROWS] + [["**TOPS at 700 MHz**"], ["cycles"]]
    predicted = ["TOPS by the timing model"]
    for name, measured in MEASURED.items():
        header.append(name.upper())
        result = results.get(name)
        for line, (_, theirs, ours) in zip(lines, ROWS, strict=False):
            line.append(f"{theirs(measured):.1f}, {_or_open(result, ours)}")
        tops = f"**{result.tops:.1f}**" if result else "not measured"
        lines[-2].append(f"{measured.tops:.1f}, {tops}")
        lines[-1].append(f"{result.cycles:,}" if result else "-")
        predicted.append(_predicted(name, predictions))
    return table(header, [*lines, predicted])


def _predicted(name: str, predictions: Sequence[Prediction]) -> str:
    """Return the TOPS of an application on the unchanged machine, by the timing model."""
    found = [p for p in predictions if (p.application, p.change) == (name, UNCHANGED)]
    return f"{found[0].speed:.1f}" if found else "-"


def _or_open(result: Result | None, value: Callable[[Result], float]) -> str:
    return "-" if result is None else f"{value(result):.1f}"


def short_table(results: Mapping[str, Result], predictions: Sequence[Prediction]) -> str:
    """Write the table that the README quotes."""
    rows = [
        (
            name.upper(),
            f"{measured.tops:.1f} TOPS",
            _predicted(name, predictions),
            f"{result.tops:.1f} TOPS" if (result := results.get(name)) else "not measured",
            f"{result.cycles:,}" if result else "-",
            f"{result.outputs:,}" if result else "-",
        )
        for name, measured in MEASURED.items()
    ]
    heads = (
        "Application",
        "the original",
        "timing model",
        "this machine's RTL",
        "cycles",
        "output bytes, all right",
    )
    return table(heads, rows)


def what_if(predictions: Sequence[Prediction]) -> str:
    """Write the TOPS of each application on each machine."""
    machines = list(dict.fromkeys(each.change for each in predictions))
    found = {(each.application, each.change): each for each in predictions}
    names = list(dict.fromkeys(each.application for each in predictions))
    rows: list[list[str]] = []
    for machine in machines:
        cells = [machine]
        for name in names:
            speed, before = found[name, machine].speed, found[name, UNCHANGED].speed
            times = "" if machine == UNCHANGED else f" ({speed / before:.2f}x)"
            cells.append(f"{speed:.1f}{times}")
        rows.append(cells)
    return table(["TOPS", *(name.upper() for name in names)], rows)


def energy(counted: Sequence[Counted], results: Mapping[str, Result]) -> str:
    """Write energy and power of each application on the RTL, beside the original's power."""
    rows: list[tuple[str, ...]] = []
    for each in counted:
        if (result := results.get(each.name)) is None:
            continue
        seconds = result.cycles / (MHZ * 1e6)
        found = energies(each.config, each.activity, each.macs)
        watts = found[0].joules / seconds + IDLE_WATTS
        parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found[0].largest[:3])
        theirs = MEASURED[each.name].tops
        rows.append(
            (
                each.name.upper(),
                *(f"{1e3 * one.joules:.1f} mJ, {one.joules / seconds:.1f} W" for one in found),
                parts,
                f"{watts:.1f} W, {result.tops / watts:.2f}",
                f"{theirs / BUSY_WATTS:.2f}",
                f"{theirs / TDP_WATTS:.2f}",
            )
        )
    heads = (
        "Application",
        *(f"a batch at {each.name}" for each in TECHNOLOGIES),
        f"largest parts at {TECHNOLOGIES[0].name}",
        f"with {IDLE_WATTS} W idle: power, TOPS/W",
        f"paper: TOPS/W at {BUSY_WATTS} W",
        f"at {TDP_WATTS} W",
    )
    return table(heads, rows)
