# SPDX-License-Identifier: Apache-2.0
"""A check that no unknown value gets from a unit's registers to its outputs.

All registers and memories of the unit begin unknown, as initial values are taken out of its text.
The inputs have any known values that are `legal`. For each bit of the unit, Yosys' pass `xprop`
adds a bit that is 1 while the bit of the unit is unknown. Then a solver looks for a sequence of
inputs after which an output is unknown that has to be known:

- An output of one bit has to be known in each cycle after the reset.
- A wider output has to be known while a `valid` or `enable` of the same interface is 1, or while
  its condition in `when` holds. An output without signal and condition may be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl._ir import PortDirection  # named ports need this class, which has no public name
from amaranth.lib import wiring

from systola.hdl.parts.fabric import Fabric
from systola.hdl.port_names import flat_ports
from systola.synth.tools import find_tool, run_tool
from systola.verif.formal.proof import run_sby

RESET_CYCLES = 5
"""Number of cycles for which the reset is held, as in the tests."""
CYCLES = 14
"""Number of cycles that the solver examines, with the cycles of the reset."""
_SCRIPT = """\
read_rtlil unit.il
hierarchy -top unit
proc
flatten
setattr -unset init w:*
delete t:$meminit_v2
opt_clean
memory_collect
memory_map
opt -fast
dffunmap
xprop -formal -split-outputs -assume-def-inputs
opt_clean
read_verilog -sv -formal top.v
prep -top top
write_rtlil top.il
"""
_CHANNEL = re.compile(r"(aw|ar|w|r|b)(?=[a-z]+$)")
"""Pattern of the channel at the beginning of the name of an AXI signal, such as r in rdata."""
_FAILED = re.compile(r"Assert failed in top: known_(\w+)")


@dataclass(frozen=True)
class Result:
    """A result of a check that has the names of a unit's outputs in three groups."""

    known: tuple[str, ...]
    """Outputs that are never unknown."""
    free: tuple[str, ...]
    """Outputs that may be unknown, as no `valid` or `enable` marks their valid cycles."""
    unknown: tuple[str, ...]
    """Outputs that have to be known, but are unknown after some sequence of inputs."""


def check_unit(
    unit: wiring.Component,
    folder: Path,
    legal: Sequence[str] = (),
    when: Mapping[str, str] | None = None,
) -> Result:
    """Return the outputs of a unit, as known, free or unknown.

    `folder` is for the files of the tools. `legal` has conditions in Verilog that the inputs keep,
    with names of inputs, and names of outputs with `_d` at the end. `when` has conditions under
    which further outputs have to be known. An output with an empty condition counts as free. Raises
    SynthesisError if Yosys gives up, and RuntimeError if the solver does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = flat_ports(unit, lambda path: "__".join(map(str, path)))
    text = rtlil.convert(unit, name="unit", platform=Fabric.GENERIC, ports=ports, emit_src=False)
    (folder / "unit.il").write_text(text, encoding="utf-8")
    (folder / "xprop.ys").write_text(_SCRIPT, encoding="utf-8")
    inputs, outputs = (
        {name: len(value) for name, (value, flow) in ports.items() if flow is way and len(value)}
        for way in (PortDirection.Input, PortDirection.Output)
    )
    asked = {**dict(_claims(inputs, outputs)), **(when or {})}
    claims = {name: condition for name, condition in asked.items() if condition}
    unknown: list[str] = []
    # The solver stops at the first unknown output, so it runs again without this output.
    while True:
        (folder / "top.v").write_text(_top(inputs, outputs, claims, legal), encoding="utf-8")
        run_tool(
            find_tool("yosys"), ("xprop.ys",), folder=folder, log="yosys.log", what="unknown values"
        )
        done = run_sby((folder / "top.il").read_text(), folder / "sby", "bmc", CYCLES)
        if done.returncode == 0:
            break
        found = _FAILED.findall(done.stdout)
        if not found:
            raise RuntimeError(f"the solver gives up (log: {folder / 'sby' / 'log'})")
        for name in set(found):
            unknown.append(name)
            claims.pop(name, None)
    free = tuple(name for name in outputs if name not in claims and name not in unknown)
    return Result(tuple(claims), free, tuple(sorted(unknown)))


def _claims(inputs: Mapping[str, int], outputs: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the outputs that have to be known, each with the condition under which it has to be."""
    for name, width in outputs.items():
        if width == 1:
            yield name, "1"
            continue
        around, _, last = name.rpartition("__")
        channel = _CHANNEL.match(last)
        prefixes = [f"{channel[1]}valid"] if channel else []
        parts = name.split("__")
        places = ["__".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]
        signs = [f"{around}__{each}" if around else each for each in prefixes]
        signs += [f"{place}__{sign}" for place in places for sign in ("valid", "enable")]
        if sign := next((each for each in signs if each in {**inputs, **outputs}), None):
            yield name, f"{sign}_d" if sign in outputs else sign


def _top(
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    claims: Mapping[str, str],
    legal: Sequence[str],
) -> str:
    """Return Verilog of a module around the unit.

    The module has the reset, assumptions of legal inputs, and an assertion for each output in
    `claims`, that the output is known under its condition.
    """
    ports = ["input clk", *(f"input [{width - 1}:0] {name}" for name, width in inputs.items())]
    wires = [f"  wire [{width - 1}:0] {name}_d, {name}_x;" for name, width in outputs.items()]
    joined = [".clk(clk)", ".rst(rst)", *(f".{name}({name})" for name in inputs)]
    joined += [f".{name}_{kind}({name}_{kind})" for name in outputs for kind in "dx"]
    asserted = [
        f"  always @(posedge clk) if (began && ({condition}))\n"
        f"    known_{name}: assert ({name}_x == 0);"
        for name, condition in claims.items()
    ]
    return "\n".join(
        (
            f"module top({', '.join(ports)});",
            "  reg [3:0] cycle = 0;",
            f"  wire rst = cycle < {RESET_CYCLES};",
            f"  wire began = cycle > {RESET_CYCLES};",
            "  always @(posedge clk) if (!began) cycle <= cycle + 1;",
            *wires,
            f"  unit dut({', '.join(joined)});",
            *(f"  always @* if (!rst) assume ({condition});" for condition in legal),
            *asserted,
            "endmodule\n",
        )
    )
