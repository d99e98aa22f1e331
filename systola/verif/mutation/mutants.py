# SPDX-License-Identifier: Apache-2.0
"""The mutants of a design (copies with one fault each), and a simulator that holds all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from systola.sim.build import built_once, content_key
from systola.synth.tools import find_tool, run_tool
from systola.verif.mutation.design import Design, M

SELECT = "planted_fault"
"""Name of the input that selects a mutant; the harness of the simulator drives it."""
_LEFT_OUT = re.compile(r"(?:\w+_)?clk|CLK|EN")
"""Pattern of ports without mutants: clocks, and write enables of memories, with equal bits."""
_SPARE = 0.1
"""Share of mutants requested beyond the wanted number, since some are left out."""
_MACRO = "sram_1r1w.v"
READ = f"""\
read_rtlil design.il
read_verilog -lib {_MACRO}
hierarchy -top {{top}}
proc
opt_clean
"""
"""Beginning of a script of Yosys, which reads the design.

For memories that are macros, Yosys reads only the ports. Otherwise Yosys would take all ports of
an unknown module for outputs, and cut off an input on which Yosys plants a fault.
"""
WRITE = (
    "delete */t:$meminit_v2",  # memories begin without contents, as in hdl/verilog.py
    "opt_clean",
    "splitnets -driver",
    "opt_clean",
    "setattr -unset src */* A:*",
    "write_verilog -noattr design.v",
)
"""End of a script of Yosys, which writes the design as Verilog, design.v."""
_FIELD = re.compile(r"-(\w+) (\S+)")
_SOURCE = re.compile(r"(?:.*/)?(hdl/[\w/]+\.py:\d+)")


@dataclass(frozen=True)
class Mutant:
    """A single fault: number `number` of a list; 0 is the design without a fault.

    `mode` is the change of bit `bit` of a port of a cell. "inv" inverts the bit, "const0" and
    "const1" fix the bit. "cnot0" and "cnot1" invert the bit while bit `control` of the port is 0
    or 1.
    """

    number: int
    mode: str
    module: str
    cell: str
    port: str
    bit: int
    control: int
    signal: str
    """Name and bit of the faulty signal in the source; empty if the signal has no name."""
    sources: tuple[str, ...]
    """Source lines of the faulty cell in hdl/, such as "hdl/control/fetch.py:71"."""

    @property
    def unit(self) -> str:
        """Return the path of the faulty module in the design, such as "core.matrix_unit.feeder"."""
        return re.sub(r"\$\d+", "", self.module).removeprefix("tpu").lstrip(".") or "tpu"

    @property
    def command(self) -> str:
        """Return the command of Yosys that plants the fault, without a control signal."""
        place = f"-module {self.module} -cell {self.cell} -port {self.port} -portbit {self.bit}"
        control = f" -ctrlbit {self.control}" if self.mode.startswith("cnot") else ""
        return f"mutate -mode {self.mode} {place}{control}"

    @property
    def text(self) -> str:
        """Return a line of text that describes the fault."""
        name = self.signal or f"{self.cell}.{self.port}[{self.bit}]"
        control = f" by bit {self.control}" if self.mode.startswith("cnot") else ""
        return f"{self.unit}: {name} {self.mode}{control} ({', '.join(self.sources)})"


def mutants_of(design: Design[M], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, numbered from 1, spread by Yosys over modules, signals and lines.

    No mutant is in a port of _LEFT_OUT, and none in the initial contents of a memory.
    """
    yosys = find_tool("yosys")
    script = READ.format(top=design.top) + (
        f"mutate -list {count + int(count * _SPARE) + 10} -seed {seed} -o mutants.txt "
        f"{design.chosen}\n"
    )

    def make(work: Path) -> Path:
        run_script(design.rtlil, script, work, "the list of mutants")
        return work / "mutants.txt"

    key = content_key(yosys.version, design.rtlil, script)
    listed = built_once("mutants", f"{key}.txt", f"listing mutants of '{design.name}'", make)
    found: list[Mutant] = []
    for line in listed.read_text().splitlines():
        values = dict(_FIELD.findall(line))
        if _LEFT_OUT.fullmatch(values["port"]):
            continue
        wire = values.get("wire", "")
        found.append(
            Mutant(
                number=len(found) + 1,
                mode=values["mode"],
                module=values["module"],
                cell=values["cell"],
                port=values["port"],
                bit=int(values["portbit"]),
                control=int(values.get("ctrlbit", 0)),
                signal=f"{re.sub(r'[$].*', '', wire)}[{values['wirebit']}]" if wire else "",
                sources=tuple(_sources(line)),
            )
        )
    return found[:count]


def _sources(line: str) -> list[str]:
    matches = (_SOURCE.fullmatch(value) for name, value in _FIELD.findall(line) if name == "src")
    return [match[1] for match in matches if match]


def run_script(rtlil: str, script: str, folder: Path, what: str) -> None:
    """Run a script of Yosys on a design, in a folder; the script begins with READ."""
    (folder / "design.il").write_text(rtlil)
    (folder / _MACRO).write_text(_macro())
    (folder / "script.ys").write_text(script)
    run_tool(find_tool("yosys"), ("script.ys",), folder=folder, log="yosys.log", what=what)


def planting(top: str, mutants: Sequence[Mutant]) -> list[str]:
    """Return the lines of a Yosys script that read the design and plant all mutants.

    `top` is the top module. The input SELECT of each module with mutants is the number of the
    mutant that is active.
    """
    width = max((mutant.number for mutant in mutants), default=1).bit_length()
    plant = (f"{mutant.command} -ctrl {SELECT} {width} {mutant.number}" for mutant in mutants)
    return [*READ.format(top=top).splitlines(), *plant]


def mutated_verilog(design: Design[M], mutants: Sequence[Mutant]) -> str:
    """Return Verilog of the design with all mutants, and an input SELECT for a mutant's number."""
    yosys = find_tool("yosys")
    script = "\n".join((*planting(design.top, mutants), *WRITE, ""))

    def make(work: Path) -> Path:
        run_script(design.rtlil, script, work, "planting mutants")
        return work / "design.v"

    key = content_key(yosys.version, design.rtlil, script)
    what = f"planting {len(mutants)} mutants in '{design.name}'"
    text = built_once("mutants", f"{key}.v", what, make).read_text()
    return text + _macro()


def _macro() -> str:
    """Return the Verilog model of the memories that are macros."""
    return files("systola.hdl.memories").joinpath(_MACRO).read_text()


def mutated_library(design: Design[M], mutants: Sequence[Mutant], *, optimise: str = "-O1") -> Path:
    """Return a simulator with all mutants; `optimise` is an option of the C++ compiler."""
    return design.library(mutated_verilog(design, mutants), optimise)
