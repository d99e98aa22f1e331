# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/energy.md, which `--write docs` writes and `--check docs` checks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.bench.energy import Counted, steps, stored
from systola.bench.networks import BATCHES, NETWORKS
from systola.bench.original import page as original
from systola.runtime.report_table import compact, joules, tops_per_watt
from systola.synth.switching import Switching
from systola.synth.switching import stored as switchings
from systola.timing.activity import SUM_BYTES
from systola.timing.energy import energies
from systola.timing.technology import TECHNOLOGIES, Technology

OPERATIONS: tuple[tuple[str, Callable[[Technology], float | None]], ...] = (
    ("multiplication, 8 bits", lambda t: t.multiply_8),
    ("multiplication, 32 bits", lambda t: t.multiply_32),
    ("addition, 32 bits", lambda t: t.add_32),
    ("register, 32 bits", lambda t: t.register_byte and 4 * t.register_byte),
    ("on-chip memory of 8 KiB, 64 bits", lambda t: t.memories[0][1]),
    ("on-chip memory of 32 KiB, 64 bits", lambda t: t.memories[1][1]),
    ("on-chip memory of 1 MiB, 64 bits", lambda t: t.memories[2][1]),
    ("DDR3 or DDR4, 64 bits", lambda t: t.dram_access),
)


def constants_table() -> str:
    """Return the published figures as Markdown."""
    rows: list[tuple[str, ...]] = []
    for name, figure in OPERATIONS:
        found = [figure(each) for each in TECHNOLOGIES]
        rows.append((name, *("none published" if n is None else f"{n:g} pJ" for n in found)))
    return table(("operation", *(each.name for each in TECHNOLOGIES)), rows)


def networks_table(counted: list[Counted]) -> str:
    """Return the energy of an inference of each network of the README as Markdown."""
    rows: list[tuple[str, ...]] = []
    for network in NETWORKS:
        here = [
            next(c for c in counted if (c.name, c.batch) == (network.title, batch))
            for batch in BATCHES
        ]
        found = [energies(each.config, each.activity, each.macs) for each in here]
        first = found[-1][0]
        cells = [
            f"{joules(each[n].joules)}, {tops_per_watt(each[n].tops_per_watt)}"
            for n in range(len(TECHNOLOGIES))
            for each in found
        ]
        parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in first.largest[:3])
        rows.append((network.title, *cells, parts))
    heads = [f"{each.name}, {batch} at a time" for each in TECHNOLOGIES for batch in BATCHES]
    last = f"largest parts, {TECHNOLOGIES[0].name}, {BATCHES[-1]} at a time"
    return table(("network", *heads, last), rows)


def counts_table(counted: list[Counted]) -> str:
    """Return counts of an inference of each network, 1 at a time, as Markdown."""
    rows = [
        (
            each.name,
            *map(
                compact,
                (
                    each.macs,
                    each.activity.macs + each.activity.wide_macs,
                    each.activity.buffer,
                    each.activity.accumulators,
                    each.activity.weights,
                    each.activity.host,
                ),
            ),
        )
        for each in counted
        if each.batch == 1
    ]
    heads = ("MACs", "of all multipliers", "buffer", "accumulators", "weights", "host")
    return table(("network, 1 at a time", *heads), rows)


def steps_table(counted: list[Counted]) -> str:
    """Return the energy of steps of training as Markdown."""
    rows: list[tuple[str, ...]] = []
    for each in counted:
        found = energies(each.config, each.activity, each.macs)
        rows.append(
            (
                f"`{each.preset}`, {each.name}",
                f"{each.batch:,}",
                *(f"{joules(one.joules)}, {tops_per_watt(one.tops_per_watt)}" for one in found),
                ", ".join(f"{name} {100 * share:.0f} %" for name, share in found[0].largest[:3]),
            )
        )
    heads = (
        *("step", "batch", *(each.name for each in TECHNOLOGIES)),
        f"largest parts, {TECHNOLOGIES[0].name}",
    )
    return table(heads, rows)


SCALE = (180 / 45) * (1.8 / 0.9) ** 2
"""Factor from 45 nm at 0.9 V to 0.18 um at 1.8 V, for energies that grow with length and square of
voltage."""


def switching_table(measured: list[Switching]) -> str:
    """Return a table in Markdown with energies of a multiply-add, measured and published."""
    per = TECHNOLOGIES[0]
    rows: list[tuple[str, ...]] = []
    for each in measured:
        macs = each.rows * each.cols
        stages = -(-each.cols // each.columns_per_stage)
        written = (each.rows * stages + SUM_BYTES * macs) / macs
        constants = (per.multiply_8 + per.add_32, (per.register_byte or 0) * written)
        for part, found, constant in zip(
            ("multiplier and adder", "registers"),
            (each.combinational, each.sequential),
            constants,
            strict=True,
        ):
            rows.append((f"`{each.preset}`", part, *_beside(found, constant)))
        rows.append((f"`{each.preset}`", "**both**", *_beside(each.picojoules, sum(constants))))
    text = table(
        ("array", "part", "0.18 um, measured", "45 nm, published", f"that, times {SCALE:g}"), rows
    )
    lines = [
        f"`{each.preset}`: {each.cells:,} cells, {each.vectors} random vectors, "
        f"{each.toggles:.2f} transitions of a net in a cycle, {100 * each.glitches:.0f} % of them "
        f"glitches; {', '.join(each.tools)}, {each.date}, {each.commit}."
        for each in measured
    ]
    return "\n".join((text, *lines, ""))


def _beside(found: float, constant: float) -> tuple[str, str, str]:
    return f"{found:.1f} pJ", f"{constant:.2f} pJ", f"{SCALE * constant:.1f} pJ"


def page() -> str:
    """Return the text of docs/energy.md."""
    counted = stored()
    return filled(
        DOCS / "energy.md",
        constants=constants_table(),
        networks=networks_table(counted),
        counts=counts_table(counted),
        steps=steps_table(steps()),
        switching=switching_table(switchings()),
    )


PAGES: Pages = {"energy.md": page}


def write_pages() -> None:
    """Write the page, and the page of the original, which has the same counts in it."""
    (DOCS / "energy.md").write_text(page(), encoding="utf-8")
    original.write_pages()


if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.bench.energy_page"))
