# SPDX-License-Identifier: Apache-2.0
"""The header systola.h, as a C compiler reads it."""

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
"""Numbers of docs/registers.md and docs/isa.md, by hand."""


def values(text: str, folder: Path) -> dict[str, int]:
    """Return the value of each macro of the header in a C program."""
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
            # FAULT_CAUSE, _PC and _ADDRESS are registers, and no fault has such a name.
            assert macros[f"{prefix}{member.name}"] == member.value, member
    assert {f"COUNTER_{which.name}" for which in CycleClass} <= set(macros)


def test_no_line_is_long() -> None:
    assert max(map(len, c_header().splitlines())) <= 100
