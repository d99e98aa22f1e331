# SPDX-License-Identifier: Apache-2.0
"""The paths between units that no register cuts at the boundary.

The search runs on the design before it is mapped to cells, where every piece of logic still belongs
to the unit that describes it. Units should hand over registers, and should put inputs into
registers after little logic.

A path from a register of unit A to a register of unit B is listed in three cases. It has logic of
both units, it has logic of a third unit, or it leaves a unit and comes back to it. Modules that
only hold units together count as units.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systola.sim.build import content_key
from systola.synth.netlist import SCOPE, plain, unit_of
from systola.synth.tools import Tool, run_tool

_SOURCE, _NETLIST, _LOG = "machine.v", "machine.json", "machine.log"
_REGISTERS = ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce", "$adff", "$adffe")
_BITWISE = ("$not", "$pos", "$and", "$or", "$xor", "$xnor", "$mux", "$pmux")
"""Cells in which an output bit depends only on the input bits at the same place, and on port S."""

_Bit = int | str
_History = tuple[str, frozenset[str]]
"""A history of a value: the unit of the register that it comes from, and all units on the way."""
_Histories = Mapping[_History, str]
"""All histories of a bit, each with the name of one register that the bit comes from."""
_NOWHERE: _Histories = {}


@dataclass(frozen=True, order=True)
class Crossing:
    """A set of paths between registers that pass through the same units.

    The paths lead from registers of unit `start` through logic of the units `through` to registers
    of unit `end`. `bits` is the number of registers at which they end. `example` is one of the
    paths, from signal to signal.
    """

    start: str
    through: tuple[str, ...]
    end: str
    bits: int
    example: str

    def __str__(self) -> str:
        return (
            f"{self.start} -> ({', '.join(self.through)}) -> {self.end}: {self.bits} bits, "
            f"such as {self.example}"
        )


def find_crossings(tool: Tool, verilog: str, design: str, folder: Path) -> list[Crossing]:
    """Find all paths that cross a boundary of units in a machine's Verilog.

    The Verilog must not instantiate blocks of an FPGA. Yosys works in `folder`.
    """
    script = "\n".join(
        (
            f"read_verilog {_SOURCE}",
            f"hierarchy -top {design}",
            "proc",
            "flatten",
            "opt_clean",
            "memory_dff",
            "memory_collect",
            "opt_clean",
            f"write_json {_NETLIST}",
            "",
        )
    )
    key = content_key(verilog, script, tool.version)
    stamp = folder / "machine.key"
    if not (stamp.exists() and stamp.read_text() == key):
        stamp.unlink(missing_ok=True)
        (folder / _SOURCE).write_text(verilog)
        (folder / "machine.ys").write_text(script)
        run_tool(tool, ("machine.ys",), folder=folder, log=_LOG, what="paths between units")
        stamp.write_text(key)
    return crossings_of(json.loads((folder / _NETLIST).read_text()), design)


def crossings_of(netlist: Mapping[str, Any], design: str) -> list[Crossing]:
    """Find all crossings in a flat netlist of Yosys' word-level cells with top module `design`."""
    graph = _Graph(netlist["modules"][design], design)
    ends: dict[tuple[str, tuple[str, ...], str], list[str]] = defaultdict(list)
    for unit, name, bits in graph.sinks():
        for bit in bits:
            for (start, passed), source in graph.histories(bit).items():
                if _is_crossing(start, passed, unit):
                    through = tuple(sorted(passed))
                    ends[start, through, unit].append(f"{source} -> {name}")
    return sorted(
        Crossing(start, through, end, len(examples), min(examples))
        for (start, through, end), examples in ends.items()
    )


def _is_crossing(start: str, passed: frozenset[str], end: str) -> bool:
    return bool(passed - {start, end}) or (start != end and {start, end} <= passed)


class _Graph:
    """A graph of a flat module that finds the registers, and the units on the way, of each bit."""

    def __init__(self, module: Mapping[str, Any], design: str) -> None:
        self._design = design
        self._cells: Mapping[str, Any] = {
            name: cell for name, cell in module["cells"].items() if cell["type"] != SCOPE
        }
        self._names = self._signal_names(module["netnames"])
        self._drivers: dict[_Bit, tuple[str, str, int]] = {}
        for name, cell in self._cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self._drivers |= {bit: (name, port, at) for at, bit in enumerate(bits)}
        self._known: dict[_Bit, _Histories] = {}
        self._origins: dict[tuple[str, str], _Histories] = {}
        self._merges: dict[tuple[str, frozenset[int]], _Histories] = {}

    def sinks(self) -> Iterator[tuple[str, str, list[_Bit]]]:
        """Yield for each register and memory its unit, the name of a signal, and its input bits."""
        for name, cell in self._cells.items():
            connections = cell["connections"]
            if cell["type"] in _REGISTERS:
                inputs = [
                    b for port, bits in connections.items() if port not in "QCLK" for b in bits
                ]
                shown = self._name_of(connections["Q"][0], name)
            elif cell["type"] == "$mem_v2":
                ports = ("WR_ADDR", "WR_DATA", "WR_EN", "RD_EN", "RD_ADDR")
                inputs = [bit for port in ports for bit in connections[port]]
                shown = self._name_of(None, name)
            else:
                continue
            yield self._unit(name), shown, inputs

    def histories(self, bit: _Bit) -> _Histories:
        """Return the histories of a bit: units that it comes from, and units on the way."""
        waiting = [bit]
        while waiting:
            now = waiting[-1]
            if now in self._known:
                waiting.pop()
                continue
            driver = self._drivers.get(now)
            if driver is None:  # a port of the machine or a constant, which has no history
                self._known[now] = _NOWHERE
                continue
            name, port, at = driver
            kind = self._cells[name]["type"]
            if kind in _REGISTERS or (kind == "$mem_v2" and self._is_synchronous(name, at)):
                origin = self._unit(name), self._name_of(now, name)
                self._known[now] = self._origins.setdefault(
                    origin, {(origin[0], frozenset()): origin[1]}
                )
                continue
            inputs = self._inputs(name, port, at)
            missing = [each for each in inputs if each not in self._known]
            if missing:
                waiting += missing
                continue
            self._known[now] = self._merged(self._unit(name), [self._known[i] for i in inputs])
        return self._known[bit]

    def _merged(self, unit: str, parts: list[_Histories]) -> _Histories:
        """Return the histories of an output bit of logic in `unit`, from the histories of its
        inputs."""
        # Most bits of a word have the same origins, so each combination of origins is worked out
        # only once.
        key = unit, frozenset(map(id, parts))
        if key not in self._merges:
            here = frozenset((unit,))
            merged: dict[_History, str] = {}
            for part in parts:
                for (start, passed), source in part.items():
                    merged.setdefault((start, passed | here), source)
            self._merges[key] = merged
        return self._merges[key]

    def _inputs(self, name: str, port: str, at: int) -> list[_Bit]:
        """Return the input bits of a cell on which its output bit number `at` depends."""
        cell = self._cells[name]
        inputs = {
            key: bits
            for key, bits in cell["connections"].items()
            if cell["port_directions"][key] == "input"
        }
        if cell["type"] == "$mem_v2":
            parameters = cell["parameters"]
            width, address = (int(parameters[key], 2) for key in ("WIDTH", "ABITS"))
            which = at // width
            return inputs["RD_ADDR"][which * address : (which + 1) * address]
        if cell["type"] not in _BITWISE:
            return [bit for bits in inputs.values() for bit in bits]
        width = len(cell["connections"][port])
        found: list[_Bit] = list(inputs.pop("S", []))
        for bits in inputs.values():
            # A shorter operand is extended with its last bit or with zeros.
            found += bits[at::width] if len(bits) >= width else bits[min(at, len(bits) - 1) :][:1]
        return found

    def _is_synchronous(self, name: str, at: int) -> bool:
        parameters = self._cells[name]["parameters"]
        which = at // int(parameters["WIDTH"], 2)
        return parameters["RD_CLK_ENABLE"][-1 - which] == "1"

    def _unit(self, name: str) -> str:
        path = _path(name)
        return unit_of(f"{self._design}.{path}" if path else self._design, self._design) or ""

    def _name_of(self, bit: _Bit | None, register: str) -> str:
        """Return the name of the signal with this bit in the register's own module, or else the
        module's name.
        """
        return self._names.get((_path(register), bit)) or plain(_path(register), self._design)

    def _signal_names(self, netnames: Mapping[str, Any]) -> dict[tuple[str, _Bit | None], str]:
        """Return the names of signals by module and bit."""
        names: dict[tuple[str, _Bit | None], str] = {}
        for name, net in netnames.items():
            path, _, signal = name.rpartition(".")
            if not net["hide_name"] and not signal.startswith("$"):
                shown = plain(name, self._design)
                names |= {(path, bit): shown for bit in net["bits"]}
        return names


def _path(cell: str) -> str:
    r"""Return the module of a cell: `core.fetch` for `$flatten\core.\fetch.$add$1.v:2$3`."""
    cell = cell.removeprefix("$flatten")
    parts = [part.removeprefix("\\") for part in cell.split(".")]
    path: list[str] = []
    for part in parts[:-1]:
        if part.startswith("$"):
            break
        path.append(part)
    return ".".join(path)
