# SPDX-License-Identifier: Apache-2.0
"""Tests of facts in docs/integration.md that need no simulator."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from systola.arch.c_header import c_header
from systola.arch.config import SUFFIXES, preset
from systola.arch.image_files import image_macros
from systola.hdl.parts.fabric import Fabric
from systola.synth.trial import trial_text
from systola.synth.trial_program import trial_program
from systola.verif.kit.checkout import ROOT

PAGE = (ROOT / "docs" / "integration.md").read_text()


def test_machines() -> None:
    """Check that each machine of the page's table exists, and is named in the test of its row."""
    table = re.search(r"<!-- machines: checked.*?-->(.*?)<!-- machines: end", PAGE, re.DOTALL)
    assert table
    names: list[str] = []
    for cell, test in re.findall(r"^\| (`.*) \| `([\w/.]+)` \|$", table[1], re.MULTILINE):
        text = (ROOT / "verif" / test).read_text()
        for name in re.findall(r"`(\w[\w-]*)`", cell):
            preset(name)
            assert re.search(rf"\b{name}(?![\w-])", text), f"{test}: {name}"
            names.append(name)
    assert len(names) > 20 and len(set(names)) == len(names)
    untested = {suffix for suffix in SUFFIXES if not any(suffix in name for name in names)}
    assert untested == {"-packed"} and "`-packed` changes" in PAGE


def test_commands() -> None:
    """Check that the page's commands are the same as in the delivered README."""
    for line in trial_text(Fabric.GENERIC):
        if line.startswith("iverilog"):
            assert line in PAGE
        if line.startswith(("verilator", "python")):
            assert re.split(r" +[\\#]", line)[0] in PAGE


def test_driver(tmp_path: Path) -> None:
    """Check that the page's C driver compiles without a warning, and writes the right registers."""
    config = preset("tiny")
    image, _ = trial_program(config)
    (driver,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "systola.h").write_text(c_header())
    macros = "\n".join(image_macros(config, image))
    (tmp_path / "image.h").write_text(f"#include <stdint.h>\n{macros}\n")
    (tmp_path / "main.c").write_text(
        f"""{driver}
        #include <stdio.h>
        int main(void) {{
            static uint32_t fake[1024];
            int offset;
            fake[0x50 / 4] = 0x00040004;
            fake[0x0c / 4] = 4;
            fake[0x40 / 4] = 7;
            printf("%u\\n", (unsigned)run(fake, 0x12345678000, 0xabcdef000));
            for (offset = 0; offset < 0x100; offset += 4)
                printf("%x %x\\n", (unsigned)offset, (unsigned)fake[offset / 4]);
            return 0;
        }}"""
    )
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *strict, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    fault, *lines = done.stdout.splitlines()
    assert fault == "7"
    registers = {int(offset, 16): int(value, 16) for offset, value in map(str.split, lines)}
    assert {offset: value for offset, value in registers.items() if value} == {
        0x008: 1,
        0x00C: 4,
        0x01C: image.program_offset,
        0x020: 0x45678000,
        0x024: 0x123,
        0x028: len(image.host) // 4096,
        0x030: 0xBCDEF000,
        0x034: 0xA,
        0x038: len(image.weights) // 16,
        0x040: 7,
        0x04C: 1_000_000,
        0x050: 0x00040004,
    }
