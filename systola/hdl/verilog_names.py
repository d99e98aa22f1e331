# SPDX-License-Identifier: Apache-2.0
r"""Names for the modules and ports of the Verilog, made only from names in the source.

A port that carries a whole signal has the name of this signal in Amaranth. Any other port is called
`port$7753$0`, where the number counts the cells of the whole design. Then one new register gives
other names to the ports of modules that nobody has touched.

Here such a port takes its name from a signal of its module. `pushed_host` is the field `host` of
`pushed`, `write_data_31_0` carries bits 31 to 0 of `write_data`, and `tag_and_more` carries more
than the signal `tag`. A module is called after the instances that lead to it, as
`tpu__core__sequencer`. If two names are equal, the second one ends in `_2`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container
from typing import NamedTuple

_WIRE = re.compile(r"^  wire width (\d+) (input|output)?.*?([\\$]\S+)$", re.MULTILINE)
_CONNECTION = re.compile(r"^connect (\S+) (?!\[)(.+)$", re.MULTILINE)
"""A pattern for the statement that gives a whole wire of a module its bits."""
_INSTANCE = re.compile(r"^(  cell )(\\\S+)( \S+\n)((?:    .*\n)*)", re.MULTILINE)
_OF_INSTANCE = re.compile(r"(?<=^    connect )\\\S+", re.MULTILINE)
_NUMBERED = re.compile(r"\\[^\s$]+\$\S+")
"""A pattern for a port's name with `$`: not in the source, or shared by several signals."""
_NUMBER = re.compile(r"\$\d+")
_PART = re.compile(r"([\\$]\S+)(?: \[(\d+)(?::(\d+))?\])?|(\d+)'\S+")
"""A pattern for a part of a concatenation: some bits of a wire, or a constant."""


class _Bit(NamedTuple):
    """A bit of a wire, by its place; a bit of a constant has the wire `""`."""

    wire: str
    place: int


def instance_path(module: str) -> str:
    """Return the path of the instance that a module of the Verilog is called after: `tpu.core`."""
    return module.lstrip("\\").replace("__", ".")


def readable(design: str) -> str:
    """Return a design in Yosys' own language in which modules and ports have plain names."""
    head, *modules = re.split(r"(?m)^(?=module )", design)
    titles: dict[str, str] = {}
    ports: dict[str, dict[str, str]] = {}
    for module in modules:
        title = module.split(maxsplit=2)[1]
        plain = _NUMBER.sub("", title[1:]).replace("-", "minus_").replace(".", "__")
        titles[title] = _free(f"\\{plain}", set(titles.values()))
        ports[title] = _port_names(module)
    return head + "".join(_renamed(module, titles, ports) for module in modules)


def _renamed(module: str, titles: dict[str, str], ports: dict[str, dict[str, str]]) -> str:
    """Return a module with other names for itself, its ports, and the modules that it places.

    `titles` has the new name of each module, `ports` the new names of its ports.
    """

    def rename_instance(cell: re.Match[str]) -> str:
        inner = ports.get(cell[2], {})
        placed = cell[1] + titles.get(cell[2], cell[2]) + cell[3]
        return placed + _OF_INSTANCE.sub(lambda name: inner.get(name[0], name[0]), cell[4])

    title = module.split(maxsplit=2)[1]
    own = ports[title]
    # The ports of an instance go first: `own` may have a port of the same old name.
    text = _INSTANCE.sub(rename_instance, module)
    text = _NUMBERED.sub(lambda name: own.get(name[0], name[0]), text)
    return text.replace(title, titles[title], 1)


def _free(name: str, taken: Container[str]) -> str:
    """Return `name` if it is not in `taken`, else `name` with the lowest number that is free."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def _port_names(module: str) -> dict[str, str]:
    """Return the new name of each port of a module that has a `$` in its old name."""
    wires = _WIRE.findall(module)
    widths = {wire: int(width) for width, _, wire in wires}
    ports = [wire for _, way, wire in wires if way and "$" in wire]
    unnamed = [port for port in ports if port.startswith("\\port$")]
    connections = dict(_CONNECTION.findall(module)) if unnamed else {}

    def bits(wire: str) -> list[_Bit]:
        """Return the bits that drive a wire, or its own bits without a driver; lowest bit first."""
        return _bits(connections.get(wire, wire), widths)

    carried = {port: bits(port) for port in unnamed}
    sources = {bit.wire for value in carried.values() for bit in value}
    signals = {
        wire[1:]: bits(wire)
        for wire in widths
        if not wire.startswith(("$", "\\$", "\\port$"))
        and (wire in sources or any(source in connections.get(wire, "") for source in sources))
    }
    taken = set(widths)
    names: dict[str, str] = {}
    for port in ports:
        own = _signal_name(carried[port], signals) if port in carried else _NUMBER.sub("", port[1:])
        names[port] = _free(f"\\{own}", taken)
        taken.add(names[port])
    return names


def _bits(value: str, widths: dict[str, int]) -> list[_Bit]:
    r"""Return the bits of a value such as `{ \a [3:0] 1'0 }`, the lowest bit first.

    `widths` has the bits of each wire.
    """
    found: list[_Bit] = []
    for part in reversed(list(_PART.finditer(value))):
        wire, high, low, constant = part.groups()
        if constant:
            found += [_Bit("", 0)] * int(constant)
        elif high is None:
            found += (_Bit(wire, place) for place in range(widths[wire]))
        else:
            found += (_Bit(wire, place) for place in range(int(low or high), int(high) + 1))
    return found


def _signal_name(carried: list[_Bit], signals: dict[str, list[_Bit]]) -> str:
    """Return the name of a port for the bits that it carries, after the signal that fits best.

    `signals` has the bits of each signal. The best signal has exactly the bits of the port. The
    next best has them in one piece. Else it is the smallest signal with the port's first bit.
    """
    offered: list[tuple[bool, bool, bool, int, str, int]] = []
    for signal, own in signals.items():
        if carried[0] not in own:
            continue
        low = own.index(carried[0])
        parted = own[low : low + len(carried)] != carried
        offered.append((own != carried, parted, "$" in signal, len(own), signal, low))
    other, parted, _, _, signal, low = min(offered)
    name = re.sub(r"[^A-Za-z0-9_]+", "_", signal).strip("_")
    if not other:
        return name
    if parted:
        return f"{name}_and_more"
    high = low + len(carried) - 1
    return f"{name}_{high}_{low}" if high > low else f"{name}_{low}"
