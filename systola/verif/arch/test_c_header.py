# SPDX-License-Identifier: Apache-2.0
"""Tests of the C header systola.h with a C compiler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from systola.arch.c_header import c_header
from systola.arch.isa import Fault
from systola.arch.registers import Control, CycleClass, PodRegister, Register, Status

SOME = {
    "ID_VALUE": 0x54505531,
    "CONTROL": 0x008,
    "STATUS": 0x00C,
    "WEIGHT_TILES": 0x038,
    "COUNTER_DRAIN": 0x150,
    "CONTROL_SOFT_RESET": 2,
    "STATUS_FAULT": 4,
    "IRQ_PROGRAM": 4,
    "POD_IRQ_CORE": 4,
    "FEATURE_LINKS": 16,
    "FAULT_BUS_TIMEOUT": 20,
    "POD_FIRST_FAULT": 0x01C,
}
"""Values of some macros, taken by hand from docs/registers.md and docs/isa.md."""


def values(text: str, folder: Path) -> dict[str, int]:
    """Return the value that each macro of the header has in a C program."""
    names = re.findall(r"#define SYSTOLA_(\w+) ", text)
    assert len(set(names)) == len(names)
    (folder / "systola.h").write_text(text)
    prints = "".join(f'printf("{name} %lu\\n", (unsigned long)SYSTOLA_{name});' for name in names)
    (folder / "main.c").write_text(
        f'#include "systola.h"\n#include "systola.h"\n#include <stdio.h>\n'
        f"int main(void) {{ {prints} return 0; }}\n"
    )
    strict = ["-std=c89", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *strict, "main.c", "-o", "main"], cwd=folder, check=True)
    output = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


@pytest.fixture(scope="module")
def macros(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return values(c_header(), tmp_path_factory.mktemp("header"))


def test_numbers(macros: dict[str, int]) -> None:
    assert {name: macros[name] for name in SOME} == SOME


def test_nothing_is_missing(macros: dict[str, int]) -> None:
    """Check that every register, bit, counter and fault has a macro with its number."""
    for prefix, members in (
        ("", Register),
        ("POD_", PodRegister),
        ("CONTROL_", Control),
        ("STATUS_", Status),
        ("FAULT_", Fault),
    ):
        for member in members:
            # The names are unique: FAULT_CAUSE, FAULT_PC and FAULT_ADDRESS are registers, not
            # faults.
            assert macros[f"{prefix}{member.name}"] == member.value, member
    assert {f"COUNTER_{which.name}" for which in CycleClass} <= set(macros)


def test_no_line_is_long() -> None:
    assert max(map(len, c_header().splitlines())) <= 100
