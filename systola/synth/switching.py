# SPDX-License-Identifier: Apache-2.0
"""`make asic-energy`: the energy of a multiply-add in the array, from every transition of its nets.

The array of a preset is mapped to standard cells, flat. Icarus Verilog runs the netlist with the
delays of the library's cells, checks its sums and writes a VCD. The transitions of each net become
the activity of the pins on it, and OpenSTA multiplies them with the energies of the library. Wires
have no capacitance. Nothing drives the clock but an ideal source, so the clock tree is missing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config, ConfigError, preset
from systola.bench.moment import commit_and_changes, today
from systola.cli.arguments import OneLineParser, whole_number
from systola.hdl.parts.fabric import Fabric
from systola.sim.build import build_root
from systola.sim.vcd import variables
from systola.synth.asic import LIBRARY, find_tools
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.tools import Tool, run_tool
from systola.synth.units import design_of

RESULTS = Path(__file__).with_name("switching.json")
MODELS = LIBRARY.with_suffix(".v")
NS = 40
"""Period of the clock in ns, longer than any path. Energies do not depend on it."""
_STEP = 0.01
"""A unit of time of the VCD, in ns."""
_INSTANCE = re.compile(r"^  (\w+) (\w+) \(\n(.*?)\n  \);$", re.MULTILINE | re.DOTALL)
_PIN = re.compile(r"^    \.(\w+)\((.*)\),?$", re.MULTILINE)
_ROW = re.compile(r"^(Sequential|Combinational|Total) +(\S+) +(\S+) +(\S+) +(\S+)", re.MULTILINE)
_ERROR = re.compile(r"^Error: .*", re.MULTILINE)


@dataclass(frozen=True)
class Transitions:
    """The transitions of a net in some cycles."""

    count: int
    useful: int
    """Number of cycles at the end of which the net has another value than at the beginning. Other
    transitions are glitches.
    """
    high: float
    """Share of the time in which the net is 1."""


@dataclass(frozen=True)
class Switching:
    """The energy of an array, measured at its nets."""

    preset: str
    rows: int
    cols: int
    columns_per_stage: int
    vectors: int
    cells: int
    toggles: float
    """Transitions of a net in a cycle, without the clock; the mean of all nets."""
    glitches: float
    """Share of these transitions that are glitches: a cycle makes them and takes them back."""
    sequential: float
    """Picojoules of the flip-flops, clock pins included, for each multiply-add."""
    combinational: float
    """Picojoules of all cells but the flip-flops, for each multiply-add."""
    tools: list[str]
    date: str
    commit: str

    @property
    def picojoules(self) -> float:
        """Picojoules of a multiply-add."""
        return self.sequential + self.combinational


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure an array, print and store its energy; return the exit status."""
    parser = OneLineParser(prog="make asic-energy", description=__doc__)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vectors", type=whole_number(1), default=200, metavar="N")
    options = parser.parse_args(arguments)
    try:
        found = measure(options.preset, options.vectors)
    except (SynthesisUsageError, SynthesisError, ConfigError) as error:
        print(f"asic-energy: {error}", file=sys.stderr)
        return 2 if not isinstance(error, SynthesisError) else 1
    print(f"{found.picojoules:.1f} pJ a multiply-add ({found.sequential:.1f} in flip-flops)")
    store(found)
    return 0


def measure(name: str, vectors: int) -> Switching:
    """Return the energy of the array of a preset.

    Raises ConfigError, SynthesisUsageError for a tool or file that is missing, SynthesisError if a
    tool gives up or a sum is wrong.
    """
    config = preset(name)
    yosys, sta = find_tools()
    icarus = [shutil.which(tool) for tool in ("iverilog", "vvp")]
    if sta is None or None in icarus or not MODELS.exists():
        raise SynthesisUsageError(
            "Icarus Verilog, OpenSTA or the library is missing: "
            "apt-get install iverilog opensta qflow-tech-osu018"
        )
    folder = build_root() / "asic" / f"{name}_switching"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "design.v").write_text(design_of(config, "mxu", Fabric.CHIP), encoding="utf-8")
    (folder / "library.lib").write_bytes(LIBRARY.read_bytes())
    (folder / "yosys.ys").write_text(_SCRIPT, encoding="utf-8")
    run_tool(yosys, ("yosys.ys",), folder=folder, log="yosys.log", what=f"mapping ({name})")
    netlist = (folder / "netlist.v").read_text(encoding="utf-8")
    data = _Data.drawn(config, vectors)
    (folder / "bench.v").write_text(bench(config, data), encoding="utf-8")
    _simulate(folder, data.sums)
    with (folder / "array.vcd").open(encoding="utf-8") as lines:
        nets = transitions(lines, vectors)
    pins = instance_pins(netlist)
    watts = _power(sta, folder, pins, nets, vectors)
    each = NS * 1e3 / config.peak_macs
    counted = [one for net, one in nets.items() if net != "clk"]
    toggles = sum(one.count for one in counted)
    return Switching(
        preset=name,
        rows=config.rows,
        cols=config.cols,
        columns_per_stage=config.columns_per_stage,
        vectors=vectors,
        cells=len(pins),
        toggles=toggles / vectors / len(counted),
        glitches=1 - sum(one.useful for one in counted) / toggles,
        sequential=watts["Sequential"] * each,
        combinational=watts["Combinational"] * each,
        tools=[yosys.version, sta.version],
        date=today(),
        commit=commit_and_changes(),
    )


_SCRIPT = """\
read_verilog design.v
hierarchy -top mxu
synth -flatten -noabc -top mxu
dfflibmap -liberty library.lib
abc -fast -liberty library.lib
setattr -mod -unset keep_hierarchy *
flatten
opt_clean
setundef -zero
splitnets -ports
opt_clean
rename -hide
write_verilog -noattr -noexpr netlist.v
"""
"""Script for Yosys.

Copies of a register lie in modules of their own. These are flattened only when Yosys merges no
equal registers any more. Names of cells are numbers, as OpenSTA and Tcl can read them.
"""


@dataclass(frozen=True)
class _Data:
    """Random weights and vectors, and the sums of their products."""

    weights: NDArray[np.int8]
    vectors: NDArray[np.int8]
    sums: NDArray[np.int32]

    @classmethod
    def drawn(cls, config: Config, count: int) -> _Data:
        """Draw random data for an array, the same in each call; all bytes are equally likely."""
        rng = np.random.default_rng(1)
        weights = rng.integers(-128, 128, (config.rows, config.cols), np.int8)
        vectors = rng.integers(-128, 128, (count, config.rows), np.int8)
        return cls(weights, vectors, vectors.astype(np.int32) @ weights.astype(np.int32))


def bench(config: Config, data: _Data) -> str:
    """Return the test bench: a tile of weights, and then a vector in each cycle.

    The vectors come twice. The first time gives all registers a value, and nothing is recorded. The
    bench prints the sums of the second time, a line for each vector.
    """
    from systola.hdl.matrix.mxu import MXU

    rows, cols = config.rows, config.cols
    inputs = {"vector": 8 * rows, "weights": 8 * cols, "load": rows, "swap": 1, "hold_next": 1}
    if config.wide:
        inputs |= {"unsigned_vector": 1, "unsigned_weights": 1}
    wires = {"clk": 1, "rst": 1, **inputs, "sums": 32 * cols}
    ports = [
        f".\\{name}[{bit}] ({name}[{bit}])" if width > 1 else f".{name}({name})"
        for name, width in wires.items()
        for bit in range(width)
    ]
    lines = [
        "`timescale 1ns/10ps",
        "module bench;",
        "  reg clk = 0, rst = 1;",
        *(f"  reg [{width - 1}:0] {name} = 0;" for name, width in inputs.items()),
        f"  wire [{32 * cols - 1}:0] sums;",
        f"  reg [{8 * rows - 1}:0] vectors [0:{len(data.vectors) - 1}];",
        "  integer n;",
        f"  mxu dut ({', '.join(ports)});",
        f"  always #{NS // 2} clk = ~clk;",
        "  initial begin",
        *(f"    vectors[{n}] = {_hex(vector)};" for n, vector in enumerate(data.vectors)),
        "    repeat (4) @(negedge clk);",
        "    rst = 0;",
    ]
    for k, row in enumerate(data.weights):
        lines.append(f"    load = {1 << k}; weights = {_hex(row)}; @(negedge clk);")
    latency = MXU.latency(config)
    lines += [
        "    load = 0;",
        f"    for (n = 0; n < {2 * len(data.vectors) + latency}; n = n + 1) begin",
        "      swap = n == 0;",
        f"      vector = vectors[n % {len(data.vectors)}];",
        f'      if (n == {len(data.vectors)}) begin $dumpfile("array.vcd"); $dumpvars(1, dut); end',
        f"      if (n == {2 * len(data.vectors)}) $dumpoff;",
        f'      if (n >= {len(data.vectors) + latency}) $display("%h", sums);',
        "      @(negedge clk);",
        "    end",
        "    $finish;",
        "  end",
        "endmodule",
    ]
    return "".join(f"{line}\n" for line in lines)


def _hex(values: NDArray[np.int8]) -> str:
    return f"{8 * len(values)}'h{values.tobytes()[::-1].hex()}"


def _simulate(folder: Path, sums: NDArray[np.int32]) -> None:
    """Run the netlist, and leave array.vcd. Raises SynthesisError if its sums are wrong."""
    build = ["iverilog", "-g2005", "-gspecify", "-s", "bench", "-o", "bench.vvp"]
    output = ""
    for command in ([*build, "bench.v", "netlist.v", str(MODELS)], ["vvp", "-n", "bench.vvp"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SynthesisError(f"{command[0]}: {(done.stderr or done.stdout).splitlines()[:1]}")
        output = done.stdout
    shown = re.findall(r"^[0-9a-fxz]+$", output, re.MULTILINE)
    expected = [row.astype("<i4").tobytes()[::-1].hex() for row in sums]
    if shown != expected:
        raise SynthesisError("the netlist has other sums than the array should have")


def instance_pins(netlist: str) -> dict[str, dict[str, str]]:
    """Return the net of each pin of each cell of a flat netlist that Yosys wrote."""
    return {
        name: {pin: net.strip().removeprefix("\\") for pin, net in _PIN.findall(pins)}
        for _, name, pins in _INSTANCE.findall(netlist)
    }


def transitions(lines: Iterable[str], cycles: int) -> dict[str, Transitions]:
    """Return the transitions of each net of one bit in a VCD that lasts for `cycles` cycles."""
    rest = iter(lines)
    names: dict[str, list[str]] = {}
    for variable in variables(rest):
        if variable.width == 1:
            names.setdefault(variable.code, []).append(variable.path.rpartition("dut.")[2])
    period = round(NS / _STEP)
    changes: dict[str, list[tuple[int, str]]] = {code: [] for code in names}
    now = first = None
    for line in rest:
        if line.startswith("$dumpoff"):
            break
        if line[0] == "#":
            now = int(line[1:])
            first = now if first is None else first
        elif line[0] in "01xz" and line[1:].strip() in changes:
            changes[line[1:].strip()].append((now or 0, line[0]))
    found = {
        code: _counted(list(_distinct(each)), first or 0, period, cycles)
        for code, each in changes.items()
    }
    return {name: found[code] for code, same in names.items() for name in same}


def _distinct(changes: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the changes to another value. Of several changes at one time only the last one
    counts.
    """
    last = dict(changes)
    value = ""
    for time, new in last.items():
        if new != value:
            yield time, new
        value = new


def _counted(changes: list[tuple[int, str]], first: int, period: int, cycles: int) -> Transitions:
    """Count the changes after the initial value, which stands at time `first`."""
    if not changes:
        return Transitions(0, 0, 0.0)
    ends = [time for time, _ in changes[1:]] + [first + cycles * period]
    high = sum(end - time for (time, value), end in zip(changes, ends, strict=True) if value == "1")
    by_cycle: dict[int, int] = {}
    for time, _ in changes[1:]:
        cycle = (time - first) // period
        by_cycle[cycle] = by_cycle.get(cycle, 0) + 1
    useful = sum(number % 2 for number in by_cycle.values())
    return Transitions(len(changes) - 1, useful, high / (cycles * period))


def _power(
    sta: Tool,
    folder: Path,
    pins: Mapping[str, Mapping[str, str]],
    nets: Mapping[str, Transitions],
    cycles: int,
) -> dict[str, float]:
    """Return the watts of the netlist by kind of cell. Raises SynthesisError if OpenSTA fails."""
    (folder / "power.tcl").write_text("\n".join(power_script(pins, nets, cycles)) + "\n")
    done = subprocess.run(
        [sta.path, "-exit", "power.tcl"], cwd=folder, capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    (folder / "power.log").write_text(text, encoding="utf-8")
    # The text also has a report without the activities; the later report replaces its numbers.
    watts = {kind: float(total) for kind, _, _, _, total in _ROW.findall(text)}
    if error := _ERROR.search(text):
        raise SynthesisError(f"OpenSTA: {error[0]} (log: {folder / 'power.log'})")
    if not {"Sequential", "Combinational"} <= watts.keys():
        raise SynthesisError(f"OpenSTA reports no power (log: {folder / 'power.log'})")
    return watts


def power_script(
    pins: Mapping[str, Mapping[str, str]], nets: Mapping[str, Transitions], cycles: int
) -> Iterator[str]:
    """Yield the commands for OpenSTA, which reports the power of netlist.v.

    Before its first report OpenSTA derives activities of its own, so given activities count only in
    the second report. OpenSTA's command for activities leaves out the outputs of cells. The
    internal function that the command calls accepts them.
    """
    yield "read_liberty library.lib"
    yield "read_verilog netlist.v"
    yield "link_design mxu"
    yield f"create_clock -name clk -period {NS} [get_ports clk]"
    yield "set_input_delay 0 -clock clk [all_inputs]"
    yield "report_power"
    for instance, nets_of in pins.items():
        for pin, net in nets_of.items():
            if net in nets and net != "clk":
                counted = nets[net]
                activity = f"{counted.count / cycles:.4f} {min(1.0, counted.high):.4f}"
                yield f"sta::set_power_pin_activity [get_pins {instance}/{pin}] {activity}"
    yield "report_power"
    yield "exit"


def stored(path: Path = RESULTS) -> list[Switching]:
    """Return the last measurement of each preset."""
    if not path.exists():
        return []
    return [Switching(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def store(found: Switching, path: Path = RESULTS) -> None:
    """Store a measurement; it replaces an older one of the same preset."""
    others = [each for each in stored(path) if each.preset != found.preset]
    kept = sorted([*others, found], key=lambda each: each.preset)
    path.write_text(json.dumps([asdict(each) for each in kept], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
