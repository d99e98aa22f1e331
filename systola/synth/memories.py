# SPDX-License-Identifier: Apache-2.0
"""The place of each memory of the design: block RAM is the rule, and the rule is checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from systola.hdl.parts.fabric import Fabric
from systola.synth.errors import SynthesisError
from systola.synth.netlist import Netlist, plain
from systola.synth.resources import Kind, resources

BLOCK, LUTS, FLIP_FLOPS = "block RAM", "LUT RAM", "flip-flops"

LUT_LIMIT = 2048
"""Largest memory in LUT RAM, in bits: queues of some entries, which do not deserve a block of 16
Kbit."""
FLIP_FLOP_LIMIT = 512
"""Largest memory in flip-flops, in bits.

On an FPGA without LUT RAM, such as the iCE40, the limit of LUT RAM holds, as queues have no other
place. Queues are wide and short, and would take tens of block RAMs.
"""
_WITHOUT_LUT_RAM = frozenset({Fabric.ICE40, Fabric.GATEMATE})

_CELL = re.compile(r"^  cell \$mem_v2 (\S+)\n(.*?)^  end", re.M | re.S)
_MAPPED = re.compile(r"^mapping memory (\S+) via (\S+)", re.M)
_FLIP_FLOPS = re.compile(r"^using FF mapping for memory (\S+)", re.M)


@dataclass(frozen=True)
class MemoryPlace:
    """A memory of the design: its path, its size in bits, and its place."""

    name: str
    bits: int
    place: str


def inferred_memories(dump: str, log: str, top: str, design: str) -> list[MemoryPlace]:
    """Return the memories that Yosys mapped, from its dump of $mem_v2 cells and its log.

    Tables that are never written are no memories.
    """
    places = {name: LUTS if _is_lut_ram(cell) else BLOCK for name, cell in _MAPPED.findall(log)}
    places |= dict.fromkeys(_FLIP_FLOPS.findall(log), FLIP_FLOPS)
    found: list[MemoryPlace] = []
    for name, body in _CELL.findall(dump):
        path = name.removeprefix("\\")
        parameters = dict(re.findall(r"parameter (?:signed )?\\(WIDTH|SIZE|WR_PORTS) (\d+)", body))
        if not int(parameters["WR_PORTS"]) or not path.startswith(f"{design}."):
            continue
        bits = int(parameters["WIDTH"]) * int(parameters["SIZE"])
        # A memory that Yosys neither maps nor mentions in its log becomes flip-flops.
        place = places.get(f"{top}.{path}", FLIP_FLOPS)
        found.append(MemoryPlace(plain(path, design), bits, place))
    return sorted(found, key=lambda memory: memory.name)


def placed_memories(netlist: Netlist, fabric: Fabric, design: str) -> list[str]:
    """Return the modules that directly contain block RAMs, inferred or instantiated by name."""
    found: set[str] = set()
    for scope, cells in netlist.by_scope.items():
        used = resources(fabric, cells)
        if used[Kind.BLOCK_RAM] or used[Kind.LARGE_RAM]:
            found.add(plain(scope, design))
    return sorted(found)


def check_memories(memories: Iterable[MemoryPlace], fabric: Fabric) -> None:
    """Raise SynthesisError for memories that are neither in block RAM nor small."""
    in_flip_flops = LUT_LIMIT if fabric in _WITHOUT_LUT_RAM else FLIP_FLOP_LIMIT
    limits = {LUTS: LUT_LIMIT, FLIP_FLOPS: in_flip_flops}
    wrong = [
        f"{memory.name} ({memory.bits:,} bits) is in {memory.place}"
        for memory in memories
        if memory.place in limits and memory.bits > limits[memory.place]
    ]
    if wrong:
        raise SynthesisError(
            f"not in block RAM: {'; '.join(wrong)} (allowed: up to {LUT_LIMIT:,} bits in LUT RAM, "
            f"{in_flip_flops:,} in flip-flops)"
        )


def _is_lut_ram(cell: str) -> bool:
    return "LUTRAM" in cell or "DPR16" in cell
