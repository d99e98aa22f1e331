# SPDX-License-Identifier: Apache-2.0
"""The coverage that Verilator counts: lines, branches and toggles of the hardware's Verilog."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from systola.arch.config import Config
from systola.hdl.verilog_names import instance_path
from systola.sim.design import verilog_of
from systola.sim.verilator import build_library
from systola.verif.coverage.probes import with_probes
from systola.verif.coverage.statements import statement_names

OPTIONS = ("--coverage-line", "--coverage-toggle")
KINDS = ("line", "branch", "toggle", "probe")
_ARMS = {"cond_then": ", then", "cond_else": ", else", "if": ", then", "else": ", else", "case": ""}
_POINT = re.compile(r"C '(.*)' (\d+)")
_MODULE = re.compile(r"^module (\\\S+|\w+)")


@dataclass(frozen=True)
class Point:
    """A point of the Verilog (a line, branch, toggle or probe) at which Verilator counts passes.

    `kind` is one of KINDS. `what` is the signal, or the statement and its branch.
    """

    kind: str
    module: str
    line: int
    what: str

    @property
    def name(self) -> str:
        """Return the point's name, unique in its module and kind.

        Statements have names of their own, which stay the same when lines move.
        """
        return self.what if ": " in self.what else f"{self.line} {self.what}"


def counting_verilog(config: Config) -> str:
    """Return the Verilog of the machine, with an additional signal for each probe."""
    return with_probes(verilog_of(config))


def counting_library(config: Config) -> Path:
    """Build the machine's simulator that counts coverage, and return its path."""
    name = f"{config.name}, counting"
    return build_library(counting_verilog(config), name=name, options=OPTIONS, optimise="-O1")


def read_points(file: Path, verilog: str) -> Counter[Point]:
    """Return the number of passes through each point, from a file written by Verilator.

    Points outside any module do not count.
    """
    modules, names = modules_of(verilog), statement_names(verilog)
    points: Counter[Point] = Counter()
    for text in file.read_text().splitlines():
        if match := _POINT.fullmatch(text):
            values = dict(_values(match[1]))
            line = int(values["l"])
            if not modules[line]:
                continue
            kind = values["page"].partition("/")[0].removeprefix("v_")
            what = values["o"]
            if what.startswith("probe_"):
                if not what.endswith("0->1"):
                    continue
                kind, what = "probe", what.removeprefix("probe_").partition("[")[0].split(":")[0]
            elif kind in ("line", "branch"):
                what = f"{names[line]}{_ARMS[what]}" if names[line] else what
            points[Point(kind, modules[line], line, what)] += int(match[2])
    return points


def modules_of(verilog: str) -> list[str]:
    """Return the name of the module, such as `tpu.core`, on each line of the Verilog.

    The list's index is the number of the line, counted from 1. Entry 0 is empty.
    """
    modules, module = [""], ""
    for line in verilog.splitlines():
        if match := _MODULE.match(line):
            module = instance_path(match[1])
        modules.append(module)
    return modules


def _values(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split("\x01")[1:]:
        name, _, value = part.partition("\x02")
        yield name, value
