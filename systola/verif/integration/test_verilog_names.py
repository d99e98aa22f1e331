# SPDX-License-Identifier: Apache-2.0
"""Tests of the names of modules and ports in the Verilog, with small designs."""

import ast
import re
from pathlib import Path

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola import hdl
from systola.hdl.verilog import convert

_NAMED = re.compile(r"^Signal\b|_port$")
"""Functions that make signals, or ports of memories."""


class Inner(wiring.Component):
    """A unit with inputs that the design around it drives piece by piece."""

    fields: In(data.StructLayout({"low": 4, "high": 4}))
    word: In(12)
    flag: In(1)
    whole: In(8)
    total: Out(9)

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.d.sync += self.total.eq(self.whole + self.word + self.flag + self.fields.as_value())
        return m


class Outer(wiring.Component):
    """A design of two copies of Inner, and `spare` registers that the copies do not use."""

    a: In(8)
    b: In(16)
    c: In(2)
    total: Out(10)

    def __init__(self, spare: int = 0) -> None:
        super().__init__()
        self._spare = spare

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        for number in range(self._spare):
            spare = Signal(8, name=f"spare_{number}")
            m.d.sync += spare.eq(spare + self.b)
            m.d.comb += Signal(name=f"seen_{number}").eq(spare[3])
        m.submodules["first"] = first = Inner()
        m.submodules["stage_-1"] = second = Inner()
        for unit in (first, second):
            m.d.comb += [
                unit.fields.low.eq(self.b[4:8]),
                unit.fields.high.eq(self.b[8:12]),
                unit.word.eq(Cat(self.b[:4], self.b[12:])),
                unit.flag.eq(self.c[1]),
                unit.whole.eq(self.a),
            ]
        m.d.comb += self.total.eq(first.total + second.total)
        return m


def _ports(text: str) -> dict[str, dict[str, int]]:
    """Return the width in bits of each input, by the name of its module and its own name."""
    found = {}
    for module in re.findall(r"^module .*?^endmodule", text, re.M | re.S):
        inputs = re.findall(r"^  input (?:\[(\d+):0\] )?(\S+) ?;", module, re.M)
        found[re.split(r"[ (]", module)[1]] = {name: int(high or 0) + 1 for high, name in inputs}
    return found


def test_ports_have_the_names_of_their_signals() -> None:
    """Check names of ports for parts of a signal, a signal of two fields, and a whole signal."""
    ports = _ports(convert(Outer(), "top"))
    parts = {"flag": 1, "word_3_0": 4, "word_7_4": 4}
    expected = {"clk": 1, "rst": 1, "fields": 8, "whole": 8, **parts}
    assert ports["top__first"] == ports["top__stage_minus_1"] == expected


def test_a_spare_register_changes_no_name() -> None:
    assert _ports(convert(Outer(), "top")) == _ports(convert(Outer(spare=1), "top"))


def test_signals_are_assigned_one_by_one() -> None:
    """Check that no line of hdl/ assigns several signals or ports of memories.

    Amaranth finds the name of a signal in the statement that assigns it. With several signals in a
    statement, the version of Python decides which of them get their names.
    """
    found: list[str] = []
    for file in Path(hdl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=values)):
                    made = [each for each in values if isinstance(each, ast.Call)]
                    if any(_NAMED.search(ast.unparse(each.func)) for each in made):
                        found.append(f"{file.name}:{node.lineno}")
                case _:
                    pass
    assert not found
