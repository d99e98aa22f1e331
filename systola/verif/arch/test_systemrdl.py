# SPDX-License-Identifier: Apache-2.0
"""Tests of the register description systola.rdl with a SystemRDL compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from systemrdl import RDLCompiler
from systemrdl.node import RegNode

from systola.arch.registers import (
    POD_REGISTER_TEXT,
    REGISTER_TEXT,
    CycleClass,
    Register,
    core_page,
    counter_offset,
)
from systola.arch.systemrdl import systemrdl

READ, WRITTEN = {"RO", "RW", "RWL", "W1C"}, {"WO", "RW", "RWL", "W1C"}
"""Kinds of access with which software can read a register (READ) or write a register (WRITTEN)."""


def registers(folder: Path, cores: int | None = None) -> dict[str, RegNode]:
    """Return the registers that the SystemRDL compiler finds, by path below the top of the map."""
    path = folder / "systola.rdl"
    path.write_text(systemrdl(cores))
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    nodes = compiler.elaborate().top.descendants(unroll=True)
    found = [node for node in nodes if isinstance(node, RegNode)]
    return {node.get_path().partition(".")[2]: node for node in found}


def bits(node: RegNode) -> dict[str, tuple[int, int]]:
    return {field.inst_name: (field.high, field.low) for field in node.fields()}


def test_core(tmp_path: Path) -> None:
    nodes = registers(tmp_path)
    for register, text in REGISTER_TEXT.items():
        entries = {Register.COUNTERS: 11, Register.TRACE: 64}.get(register)
        name = register.name if entries is None else f"{register.name}[0]"
        assert nodes[name].absolute_address == register
        for field in nodes[name].fields():
            assert field.is_sw_readable == (text.access in READ), name
            assert field.is_sw_writable == (text.access in WRITTEN), name
    assert len(nodes) == len(Register) - 2 + 11 + 64
    assert nodes["COUNTERS[10]"].absolute_address == counter_offset(CycleClass.DRAIN)
    assert bits(nodes["COUNTERS[3]"]) == {"low": (31, 0), "high": (47, 32)}
    assert bits(nodes["CONTROL"]) == {"start": (0, 0), "soft_reset": (1, 1), "resume": (2, 2)}
    assert bits(nodes["GEOMETRY"]) == {"rows": (15, 0), "columns": (31, 16)}
    assert nodes["TRACE[63]"].absolute_address == 0x200 + 8 * 63


@pytest.mark.parametrize("cores", [1, 3])
def test_pod(cores: int, tmp_path: Path) -> None:
    nodes = registers(tmp_path, cores)
    for register in POD_REGISTER_TEXT:
        assert nodes[register.name].absolute_address == register
    for core in range(cores):
        assert nodes[f"core[{core}].STATUS"].absolute_address == core_page(core) + Register.STATUS
    assert f"core[{cores}].STATUS" not in nodes
    assert bits(nodes["IRQ_STATUS"]) == {"done": (0, 0), "fault": (1, 1), "core": (2, 2)}
    assert bits(nodes["FIRST_FAULT"]) == {"cause": (7, 0), "core": (31, 8)}
