# SPDX-License-Identifier: Apache-2.0
"""Save files for GTKWave beside waveforms: the signals by unit, instructions by name, a marker."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from systola.arch.assembler import disassemble
from systola.arch.isa import INSTRUCTION_BYTES, Opcode

MARKER = "SYSTOLA_MARKER"
"""In the environment of tests: a file for the time, in nanoseconds, at which to look first."""
_MARKERS = 26
"""Named ones behind the first, all unused."""
_BINARY, _HEX, _NAMED = "@28", "@22", "@2022"
"""How a value is shown; the last one by what a file says of it."""
_OPEN, _END = ("@800200", "@c00200"), ("@1000200", "@1401200")
"""Begin and end of a group that is open, and of one that is not."""
_ISSUE = "tpu.core.sequencer"
"""Where instructions are issued: signal `issue`, with `decoded__payload`."""
_KIND, _NUMBER = "decoded__payload.kind", "decoded__payload.pc"
_NUMBER_BITS = 28
_PIXELS = 16
"""Of a cycle."""
_FRAME = 200
"""Pixels that show 2 to the power of minus the zoom, in units of the waveform's time."""
_Ports = dict[str, int]


def save_file(
    waveform: Path,
    verilog: str,
    top: str,
    *,
    cycle: int,
    scope: str = "",
    marker: int | None = None,
    program: bytes = b"",
) -> Path:
    """Writes the save file of a waveform of module `top` and returns its path.

    A clock cycle takes `cycle` units of the waveform's time, of which `marker` is one, too. `scope`
    is what the simulator puts before the name of the top module. Of the machine, `tpu`, the first
    group is what it issues: the opcode by its name, and the number of the instruction by its text
    in `program`.
    """
    at = -1 if marker is None else marker
    lines = [
        f'[dumpfile] "{waveform}"',
        f"[timestart] {max(0, at - 20 * cycle)}",
        " ".join([f"*{-math.log2(_FRAME / _PIXELS * cycle):f}", str(at), *["-1"] * _MARKERS]),
    ]
    if top == "tpu":
        opcodes = {1 << bit: opcode.name.lower() for bit, opcode in enumerate(Opcode)}
        lines += [_OPEN[0], "-instructions", _BINARY, f"{scope}{_ISSUE}.issue"]
        for name, width, texts in (
            (_KIND, len(Opcode), opcodes),
            (_NUMBER, _NUMBER_BITS, dict(enumerate(_texts(program)))),
        ):
            names = waveform.with_suffix(f".{name.rpartition('.')[2]}.txt")
            names.write_text(
                "".join(f"{value:0{-(-width // 4)}x} {texts[value]}\n" for value in texts)
            )
            lines += [_NAMED, f"^1 {names}", f"{scope}{_ISSUE}.{name}[{width - 1}:0]"]
        lines += [_END[0], "-instructions"]
    for number, (group, names) in enumerate(_groups(verilog, top), int(top == "tpu")):
        closed = int(number > 0)
        lines += [_OPEN[closed], f"-{group}"]
        for name, width in names.items():
            bits = f"[{width - 1}:0]" if width > 1 else ""
            lines += [_HEX if bits else _BINARY, f"{scope}{name}{bits}"]
        lines += [_END[closed], f"-{group}"]
    path = waveform.with_suffix(".gtkw")
    path.write_text("\n".join(lines) + "\n")
    return path


def _texts(program: bytes) -> Iterator[str]:
    """The text of each instruction up to the first Halt."""
    for start in range(0, len(program), INSTRUCTION_BYTES):
        text = disassemble(program[start : start + INSTRUCTION_BYTES]).strip()
        yield text
        if text == "halt":
            return


def how_to_look(save: Path) -> str:
    """The waveform of a save file, and what shows it."""
    waveform = save.read_text().split('"', 2)[1]
    return f"waveform: {waveform}\nlook at it: gtkwave {waveform} {save}, or surfer {waveform}"


def _groups(verilog: str, top: str) -> Iterator[tuple[str, _Ports]]:
    """Names and widths of ports: those of the top module, then those of each unit in it, and in the
    unit `core`."""
    ports, instances = _module(verilog, top)
    yield top, {f"{top}.{name}": width for name, width in ports.items()}
    queue = [(f"{top}.{name}", module) for name, module in instances.items()]
    while queue:
        path, module = queue.pop(0)
        ports, instances = _module(verilog, module)
        yield path, {f"{path}.{name}": width for name, width in ports.items()}
        if path == f"{top}.core":
            queue += [(f"{path}.{name}", module) for name, module in instances.items()]


def _module(verilog: str, name: str) -> tuple[_Ports, dict[str, str]]:
    """Ports of a module and the modules of its instances; without names that Amaranth or Yosys made
    up."""
    escaped = re.escape(name)
    text = re.search(rf"^module (?:{escaped}|\\{escaped} ) ?\(.*?^endmodule", verilog, re.M | re.S)
    if text is None:
        return {}, {}
    ports = {
        match[2]: int(match[1] or 0) + 1
        for match in re.finditer(r"^  (?:input|output) (?:\[(\d+):0\] )?(\w+);", text[0], re.M)
        if not match[2].endswith(("_clk", "_rst"))
    }
    instances = {
        match[2]: match[1] for match in re.finditer(r"^  \\?(\S+) +(\w+) \($", text[0], re.M)
    }
    return ports, instances
