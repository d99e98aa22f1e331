# SPDX-License-Identifier: Apache-2.0
"""Tests of the wheel: it installs only `systola`, and `tpu` works without a checkout."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from systola.verif.kit.checkout import ROOT
from systola.verif.packaging.test_repository import packages

NOT_SOURCE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from a copy of the repository that has no folder build/."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCE)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, source], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def tpu(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `tpu` command of a new virtual environment with the wheel installed.

    The new environment has a .pth file that adds the packages of the tests' environment. Other .pth
    files of the tests' environment, such as the editable install's, have no effect.
    """
    prefix = tmp_path_factory.mktemp("environment")
    venv.create(prefix, symlinks=True)
    paths = sysconfig.get_paths("venv", vars={"base": str(prefix), "platbase": str(prefix)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    scripts = Path(paths["scripts"])
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python", "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    return scripts / "tpu"


def run_json(tpu: Path, arguments: str, folder: Path) -> dict[str, Any]:
    """Run `tpu` in `folder`, and return the JSON that it prints.

    No environment variable leads to the checkout of this repository.
    """
    done = subprocess.run(
        [tpu, *arguments.split(), "--json", "-"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def outside(tmp_path: Path, **variables: str) -> dict[str, str]:
    """Return environment variables as of a user without a checkout of this repository.

    PATH has all tools except git, and no variable is this project's own.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if not tool.name.startswith("git") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR")}
    return {**kept, "PATH": str(tools), **variables}


def run_outside(
    tpu: Path, arguments: str, folder: Path, variables: dict[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [tpu, *arguments.split()],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_home_that_cannot_be_written(tpu: Path, tmp_path: Path) -> None:
    with run_outside(tpu, "gemm 4 4 4", tmp_path, outside(tmp_path, HOME="/dev/null")) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert re.fullmatch(r"tpu: error: cannot build in /dev/null/\.cache[^\n]+\n", err)


@pytest.mark.thorough
def test_two_builds_at_once_after_a_killed_one(tpu: Path, tmp_path: Path) -> None:
    """Check two `tpu` processes at once: only one builds the simulator, while the other waits.

    Both processes get the right result. Files of an earlier, killed build are removed.
    """
    variables = outside(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    arguments = "gemm 5 6 7 --preset tiny --json -"
    folder = tmp_path / "cache" / "systola"
    with run_outside(tpu, arguments, tmp_path, variables) as killed:
        assert killed.stderr is not None
        while "building the simulator" not in killed.stderr.readline():
            assert killed.poll() is None
        # The whole process group is killed, as compilers that `tpu` has started would go on.
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
    assert list(folder.glob("library/make-*"))
    first = run_outside(tpu, arguments, tmp_path, variables)
    second = run_outside(tpu, arguments, tmp_path, variables)
    said = [first.communicate(), second.communicate()]
    assert [first.returncode, second.returncode] == [0, 0]
    assert all(json.loads(out)["bit_exact"] for out, _ in said)
    starts = [err.count("building the simulator of 'tiny' (kept") for _, err in said]
    assert sorted(starts) == [0, 1]
    assert not list(folder.glob("*/make-*"))


def test_adds_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"systola", "systola-0.1.0.dist-info"}


def test_carries_every_file(wheel: Path) -> None:
    """Check that the wheel has every file of the packages' folders, code and data."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in packages():
        files = {path for path in (ROOT / folder).iterdir() if path.is_file()}
        names = {path.name for path in files if path.suffix != ".md"}
        assert {f"{folder}/{name}" for name in names} <= packed


@pytest.mark.thorough
def test_source_distribution(wheel: Path, tmp_path: Path) -> None:
    """Check that a wheel built from the source distribution has the same files as the wheel."""
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=NOT_SOURCE)
    build = "from setuptools import build_meta; print(build_meta.build_sdist('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, archive], check=True)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(tmp_path / wheel.name) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_info(tpu: Path, tmp_path: Path) -> None:
    info = run_json(tpu, "info --preset tiny", tmp_path)
    assert (info["rows"], info["cols"]) == (4, 4)


def test_interfaces(tpu: Path, tmp_path: Path) -> None:
    """Check that the installed wheel has the package `systola` with its interfaces for scripts."""
    line = (
        "import systola, systola.litert, systola.onnx_backend, systola.onnxruntime as ort; "
        "print(systola.quantize.__module__, ort.get_available_providers())"
    )
    done = subprocess.run(
        [tpu.with_name("python"), "-c", line],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "systola.runtime.quantiser.quantize ['SystolaExecutionProvider']\n"


def test_gemm(tpu: Path, tmp_path: Path) -> None:
    assert run_json(tpu, "gemm 5 6 7 --preset tiny --backend iss", tmp_path)["bit_exact"]


def test_page(tpu: Path, tmp_path: Path) -> None:
    """Check that `tpu` from the wheel can write a report page, which needs data files."""
    run_json(tpu, "demo --preset small --backend iss --report r.html", tmp_path)
    assert "</table>" in (tmp_path / "r.html").read_text()
