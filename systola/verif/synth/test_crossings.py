# SPDX-License-Identifier: Apache-2.0
"""Tests that unregistered paths between units, and only those, are found in small netlists."""

from __future__ import annotations

from typing import Any

from systola.synth.crossings import Crossing, crossings_of
from systola.verif.synth.netlists import DESIGN


class Design:
    """A flat design of the word-level cells of Yosys, built cell by cell."""

    def __init__(self) -> None:
        self._cells: dict[str, Any] = {}
        self._names: dict[str, Any] = {}
        self._bits = 2

    def signal(self, name: str, width: int = 1) -> list[int | str]:
        """Add a signal with a name, such as `core.fetch.pc`, and return its bits."""
        bits: list[int | str] = [*range(self._bits, self._bits + width)]
        self._bits += width
        self._names[name] = {"hide_name": 0, "bits": bits}
        return bits

    def cell(self, kind: str, unit: str, output: str, parameters: Any = None, **ports: Any) -> None:
        """Add a cell to a unit; the port `output` is its only output."""
        path = "".join(f"\\{part}." for part in unit.split("."))
        self._cells[f"$flatten{path}{kind}${len(self._cells)}"] = {
            "type": kind,
            "parameters": parameters or {},
            "port_directions": {port: "output" if port == output else "input" for port in ports},
            "connections": ports,
        }

    def register(self, unit: str, name: str, data: list[Any]) -> list[Any]:
        """Add a register with the input `data` to a unit, and return its output."""
        output = self.signal(f"{unit}.{name}", len(data))
        self.cell("$dff", unit, "Q", D=data, Q=output, CLK=["x"])
        return output

    def logic(self, unit: str, kind: str, *inputs: list[Any]) -> list[Any]:
        """Add a logic cell, as wide as its first input, to a unit, and return its output."""
        output = self.signal(f"{unit}.logic_{self._bits}", len(inputs[0]))
        self.cell(kind, unit, "Y", Y=output, **dict(zip("ABS", inputs, strict=False)))
        return output

    def crossings(self) -> list[Crossing]:
        cells = {**self._cells, "core": {"type": "$scopeinfo"}}
        module = {"cells": cells, "netnames": self._names}
        return crossings_of({"modules": {DESIGN: module}}, DESIGN)


def test_registers_at_the_boundary_are_fine() -> None:
    design = Design()
    a = design.register("core.fetch", "pc", ["0"])
    b = design.register("core.decoder", "word", design.logic("core.decoder", "$add", a, a))
    design.register("core.decoder", "next", design.logic("core.decoder.window", "$not", b))
    assert design.crossings() == []


def test_logic_on_both_sides() -> None:
    design = Design()
    a = design.register("core.fetch.ring", "count", ["0", "1"])
    full = design.logic("core.fetch", "$eq", a)
    design.register("core.decoder", "word", design.logic("core.decoder", "$add", full))
    (crossing,) = design.crossings()
    assert crossing == Crossing(
        "fetch", ("decoder", "fetch"), "decoder", 2, "fetch.ring.count -> decoder.word"
    )
    assert "fetch -> (decoder, fetch) -> decoder: 2 bits, such as" in str(crossing)


def test_third_unit_and_back() -> None:
    design = Design()
    a = design.register("core.fetch", "pc", ["0"])
    between = design.logic("core", "$not", a)
    design.register("core.decoder", "word", between)
    design.register("core.fetch", "ready", design.logic("counters$26", "$not", a))
    assert [(c.start, c.through, c.end) for c in design.crossings()] == [
        ("fetch", ("core",), "decoder"),
        ("fetch", ("counters",), "fetch"),
    ]


def test_bits_of_a_word_are_kept_apart() -> None:
    """Check that each bit of a multiplexer depends only on its input bits and the choice."""
    design = Design()
    good = design.register("core.fetch", "good", ["0"])
    bad = design.logic("core.fetch", "$not", good)
    other = design.register("core.decoder", "other", ["0", "0"])
    choice = design.register("core.decoder", "choice", ["0"])
    word = design.logic("core.decoder", "$mux", [*good, *bad], other, choice)
    design.register("core.decoder", "low", word[:1])
    assert design.crossings() == []
    design.register("core.decoder", "high", word[1:])
    assert [c.example for c in design.crossings()] == ["fetch.good -> decoder.high"]


def test_memories() -> None:
    """Check that a memory counts as a register with a clocked read port, and else as logic."""
    for clocked in (True, False):
        design = Design()
        address = design.register("core.fetch", "pc", ["0"])
        data = design.signal("core.fetch.data")
        parameters = {"WIDTH": "1", "ABITS": "1", "RD_CLK_ENABLE": str(int(clocked))}
        none: list[Any] = []
        ports = dict.fromkeys(("WR_ADDR", "WR_DATA", "WR_EN", "RD_EN"), none)
        design.cell(
            "$mem_v2", "core.fetch", "RD_DATA", parameters, RD_ADDR=address, RD_DATA=data, **ports
        )
        design.register("core.decoder", "word", design.logic("core.decoder", "$not", data))
        assert len(design.crossings()) == (0 if clocked else 1)
