# SPDX-License-Identifier: Apache-2.0
"""Tests that the generated pages of documentation are complete and up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from systola.arch.assembler import assemble
from systola.arch.isa import BY_OPCODE, FAULT_TEXT, Fault
from systola.arch.reference import PAGES, isa_page, main, registers_page
from systola.arch.registers import CYCLE_CLASS_TEXT, REGISTER_TEXT, CycleClass, Register
from systola.verif.kit.checkout import ROOT

DOCS = ROOT / "docs"


def test_docs_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(DOCS)]) == 0, capsys.readouterr().err


def test_check_notices_a_stale_and_a_missing_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES) == {"isa.md", "registers.md"}
    assert main(["--check", str(tmp_path)]) == 0
    with (tmp_path / "isa.md").open("a") as page:
        page.write("\n")
    assert main(["--check", str(tmp_path)]) == 1
    (tmp_path / "registers.md").unlink()
    capsys.readouterr()
    assert main(["--check", str(tmp_path)]) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert ["isa.md" in complaints[0], "registers.md" in complaints[1]] == [True, True]


def test_every_table_has_cells_in_all_columns() -> None:
    for page in (isa_page(), registers_page()):
        columns = 0
        for line in page.splitlines():
            if not line.startswith("|"):
                columns = 0
                continue
            cells = line.replace("\\|", "").count("|") - 1
            assert columns in (0, cells), line
            columns = cells


def test_isa_page_tells_everything() -> None:
    page = isa_page()
    for entry in BY_OPCODE.values():
        section = page.split(f"\n## {entry.title}\n")[1].split("\n## ")[0]
        assert entry.semantics in section
        assert f"| 7:0 | opcode |  | 0x{entry.opcode:02x} |" in section
        for field in entry.fields:
            assert f"| `{field.name}` | {field.width} |" in section
        for fault in entry.checks:
            assert fault.name in section
    for fault in Fault:
        meaning, address = FAULT_TEXT[fault]
        assert f"| {int(fault)} | {fault.name} | {meaning} | {address} |" in page
    assert "| 24 | `rounding` | 1 | 0 double, 1 single | double | requantisation |" in page
    assert "| 103:96 | `zero_point` | 8 | -128 to 127 | 0 | output zero point |" in page
    assert "| 127:119 | reserved |  | 0 |  |  |" in page


def test_fields_may_fill_the_word() -> None:
    section = isa_page().split("\n## Set_Config_Window\n")[1].split("\n## ")[0]
    assert "| 127:116 | `out_width` |" in section
    assert "reserved" not in section


def test_only_values_that_the_field_can_hold_are_listed() -> None:
    section = isa_page().split("\n## Depthwise\n")[1].split("\n## ")[0]
    assert "| `function` | 2 | 0 none, 1 relu, 2 relu6, 3 table | none |" in section


def test_the_example_assembles() -> None:
    example = isa_page().split("```")[1]
    assert len(assemble(example)) == 10 * 16


def test_registers_page_tells_everything() -> None:
    page = registers_page()
    for register in Register:
        text = REGISTER_TEXT[register]
        assert f"| 0x{register:03x} | {register.name} | {text.access} | {text.doc} |" in page
    for which in CycleClass:
        low = 0x100 + 8 * which
        row = f"| 0x{low:03x} | 0x{low + 4:03x} | {which.name} | {CYCLE_CLASS_TEXT[which]} |"
        assert row in page
    for row in (
        "| 2 | FAULT |",
        "| 2 | PROGRAM |",
        "| 1 | SOFT_RESET |",
        "| 0 | BUSY |",
        "| 2 | WIDE |",
    ):
        assert row in page
