# SPDX-License-Identifier: Apache-2.0
"""The page docs/lanes.md: the reservation table of the lanes, and the pauses that follow from it.

`python -m systola.hdl.activation.reservation_page --write docs` writes it, `--check docs` exits
with status 1 where it is missing or out of date.
"""

from __future__ import annotations

import sys

from systola.arch.pages import Pages, table, write_or_check
from systola.hdl.activation import spacings
from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing, gates_alone
from systola.hdl.activation.reservations import TABLE, Cycles, Kind, Part, cycles_left_out

_INTRODUCTION = """
Nothing stops a step in the lanes of the activation unit ([architecture.md](architecture.md)). So a
step may only come when all parts of the lanes that it uses will be free. This page has the cycles
in which a step uses each part (`hdl/activation/reservations.py`). The pauses between steps follow
from them (`hdl/activation/spacings.py`), and the timing model takes the same pauses.
"""
_LETTERS = {Part.REQUANTISER: "R", Part.TABLE: "T", Part.WRITER: "W"}
"""Letter that stands in the drawing for each part of the lanes."""
_USES = """
## Uses

Cycles count from the read of a step, which issues a vector if it is the vector's last one. A result
has two cycles in each part, as one of int16 has two lines and a curve has two rows of a table.
"""
_PAUSES = """
## Cycles left out

A later step must find each part of an earlier step free. In all later cycles the part stays free,
too. So the least distance between two steps follows from the last cycle of the earlier one and the
first cycle of the later one, for each part that both use.
"""
_FOLLOWS = {
    "WIDE_SPACING": "an int16 result of one step",
    "TAP_SPACING": "the last of few taps of a block",
    "ADDEND_SPACING": "a sum of lines that is added to older results",
    "DRAIN_SPACING": "the last sum of lines of an instruction",
    "LONG_SPACING": "a sum of scaled elements, when its addend or the instruction ends; the last "
    "vector of a tile, of random bytes, of a Measure, with stochastic rounding, or on a curve",
    "GATHER_SPACING": "a result from a table, before a line that is looked up",
}
"""For each pause of `spacings`, a description of the steps that the pause follows."""
_GATES = """
Vectors with a function of the gates share a multiplier with the requantisers. They come {apart}
steps after one another, or a multiple of {slots} later. Other vectors come {alone} steps after them
(`gate_queue`). No element is scaled {meets} cycles after the issue of a sum of scaled elements, as
both would enter the requantisers. Where two columns share a lane, a pause is a whole number of
steps of two cycles (`left_out`).
"""
_PROMISES = """
## Promises

In simulations the lanes check that no two steps meet in a part: in `issued_vectors`,
`result_lanes`, `line_writer` and `curve_stage`. `verif/units/activation/test_reservations.py`
compares the distances with a search over the table, and shows that pauses which are too short break
a promise.
"""


def page() -> str:
    """Return the text of docs/lanes.md."""
    parts = [part for part in Part if any(part in uses for uses in TABLE.values())]
    uses = table(
        ("step", *(part.value for part in parts)),
        ((kind.value, *(_cycles(TABLE[kind].get(part)) for part in parts)) for kind in Kind),
    )
    later = [kind for kind in Kind if any(cycles_left_out(each, kind) for each in Kind)]
    earlier = [kind for kind in Kind if any(cycles_left_out(kind, each) for each in Kind)]
    pauses = table(
        ("before", *(kind.value for kind in later)),
        (
            (before.value, *(str(cycles_left_out(before, after) or "") for after in later))
            for before in earlier
        ),
    )
    named = table(
        ("pause", "cycles", "follows"),
        ((f"`{name}`", str(getattr(spacings, name)), before) for name, before in _FOLLOWS.items()),
    )
    gates = _GATES.format(
        apart=gate_spacing(1),
        slots=slots(1),
        alone=gates_alone(1),
        meets=spacings.SLOT_DISTANCE,
    )
    return (
        "\n\n".join(
            text.strip()
            for text in (
                "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
                "<!-- Made by `python -m systola.hdl.activation.reservation_page --write docs`\n"
                "     from hdl/activation/reservations.py: do not edit. -->",
                "# The lanes, cycle by cycle",
                _INTRODUCTION,
                _USES,
                uses,
                _drawing(),
                _PAUSES,
                pauses,
                "The planner takes the largest pause of all steps that may come:",
                named,
                gates,
                _PROMISES,
            )
        )
        + "\n"
    )


def _drawing() -> str:
    """Return a drawing of the cycles in which results use the parts that all of them need."""
    kinds = (Kind.ROW, Kind.SUM, Kind.SCALED_SUM, Kind.CURVE)
    last = max(uses.last for kind in kinds for uses in TABLE[kind].values())
    lines = ["cycle" + "".join(f"{cycle:3}" for cycle in range(last + 1))]
    for kind in kinds:
        uses = TABLE[kind]
        taken = {
            cycle: letter
            for part, letter in _LETTERS.items()
            for cycle in range(uses[part].first, uses[part].last + 1)
        }
        marks = "".join(f"{taken.get(cycle, '.'):>3}" for cycle in range(last + 1))
        lines += ["", kind.value, f"     {marks}"]
    named = ", ".join(f"{letter}: {part.value}" for part, letter in _LETTERS.items())
    return "\n".join(["```text", *lines, "", named, "```"])


def _cycles(cycles: Cycles | None) -> str:
    if cycles is None:
        return ""
    first, last = cycles
    return str(first) if first == last else f"{first} to {last}"


PAGES: Pages = {"lanes.md": page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.hdl.activation.reservation_page"))
