# SPDX-License-Identifier: Apache-2.0
"""Tests of the Verilog from which synthesis starts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import preset
from systola.arch.shared_memory import SharedMemory
from systola.hdl.parts.fabric import Fabric
from systola.hdl.parts.replica import Replica
from systola.hdl.verilog import generate, generate_pod, generate_unit
from systola.synth.delivery import delivery
from systola.synth.tools import find_tool, run_tool


@pytest.mark.thorough
@pytest.mark.parametrize("fabric", [Fabric.GENERIC, Fabric.ECP5])
def test_large_memories(fabric: Fabric) -> None:
    """Check that large memories become a macro on chips, and block RAM on FPGAs."""
    text = generate(replace(preset("tiny"), buffer_lines=1 << 15), fabric)
    assert ("sram_1r1w" in text) == (fabric is Fabric.GENERIC)


class Copies(wiring.Component):
    """A component with two equal registers, each for one output."""

    def __init__(self) -> None:
        super().__init__({"value": In(1), "first": Out(1), "second": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in ("first", "second"):
            replica = m.submodules[name] = Replica()
            m.d.comb += [replica.input.eq(self.value), getattr(self, name).eq(replica.output)]
        return m


@pytest.mark.thorough
@pytest.mark.parametrize(("fabric", "left"), [(Fabric.GENERIC, 1), (Fabric.CHIP, 2)])
def test_equal_registers(fabric: Fabric, left: int, tmp_path: Path) -> None:
    """Check that merging keeps two equal registers in Verilog for chips, and only one elsewhere."""
    (tmp_path / "design.v").write_text(generate_unit(Copies(), "copies", preset("tiny"), fabric))
    steps = (
        *("read_verilog design.v", "hierarchy -top copies", "proc", "flatten", "opt -full"),
        *("setattr -mod -unset keep_hierarchy *", "flatten", "opt_clean", "write_json out.json"),
    )
    (tmp_path / "flow.ys").write_text("\n".join(steps))
    run_tool(find_tool("yosys"), ("flow.ys",), folder=tmp_path, log="log", what="a flow")
    cells = json.loads((tmp_path / "out.json").read_text())["modules"]["copies"]["cells"]
    assert [cell["type"] for cell in cells.values()].count("$dff") == left


@pytest.mark.thorough
def test_names() -> None:
    """Check that no wire has a name that looks like a bit of another wire."""
    text = generate(preset("tiny"), Fabric.ECP5)
    names = re.findall(r"\\(\S+)", text)
    assert any(re.search(r"\.\d", name) for name in names)
    assert not any("[" in name for name in names)


@pytest.mark.thorough
def test_pod() -> None:
    """Check that a pod's Verilog has one module for all cores, each with its own ports."""
    text = generate_pod(preset("tiny"), 3)
    assert text.count("\nmodule tpu(") == text.count("\nmodule pod(") == 1
    assert text.count("\n  tpu core_") == 3
    for core in range(3):
        assert f"m_axi_host{core}_araddr" in text and f"m_axi_weight{core}_rdata" in text


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [None, SharedMemory(16)])
def test_delivered_pod(shared: SharedMemory | None) -> None:
    """Check that a delivered pod's wrapper has an AXI interface for each bus, and has the pod."""
    contents = delivery(preset("tiny"), Fabric.GENERIC, 2, shared)
    wrapper = contents["pod_axi.v"]
    masters = ["host0", "host1", "weight0", "weight1"] if shared is None else ["memory"]
    names = ":".join(["s_axil", *(f"m_axi_{name}" for name in masters)])
    (associated,) = re.findall(r"ASSOCIATED_BUSIF ([^,]*),", wrapper)
    assert sorted(associated.split(":")) == sorted(names.split(":"))
    assert wrapper.count("PROTOCOL AXI4,") == len(masters)
    assert "\n  pod machine (" in wrapper and "\nmodule tpu(" in contents["pod.v"]
