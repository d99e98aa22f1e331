# SPDX-License-Identifier: Apache-2.0
"""Tests that improved placements stay legal, and get faster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from systola.synth.place_route import place_and_route
from systola.synth.refine.blocks import Blocks
from systola.synth.refine.delays import Delays, wire_delay
from systola.synth.refine.graph import Graph
from systola.synth.refine.moves import Refinement
from systola.synth.refine.neighbourhoods import Neighbourhoods
from systola.synth.refine.placement import Placement
from systola.synth.refine.refine import refine
from systola.synth.synthesis import NETLIST
from systola.synth.targets import TARGETS
from systola.synth.tools import Tool
from systola.verif.synth.netlists import pnr_report
from systola.verif.synth.placed_design import PlacedDesign, broken_rules, site, spread_design

GOAL = 1.9
"""Nanoseconds: a register, a look-up table, and wires of a tile or two; chains are longer."""
PIPELINES = 20
FIXED = ("$PACKER_GND", "zero", "ram_0", "ram_1", "block_0", "block_1", "ramw")


def excess(refinement: Refinement) -> float:
    """Return the lateness of all slow ends together."""
    return sum(path - GOAL for path in refinement.delays.slow(GOAL))


def test_refined(data_set: int) -> None:
    """Refine: the rules hold as before, fixed cells stay, and lateness falls.

    It falls to 0.43 on the mean of 400 seeds, to 0.49 at most, and to 0.52 for one seed met later.
    """
    design = spread_design(data_set, PIPELINES).json()
    assert not broken_rules(design)
    cells = design["modules"]["top"]["cells"]
    before = {name: cells[name]["attributes"]["NEXTPNR_BEL"] for name in cells}
    refinement = Refinement(design, seed=1, goal=GOAL)
    late = excess(refinement)
    for number in range(12):
        refinement.go_over(0.2 if number < 6 else 0.0)
        refinement.placement.write()
        assert not broken_rules(design), number
    assert excess(refinement) < 0.6 * late
    moved = {name for name in cells if cells[name]["attributes"]["NEXTPNR_BEL"] != before[name]}
    assert moved.isdisjoint(FIXED)
    for kind in ("first", "a", "mux", "chosen", "sum", "end"):
        assert any(name.startswith(f"{kind}_") for name in moved), kind
    # The incremental arrival times equal newly calculated times.
    again = Delays(refinement.graph, refinement.placement.xs, refinement.placement.ys)
    assert again.arrivals == refinement.delays.arrivals
    assert again.rests == refinement.delays.rests


def test_neighbourhoods(data_set: int) -> None:
    """Keep the rules and fixed cells, and never let a move make all ends together later."""
    design = spread_design(data_set, PIPELINES).json()
    cells = design["modules"]["top"]["cells"]
    before = {name: cells[name]["attributes"]["NEXTPNR_BEL"] for name in FIXED}
    refinement = Refinement(design, seed=1, goal=GOAL)
    ends = [pin for pin, setup in enumerate(refinement.graph.setups) if setup is not None]
    groups = refinement.placement.groups
    neighbourhoods = Neighbourhoods(refinement, seed=1)
    moved = 0
    for number in range(8):
        late = refinement.lateness(ends, groups)
        moved += neighbourhoods.go_over(40)
        assert refinement.lateness(ends, groups) <= late + 1e-9, number
        refinement.placement.write()
        assert not broken_rules(design), number
    assert moved
    assert before == {name: cells[name]["attributes"]["NEXTPNR_BEL"] for name in FIXED}
    again = Delays(refinement.graph, refinement.placement.xs, refinement.placement.ys)
    assert again.arrivals == refinement.delays.arrivals
    assert again.rests == refinement.delays.rests


def test_what_holds_together_goes_together() -> None:
    """Move three connected look-up tables together, far from the blocks before and after them.

    Each move of one alone would only make another wire longer.
    """
    made = PlacedDesign()
    for x in range(2, 26):
        made.add(f"edge_{x}", "TRELLIS_COMB", site(x, 8, 7), {}, F=f"edge_{x}")
    made.add("before", "MULT18X18D", "X2/Y7/MULT18", {}, F="l_0")
    for n in range(3):
        made.add(f"l_{n}", "TRELLIS_COMB", site(24, 8, n), {}, A=f"l_{n}", F=f"l_{n + 1}")
    made.add("behind", "MULT18X18D", "X3/Y7/MULT18", {}, A="l_3")
    refinement = Refinement(made.json(), seed=1, goal=6.0)
    for _ in range(6):
        refinement.go_over(0.0)
    assert refinement.delays.slow(7.0)
    Neighbourhoods(refinement, seed=1).go_over(400)
    assert not refinement.delays.slow(6.0)


def test_block_memories_go_to_what_they_feed() -> None:
    """Swap two block memories that lie in each other's place, and move one to a free place."""
    made = PlacedDesign()
    places = {"left": "X40/Y22/EBR0", "right": "X4/Y22/EBR0", "middle": "X24/Y70/EBR2"}
    for x, (name, place) in zip((4, 40, 24), places.items(), strict=True):
        made.add(name, "DP16KD", place, {}, DOA0=name)
        made.add(f"behind_{name}", "MULT18X18D", f"X{x}/Y22/MULT18", {}, A=name)
    design = made.json()
    refinement = Refinement(design, seed=1, goal=3.0)
    blocks = Blocks(refinement)
    assert blocks.go_over() == 2
    assert blocks.go_over() == 0
    refinement.placement.write()
    cells = design["modules"]["top"]["cells"]
    assert {name: cells[name]["attributes"]["NEXTPNR_BEL"] for name in places} == {
        "left": "X4/Y22/EBR0",
        "right": "X40/Y22/EBR0",
        "middle": "X24/Y22/EBR2",
    }
    again = Delays(refinement.graph, refinement.placement.xs, refinement.placement.ys)
    assert again.arrivals == refinement.delays.arrivals
    assert again.rests == refinement.delays.rests
    assert not refinement.delays.slow(3.0)


def test_no_block_memory_takes_the_place_of_one_that_needs_it_more() -> None:
    made = PlacedDesign()
    for name, x, to in (("far", 4, 30), ("there", 40, 44)):
        made.add(name, "DP16KD", f"X{x}/Y22/EBR0", {}, DOA0=name)
        made.add(f"behind_{name}", "MULT18X18D", f"X{to}/Y22/MULT18", {}, A=name)
    refinement = Refinement(made.json(), seed=1, goal=3.0)
    assert len(refinement.delays.slow(3.0)) == 1
    assert Blocks(refinement).go_over() == 0


def test_repeatable() -> None:
    """Get the same places from the same seed, and other places from another seed."""
    texts: list[str] = []
    for seed in (1, 1, 2):
        design = spread_design(5, PIPELINES).json()
        refine(design, seed=seed, frequency=460, what="test")
        texts.append(json.dumps(design))
    assert texts[0] == texts[1] != texts[2]


def test_paths_on_paper() -> None:
    """Time paths by hand: two registers and a look-up table, and a carry of three bits.

    The registers are 8 columns and 7 rows apart.
    """
    made = PlacedDesign()
    made.add("a", "TRELLIS_FF", site(2, 2, 0, True), {}, M="b", Q="a", CLK="clk")
    made.add("l", "TRELLIS_COMB", site(10, 2, 0), {}, C="a", F="l")
    made.add("b", "TRELLIS_FF", site(10, 9, 0, True), {}, M="l", Q="b", CE="a", CLK="clk")
    for bit, carry in enumerate(("", "c_0", "c_1")):
        mode = {"MODE": "CCU2"}
        nets = {"A": "a" if not bit else "", "FCI": carry, "FCO": f"c_{bit}" if bit < 2 else ""}
        made.add(f"s_{bit}", "TRELLIS_COMB", site(2, 3, bit), mode, **nets, F=f"s_{bit}")
    made.add("c", "TRELLIS_FF", site(2, 3, 2, True), {}, DI="s_2", Q="c", CLK="clk")
    design = made.json()
    graph = Graph(design)
    placement = Placement(design, graph)
    delays = Delays(graph, placement.xs, placement.ys)
    columns = 0.62 + 5 * 0.0906 + 3 * 0.0453
    rows = 0.62 + 5 * 0.1167 + 2 * 0.0529
    assert wire_delay(2, 2, 10, 2) == pytest.approx(columns)
    assert wire_delay(10, 9, 10, 2) == pytest.approx(rows)
    both = columns + rows - 0.62
    assert delays.slow(0.0) == pytest.approx(
        sorted(
            [
                0.53 + columns + 0.24 + rows,  # path of a, l, b
                0.53 + both,  # a to the enable of b
                0.53 + both,  # b to a
                0.53 + (0.62 + 0.1167) + 0.45 + 0.07 + 0.44,  # a, s_0, s_1, s_2, c
            ],
            reverse=True,
        )
    )


def test_places_and_routes_in_two_steps(tmp_path: Path) -> None:
    """Place and route a whole machine, with the improved places in between."""
    design = spread_design(7, PIPELINES).json()
    (tmp_path / "spread.json").write_text(json.dumps(design))
    (tmp_path / NETLIST).write_text(
        '{"modules": {"top": {"attributes": {"top": "1"}, "cells": {}}}}'
    )
    (tmp_path / "report.json").write_text(json.dumps(pnr_report(99.0, [])))
    script = tmp_path / "nextpnr"
    script.write_text(
        '#!/bin/sh\necho "$@" >> calls.txt\ncase "$*" in\n'
        "*--no-route*) cp spread.json placed.json ;;\n"
        "*) for name; do :; done; cp placed.json seen.json; cp report.json $name ;;\nesac\n"
    )
    script.chmod(0o755)
    tool = Tool("nextpnr-ecp5", str(script), "nextpnr-0.11")
    target = TARGETS["ecp5-85f"]
    reports = place_and_route(tool, target, "6", 1, tmp_path, whole=True)
    assert reports == {1: pnr_report(99.0, [])}
    placing, routing = (tmp_path / "calls.txt").read_text().splitlines()
    assert "--placer static" in placing and "--json floorplan.json --seed 1" in placing
    assert "--json placed.json --no-pack --no-place" in routing and "--seed" not in routing
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen != design and not broken_rules(seen)
    # A second run has nothing left to do.
    assert place_and_route(tool, target, "6", 1, tmp_path, whole=True) == reports
    assert len((tmp_path / "calls.txt").read_text().splitlines()) == 2
