# SPDX-License-Identifier: Apache-2.0
"""Tests of the folder that `tpu deliver` writes for a user; its test benches run unchanged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from systola.cli.main import main
from systola.sim.verilator import environment, make_variables
from systola.verif.kit.checkout import ROOT
from systola.verif.kit.links import dead_links

pytestmark = pytest.mark.thorough
Deliver = Callable[[str], Path]


@pytest.fixture(scope="module")
def deliver(tmp_path_factory: pytest.TempPathFactory) -> Deliver:
    """Return a function that runs `tpu deliver` once for given options, and returns its folder.

    Tests must leave this folder unchanged.
    """
    done: dict[str, Path] = {}

    def delivered(options: str) -> Path:
        if options not in done:
            folder = tmp_path_factory.mktemp("delivery") / "folder"
            assert main(["deliver", *options.split(), "-o", str(folder)]) == 0
            done[options] = folder
        return done[options]

    return delivered


def copied(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a delivered folder, which a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def on_icarus(folder: Path, language: str) -> tuple[int, str]:
    """Run the delivered Verilog test bench on Icarus; return the exit status and the last line.

    The commands are the same as in the delivered README.
    """
    sources = ["testbench.v", *sorted(str(path) for path in folder.glob("*.v"))]
    build = ["iverilog", f"-g{language}", "-s", "testbench", "-o", "sim.vvp", *sources]
    subprocess.run(build, cwd=folder / "try", check=True)
    run = subprocess.run(
        ["vvp", "-N", "sim.vvp"], cwd=folder / "try", capture_output=True, text=True, check=False
    )
    return run.returncode, run.stdout.splitlines()[-1]


def spoil(folder: Path) -> None:
    """Flip one bit of an expected byte in a delivered folder."""
    path = folder / "try" / "expected.hex"
    lines = path.read_text().splitlines()
    lines[7] = f"{int(lines[7], 16) ^ 1:0{len(lines[7])}x}"
    path.write_text("\n".join([*lines, ""]))


@pytest.mark.icarus
@pytest.mark.parametrize("language", ["2005", "2012"])
@pytest.mark.parametrize("options", ["--preset tiny", "--preset 5x6-compact --fabric chip"])
def test_bench(options: str, language: str, deliver: Deliver, tmp_path: Path) -> None:
    """Check that the delivered test bench passes on Icarus, and finds a wrong byte."""
    folder = copied(deliver(options), tmp_path)
    status, line = on_icarus(folder, language)
    assert status == 0 and line.startswith("PASS: "), line
    spoil(folder)
    status, line = on_icarus(folder, language)
    assert status != 0 and line.startswith("FAIL: 1 of "), line


@pytest.mark.icarus
def test_bench_finds_a_fault_and_a_hang(deliver: Deliver, tmp_path: Path) -> None:
    """Check that the test bench fails for a program with a fault, and a machine held in reset."""
    folder = copied(deliver("--preset tiny"), tmp_path)
    host = folder / "try" / "host.hex"
    right = host.read_text()
    host.write_text(re.sub(r"^[0-9a-f]{8}$", "ffffffff", right, flags=re.MULTILINE))
    status, line = on_icarus(folder, "2005")
    assert status != 0 and line == "FAIL: the program ended with fault 1"
    host.write_text(right)
    bench = folder / "try" / "testbench.v"
    text = bench.read_text().replace("aresetn = 1;", "aresetn = 0;")
    bench.write_text(text.replace("LIMIT = 20000;", "LIMIT = 300;"))
    status, line = on_icarus(folder, "2005")
    assert status != 0 and line == "FAIL: no end after 300 cycles"


@pytest.mark.icarus
def test_reset_alone(deliver: Deliver, tmp_path: Path) -> None:
    """Check that the machine starts by its reset alone, from registers that begin as X.

    The registers' initial values are removed from the Verilog.
    """
    folder = copied(deliver("--preset tiny"), tmp_path)
    verilog = folder / "tpu.v"
    initial = r"^( *reg (?:\[\d+:0\] )?\\?\S+ ) *= [^;]*;$"
    text, removed = re.subn(initial, r"\1;", verilog.read_text(), flags=re.MULTILINE)
    assert removed > 500
    assert not re.search(r"^ *initial\b|^ *reg\b[^;]*=", text, re.MULTILINE)
    verilog.write_text(text)
    status, line = on_icarus(folder, "2005")
    assert status == 0 and line.startswith("PASS: "), line


def test_bench_on_verilator(deliver: Deliver, tmp_path: Path) -> None:
    folder = copied(deliver("--preset tiny"), tmp_path) / "try"
    sources = ["testbench.v", *sorted(str(path) for path in folder.parent.glob("*.v"))]
    # Variables of make name the C++ compiler, as only a separately installed Verilator finds one by
    # itself. The compiler's options for speed are off, as they cost more time here than they save.
    quick = [f"{level}=-O0" for level in ("OPT_FAST", "OPT_SLOW", "OPT_GLOBAL")]
    variables = {**environment(), "MAKEFLAGS": " ".join([*make_variables(), *quick])}
    build = ["verilator", "--binary", "--timing", "-Wno-lint", "--top", "testbench", *sources]
    subprocess.run(build, cwd=folder, env=variables, check=True, capture_output=True)
    for status_is_right, begins in ((True, "PASS: "), (False, "FAIL: 1 of ")):
        run = subprocess.run(
            ["obj_dir/Vtestbench"], cwd=folder, capture_output=True, text=True, check=False
        )
        assert (run.returncode == 0) == status_is_right, run
        assert re.search(f"^{begins}", run.stdout, re.MULTILINE), run.stdout
        spoil(folder.parent)


@pytest.mark.icarus
def test_cocotb(deliver: Deliver, tmp_path: Path) -> None:
    """Check that the delivered cocotb test passes, and fails if a byte is wrong."""
    folder = copied(deliver("--preset tiny"), tmp_path)
    # The environment is a user's, without pytest's variables.
    variables = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    command = [sys.executable, "test_tpu_axi.py"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder / "try", env=variables, capture_output=True, text=True, check=False
        )

    good = run()
    assert good.returncode == 0 and "\nPASS: " in good.stdout, good.stdout + good.stderr
    spoil(folder)
    bad = run()
    assert bad.returncode != 0 and "FAIL: see above" in bad.stderr, bad.stdout + bad.stderr


EVERY_KIND = ["--preset tiny", "--preset tiny --cores 2", "--preset 5x6-compact --fabric chip"]


@pytest.mark.parametrize("options", EVERY_KIND)
def test_links(options: str, deliver: Deliver) -> None:
    """Check that every link of the delivered pages leads to a file or a heading."""
    folder = deliver(options)
    pages = {path.name: path for path in folder.glob("*.md")}
    assert set(pages) == {"README.md", "isa.md", "ports.md", "registers.md"}
    assert list(dead_links(pages.values())) == []
    for file in re.findall(r"^\| `([\w.]+)`", pages["README.md"].read_text(), re.MULTILINE):
        assert (folder / file).exists(), file


@pytest.mark.parametrize("options", EVERY_KIND)
def test_headers_and_sums(options: str, deliver: Deliver) -> None:
    """Check that delivered files name licence, version, machine and commit, and have a checksum."""
    folder = deliver(options)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    machine = options.split()[1]
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        first, second = path.read_text().splitlines()[:2]
        assert "SPDX-License-Identifier: Apache-2.0" in first, path
        assert f"Systola {version('systola')}" in second and f"'{machine}'" in second, path
        assert commit in second, path
        assert path.read_text().count("SPDX-License-Identifier") == 1, path
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(files) - 1


def test_clock(deliver: Deliver) -> None:
    """Check that the delivered clock constraint names a port, with the requested period."""
    folder = deliver("--preset tiny")
    assert re.search(
        r"^create_clock -name clk -period 10\.000 \[get_ports \*clk\]$",
        (folder / "systola.sdc").read_text(),
        re.MULTILINE,
    )
    for module, clock in (("tpu", "clk"), ("tpu_axi", "aclk")):
        text = re.split(rf"^module {module} ?\(", (folder / f"{module}.v").read_text(), flags=re.M)[
            1
        ]
        body = text.partition("endmodule")[0]
        assert re.findall(r"^ *input (?:wire )?(\w*clk)\b", body, re.MULTILINE) == [clock]
