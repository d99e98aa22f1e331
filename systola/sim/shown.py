# SPDX-License-Identifier: Apache-2.0
"""The signals that viewers show of a waveform, by unit, and names for their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from systola.arch.assembler import disassemble
from systola.arch.isa import INSTRUCTION_BYTES, INSTRUCTIONS

_ISSUE = "tpu.core.sequencer"
"""Path of the module that issues instructions: signal `issue`, with `decoded__payload`."""
_NUMBER_BITS = 28
_MODULE = re.compile(r"^module \\?([^\s(]+) ?\(.*?^endmodule", re.M | re.S)
_ENUMERATED = re.compile(
    r"((?:^  \(\* .* \*\)\n)+)  (?:input|output|wire|reg) (?:\[(\d+):0\] )?\\?(\S+?) ?;", re.M
)
"""Pattern of a declaration with the attributes that Amaranth writes above it, such as the names of
an enumeration."""


@dataclass(frozen=True)
class Names:
    """A kind of values with their names, for example an enumeration."""

    name: str
    width: int
    texts: dict[int, str]


@dataclass(frozen=True)
class Shown:
    """A signal, with its path from the top module."""

    path: str
    width: int
    names: Names | None = None


@dataclass(frozen=True)
class Group:
    """A group of signals with a heading, as a viewer shows it."""

    name: str
    signals: list[Shown]


@dataclass(frozen=True)
class _Module:
    ports: dict[str, int] = field(default_factory=dict[str, int])
    """Width of each port, in bits."""
    enumerated: dict[str, Names] = field(default_factory=dict[str, Names])
    """Ports and other signals that have values with names."""
    instances: dict[str, str] = field(default_factory=dict[str, str])
    """For each instance, the name of its module."""


def fields_named(verilog: str) -> str:
    """Rename the fields of signals for waveforms: field `\\a.b ` of signal `a` becomes `a__b`.

    In a viewer's file, a dot stands between a module and a signal in it.
    """
    modules = set(re.findall(r"^module \\(\S+) ", verilog, re.M))
    return re.sub(
        r"\\([^\s.]+(?:\.[^\s.]+)+) ",
        lambda match: match[0] if match[1] in modules else _plain(match[0]),
        verilog,
    )


def groups(verilog: str, top: str, program: bytes) -> Iterator[Group]:
    """Yield the signals of module `top`, of each unit in it, and of each unit in the unit `core`.

    Signals are ports, and all signals that have values with names, also in the units' own parts.
    For the machine, `tpu`, the first group has the instruction that it issues. The opcode is shown
    by its name, the number of the instruction by its text in `program`.
    """
    if top == "tpu":
        opcodes = {1 << bit: entry.mnemonic for bit, entry in enumerate(INSTRUCTIONS)}
        kind = Names("opcodes", len(INSTRUCTIONS), opcodes)
        number = Names("program", _NUMBER_BITS, dict(enumerate(_texts(program))))
        payload = f"{_ISSUE}.decoded__payload"
        yield Group(
            "instructions",
            [
                Shown(f"{_ISSUE}.issue", 1),
                Shown(f"{payload}__kind", kind.width, kind),
                Shown(f"{payload}__pc", number.width, number),
            ],
        )
    texts = {match[1]: match[0] for match in _MODULE.finditer(verilog)}
    queue = [(top, top)]
    while queue:
        path, name = queue.pop(0)
        module = _module(texts.get(name, ""))
        signals = [
            Shown(f"{path}.{port}", width, module.enumerated.get(port))
            for port, width in module.ports.items()
        ]
        named = {f"{path}.{each}": names for each, names in module.enumerated.items()}
        inside = [(f"{path}.{each}", module.instances[each]) for each in module.instances]
        if path in (top, f"{top}.core"):
            queue += inside
        else:
            named |= {
                f"{part}.{each}": names
                for part, kind in inside
                for each, names in _module(texts.get(kind, "")).enumerated.items()
            }
        known = {each.path for each in signals}
        signals += [Shown(at, n.width, n) for at, n in named.items() if at not in known]
        yield Group(path, signals)


def _texts(program: bytes) -> Iterator[str]:
    """Yield the text of each instruction up to the first Halt."""
    for start in range(0, len(program), INSTRUCTION_BYTES):
        text = disassemble(program[start : start + INSTRUCTION_BYTES]).strip()
        yield text
        if text == "halt":
            return


def _plain(name: str) -> str:
    return name.replace(".", "__")


def _module(text: str) -> _Module:
    """Read a module, without names that Amaranth or Yosys made up."""
    ports = {
        match[2]: int(match[1] or 0) + 1
        for match in re.finditer(r"^  (?:input|output) (?:\[(\d+):0\] )?(\w+);", text, re.M)
        if not match[2].endswith(("_clk", "_rst"))
    }
    instances = {match[2]: match[1] for match in re.finditer(r"^  \\?(\S+) +(\w+) \($", text, re.M)}
    return _Module(ports, dict(_enumerated(text)), instances)


def _enumerated(module: str) -> Iterator[tuple[str, Names]]:
    """Yield the signals of a module that are enumerations, with the encoding in its Verilog."""
    for attributes, high, name in _ENUMERATED.findall(module):
        texts = dict(re.findall(r'enum_value_([01]+) = "(\w+)"', attributes))
        kind = re.search(r'enum_base_type = "(\w+)"', attributes)
        if kind and "$" not in name:
            values = {int(bits, 2): text for bits, text in texts.items()}
            yield _plain(name), Names(kind[1], int(high or 0) + 1, values)
