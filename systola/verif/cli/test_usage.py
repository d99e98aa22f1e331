# SPDX-License-Identifier: Apache-2.0
"""Tests of the texts of `tpu` itself: command groups, version, completion, verbosity, cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

from systola.cli.parser import COMMANDS, GROUPS
from systola.sim.build import built_once, content_key
from systola.sim.notices import Level, choose_level
from systola.verif.cli.test_errors import run
from systola.verif.kit.checkout import ROOT

KEY = content_key("a key")


@pytest.fixture(autouse=True)
def level() -> Generator[None]:
    yield
    choose_level(Level.NORMAL)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYSTOLA_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


def test_nothing_shows_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("", capsys)
    assert (status, err) == (0, "")
    titles = [out.index(f"\n{title}:\n") for title in GROUPS]
    assert titles == sorted(titles)
    for command in COMMANDS:
        assert f"\n  {command} " in out
    assert run("--help", capsys)[1] == out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Check that program, pyproject.toml, change log and citation file have the same version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    assert run("--version", capsys) == (0, f"tpu {version}\n", "")
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert changes.index(f"\n## {version}\n") == changes.index("\n## ")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_command_imports_no_other() -> None:
    """Check that `tpu asm` imports no other command and no training, so that it starts quickly."""
    code = "import sys; from systola.cli.main import main; main(['asm']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert [name for name in COMMANDS if f"systola.cli.{name}" in imported] == ["asm"]
    assert "systola.training" not in imported


def test_completion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Check bash's completions of 'tpu ge' and 'tpu verilog --fab'."""
    _, script, _ = run("completion bash", capsys)
    path = tmp_path / "completion"
    path.write_text(script)
    function = next(
        line.split()[-2] for line in script.splitlines() if line.startswith("complete ")
    )
    for words, expected in ((["tpu", "ge"], "gemm"), (["tpu", "verilog", "--fab"], "--fabric")):
        line = f"""
            source {path}
            COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
            {function}; echo "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert expected in done.stdout.split(), (done.stdout, done.stderr)
    assert "#compdef tpu" in run("completion zsh", capsys)[1]


def test_quiet_and_verbose(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    assert run("demo --backend iss --preset small --quiet", capsys)[2] == ""
    built_once("kind", KEY, "making it", lambda work: work)
    assert capsys.readouterr().err == ""
    assert "image" in run("demo --backend iss --preset small -v", capsys)[2]
    built_once("kind", content_key("b"), "making it", lambda work: work)
    assert "making it" in capsys.readouterr().err


def test_cache(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    """Check that `tpu cache` lists and removes built files, and no other files."""
    assert run("cache", capsys)[1].startswith(f"0.0 MiB in {root}")

    def make(work: Path) -> Path:
        (work / "model").mkdir()
        (work / "model" / "file").write_bytes(bytes(3 << 20))
        return work / "model"

    folder = built_once("kind", KEY, "making it", make).parent
    built_once("kind", f"{content_key('b')}.so", "making it", lambda work: make(work) / "file")
    (folder / f"make-{KEY}-abc").mkdir()
    (folder / f"make-{KEY}-abc" / "left").write_bytes(bytes(1 << 20))
    kept = {"kind/results.txt", "kind/Cargo.lock", "kind/Cargo", "waves/w.vcd"}
    for name in kept:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mine")
    capsys.readouterr()
    status, out, _ = run("cache list", capsys)
    assert status == 0
    assert out.splitlines()[0].split() == ["kind", "2", "entries", "7.0", "MiB"]
    assert run("cache clear", capsys) == (0, f"7.0 MiB freed in {root}\n", "")
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {name for name in left if not name.endswith(".lock")} | {"kind/Cargo.lock"} == kept
    assert run("cache", capsys)[1].startswith("0.0 MiB")


def test_cache_leaves_what_is_being_built(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    def make(work: Path) -> Path:
        (work / "file").write_bytes(bytes(1 << 20))
        assert "1 left, as they are being built" in run("cache clear", capsys)[1]
        assert (work / "file").exists()
        return work / "file"

    assert built_once("kind", KEY, "making it", make).exists()


def test_cache_that_cannot_be_cleared(
    capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_once("kind", KEY, "making it", lambda work: work)
    capsys.readouterr()

    def refuse(path: str) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr("systola.sim.cache.shutil.rmtree", refuse)
    status, out, err = run("cache clear", capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"tpu: error: cannot build in {root / 'kind' / KEY}: permission denied")
