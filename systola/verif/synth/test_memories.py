# SPDX-License-Identifier: Apache-2.0
"""Tests that a memory outside block RAM is found, and refused unless it is small."""

from __future__ import annotations

import pytest

from systola.hdl.memories.sram import Sram
from systola.hdl.parts.fabric import Fabric
from systola.hdl.verilog import convert
from systola.synth.errors import SynthesisError
from systola.synth.memories import MemoryPlace, check_memories, inferred_memories
from systola.verif.synth.netlists import memory_dump

DUMP = "".join(
    (
        memory_dump("tpu.core.unified_buffer.bank_0.memory", 32, 256),
        memory_dump("tpu.core.weight_fetch.awaited.storage", 68, 8),
        memory_dump("tpu.core.accumulators$397.bank_1.memory", 128, 128),
        memory_dump("tpu.core.rom", 8, 4096, write_ports=0),
        memory_dump("tpu.core.forgotten", 8, 512),
        memory_dump("frame", 8, 512),
    )
)
LOG = """4.1. Executing MEMORY_LIBMAP pass (mapping memories to cells).
mapping memory harness.tpu.core.unified_buffer.bank_0.memory via $__PDPW16KD_
mapping memory harness.tpu.core.weight_fetch.awaited.storage via $__TRELLIS_DPR16X4_
using FF mapping for memory harness.tpu.core.accumulators$397.bank_1.memory
using FF mapping for memory harness.tpu.core.rom
"""


def test_places() -> None:
    assert inferred_memories(DUMP, LOG, "harness", "tpu") == [
        MemoryPlace("accumulators.bank_1.memory", 16384, "flip-flops"),
        MemoryPlace("forgotten", 4096, "flip-flops"),
        MemoryPlace("unified_buffer.bank_0.memory", 8192, "block RAM"),
        MemoryPlace("weight_fetch.awaited.storage", 544, "LUT RAM"),
    ]


def test_refused_in_flip_flops() -> None:
    with pytest.raises(SynthesisError) as error:
        check_memories(inferred_memories(DUMP, LOG, "harness", "tpu"), Fabric.ECP5)
    assert "accumulators.bank_1.memory (16,384 bits) is in flip-flops" in str(error.value)
    assert "forgotten (4,096 bits) is in flip-flops" in str(error.value)
    assert "unified_buffer" not in str(error.value)
    assert "awaited" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fabric", "bits", "place", "allowed"),
    [
        (Fabric.ECP5, 1 << 20, "block RAM", True),
        (Fabric.ECP5, 2048, "LUT RAM", True),
        (Fabric.ECP5, 2049, "LUT RAM", False),
        (Fabric.ECP5, 512, "flip-flops", True),
        (Fabric.ECP5, 513, "flip-flops", False),
        (Fabric.ICE40, 2048, "flip-flops", True),  # an iCE40 has no LUT RAM
        (Fabric.ICE40, 2049, "flip-flops", False),
        (Fabric.GATEMATE, 2048, "flip-flops", True),  # a GateMate has no LUT RAM
    ],
)
def test_limits(fabric: Fabric, bits: int, place: str, allowed: bool) -> None:
    memories = [MemoryPlace("queue", bits, place)]
    if allowed:
        check_memories(memories, fabric)
    else:
        with pytest.raises(SynthesisError, match="queue"):
            check_memories(memories, fabric)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fabric", "depth", "style"),
    [
        (Fabric.GOWIN, 16, "distributed"),
        (Fabric.GOWIN, 17, "block"),
        (Fabric.GENERIC, 16, "block"),
    ],
)
def test_short_memories(fabric: Fabric, depth: int, style: str) -> None:
    """Check that short memories of a Gowin FPGA, with few block RAMs, are in look-up tables."""
    text = convert(Sram(width=384, depth=depth), "sram", fabric)
    assert f'ram_style = "{style}"' in text
