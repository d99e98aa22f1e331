# SPDX-License-Identifier: Apache-2.0
"""Tests of the package of type stubs for Amaranth: it has all names, and pyright accepts it."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from systola.verif.kit.checkout import ROOT

STUBS = ROOT / "typings"
PUBLIC = ("", "hdl", "lib.data", "lib.enum", "lib.fifo", "lib.memory", "lib.wiring", "vendor")
"""Modules of Amaranth for which the stubs have all public names."""
USER = """\
from amaranth import Module, Signal
from amaranth.sim import Simulator

m = Module()
reveal_type(Signal(8).any())
m.d.comb += Signal().eq(Signal(8).any())
Signal(8).bit_select("one", 1.5)
Simulator(m)
"""
"""A file of a user of Amaranth: line 7 has a wrong type, and `amaranth.sim` has no stub."""


def declared(text: str) -> Iterator[str]:
    """Yield the names that a stub declares or exports."""
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                yield from ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    """Check that the stub of a module has each public name of the module."""
    real = importlib.import_module(".".join(["amaranth", *module.split(".")]).rstrip("."))
    folder = STUBS.joinpath("amaranth", *filter(None, module.split(".")))
    path = folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")
    # Amaranth passes on names of Python's module enum: undocumented ones, and one of Python 3.13.
    others = {"pickle_by_enum_name", "pickle_by_global_name", "EnumDict"}
    assert set(real.__all__) - set(declared(path.read_text())) <= others


def test_the_same_amaranth() -> None:
    """Check that the stubs require the same versions of Amaranth as the main package."""
    stubs, machine = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in (STUBS, ROOT)
    )
    (asked,) = stubs["dependencies"]
    assert asked.replace("amaranth", "amaranth[builtin-yosys]") in machine["dependencies"]
    assert f">={stubs['version']}," in asked


@pytest.mark.thorough
def test_wheel(tmp_path: Path) -> None:
    """Check that pyright, with the stubs' wheel installed, finds the error in a user's file."""
    source = shutil.copytree(STUBS, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, source], check=True)
    (path,) = tmp_path.glob("*.whl")
    prefix = tmp_path / "environment"
    venv.create(prefix, symlinks=True)
    paths = sysconfig.get_paths("venv", vars={"base": str(prefix), "platbase": str(prefix)})
    site = Path(paths["purelib"])
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(site)
        names = {Path(name).parts[0] for name in wheel.namelist()}
    stubs = {file.relative_to(STUBS / "amaranth") for file in STUBS.rglob("*.pyi")}
    packed = site / "amaranth-stubs"
    assert {file.relative_to(packed) for file in packed.rglob("*.pyi")} == stubs
    assert (packed / "py.typed").read_text() == "partial\n"
    assert len(names) == 2 and any(name.endswith(".dist-info") for name in names)
    assert list(site.rglob("LICENSE"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "user.py").write_text(USER)
    pyright = Path(sys.executable).with_name("pyright")
    command = [pyright, "--outputjson", "--pythonpath", prefix / "bin" / "python", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {(each["severity"], each["range"]["start"]["line"] + 1) for each in found}
    assert lines == {("information", 5), ("error", 7)}, found
    assert any('"Value"' in each["message"] for each in found)
