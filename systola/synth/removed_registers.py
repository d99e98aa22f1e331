# SPDX-License-Identifier: Apache-2.0
"""The registers of the Verilog that are not in the netlist, with the reason for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from systola.arch.pages import table
from systola.hdl.verilog_names import instance_path

CONSTANT, UNUSED = "constant", "unused"
_NUMBER = re.compile(r"(?<=_)\d+(?=_|\b)|(?<=\[)\d+(?=\])")


@dataclass(frozen=True)
class Removed:
    """A group of removed bits: one register's name, in modules with names that differ by numbers
    only.
    """

    module: str
    """Path of the module's instance, with `*` instead of numbers of copies."""
    register: str
    bits: int
    """Number of removed bits in the group."""
    reason: str
    """CONSTANT if the bits always have one value, UNUSED if nothing depends on them."""


def removed_registers(
    before: dict[str, Any], after: dict[str, Any], registers: frozenset[str]
) -> list[Removed]:
    """Return the bits of registers that are in the design `before` and not in `after`.

    Both designs are in the JSON of Yosys, with the hierarchy: before and after synthesis.
    `registers` are the names of the flip-flops of the library. A register that was merged with an
    equal register of its module does not count as removed.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    for module, content in before["modules"].items():
        netlist = after["modules"].get(module, {"netnames": {}, "cells": {}})
        kept = set(_outputs(netlist, registers))
        nets = netlist["netnames"]
        aliases: dict[int, list[tuple[str, Any]]] = {bit: [] for bit in _outputs(content, None)}
        for name, net in content["netnames"].items():
            bits = nets[name]["bits"] if name in nets else ()
            for number, bit in enumerate(net["bits"]):
                if bit in aliases and not net.get("hide_name"):
                    aliases[bit].append((name, bits[number] if number < len(bits) else None))
        for same in aliases.values():
            now = {bit for _, bit in same}
            if same and not now & kept:
                reason = CONSTANT if now & {"0", "1"} else UNUSED
                found[_general(instance_path(module)), _general(same[0][0]), reason] += 1
    return [Removed(where, name, n, why) for (where, name, why), n in sorted(found.items())]


def _outputs(module: dict[str, Any], registers: frozenset[str] | None) -> Iterator[int]:
    """Yield the numbers of the output bits of all flip-flops; `registers` is None before
    synthesis.
    """
    for cell in module["cells"].values():
        kind = cell["type"]
        if (kind in registers) if registers is not None else kind.startswith("$dff"):
            yield from (bit for port in ("Q", "QN") for bit in cell["connections"].get(port, ()))


def _general(name: str) -> str:
    return _NUMBER.sub("*", name)


def removed_table(removed: list[Removed]) -> str:
    """Return the removed registers as Markdown, and their sums by reason."""
    sums = Counter[str]()
    for each in removed:
        sums[each.reason] += each.bits
    rows = [(f"`{r.module}`", f"`{r.register}`", f"{r.bits:,}", r.reason) for r in removed]
    text = f"{sums[CONSTANT]:,} bits that never change, {sums[UNUSED]:,} that nothing uses.\n\n"
    return text + table(("module", "register", "bits", "why"), rows)
