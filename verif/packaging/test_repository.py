# SPDX-License-Identifier: Apache-2.0
"""Rules for every file of the repository."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NOT_SOURCE = {".git", ".venv", "build", "dist", "__pycache__", ".pytest_cache", ".ruff_cache"}
WITHOUT_LICENCE_LINE = {".ipynb", ".json", ".md", ".npz", ".onnx", ".png", ".svg", ".tflite"}
WITHOUT_LICENCE_LINE_NAMES = {".gitignore", "LICENSE", "NOTICE", "py.typed"}
FOR_DEVELOPERS = {
    Path("models/make_digits.py"),
    Path("models/make_networks.py"),
    Path("models/training_data.py"),
    Path("runtime/engine.py"),  # of a cluster, which says what to install
    Path("runtime/litert.py"),
    Path("runtime/serial_port.py"),
    Path("sim/runner.py"),
    Path("training/keras_file.py"),
    Path("views/plots.py"),
}
"""Files outside verif/ that no command of `tpu` needs; without LiteRT `tpu demo` says so, without
pyserial `tpu run --backend serial` does, without matplotlib `--roofline`, and without Keras
`tpu train` of a .keras file."""
MACHINE_PATH = re.compile(rb"(?<![\w.)}])/(?:home|root|work|Users)/\w+")


def repository_files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_SOURCE | {"systola.egg-info"}]
        yield from (Path(folder, name) for name in names)


def test_licence_line() -> None:
    """Every source file says its licence within the first three lines."""
    missing = [
        str(path.relative_to(ROOT))
        for path in repository_files()
        if path.suffix not in WITHOUT_LICENCE_LINE
        and path.name not in WITHOUT_LICENCE_LINE_NAMES
        and not any(
            "SPDX-License-Identifier: Apache-2.0" in line
            for line in path.read_text().splitlines()[:3]
        )
    ]
    assert missing == []


def test_no_path_of_a_machine() -> None:
    """No file names a home or work folder of the machine on which it was written."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in repository_files()
        for match in MACHINE_PATH.finditer(path.read_bytes())
    ]
    assert found == []


def test_imports_are_declared() -> None:
    """What the commands of `tpu` import stands among the dependencies in pyproject.toml.

    Other tests run with the extras installed and would not miss a dependency.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = distribution_names(project["project"]["dependencies"])
    distributions = packages_distributions()
    for folder in project["tool"]["setuptools"]["package-dir"].values():
        for path in (ROOT / folder).glob("*.py"):
            if folder.startswith("verif") or path.relative_to(ROOT) in FOR_DEVELOPERS:
                continue
            for module in imported_modules(path) - sys.stdlib_module_names - {"systola"}:
                owners = {normalised(name) for name in distributions.get(module, [module])}
                assert owners & declared, f"{path.relative_to(ROOT)} imports {module}"


def test_lock() -> None:
    """requirements.lock has one exact version of all that make installs, within the ranges."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    locked = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {normalised(name): version for name, version in locked.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(each for extra in ("test", "lint", "pages", "synth", "serial") for each in extras[extra]),
    ]
    for requirement in map(Requirement, wanted):
        assert versions[normalised(requirement.name)] in requirement.specifier, requirement


def imported_modules(path: Path) -> set[str]:
    """First parts of the names of all modules that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names.update(
                str(arg.value).split(".")[0] for arg in node.args if isinstance(arg, ast.Constant)
            )
    return names


def distribution_names(requirements: list[str]) -> set[str]:
    """The bare names in requirements such as `amaranth[builtin-yosys]==0.5.10`."""
    return {normalised(re.split(r"[\[=<>~ ]", requirement)[0]) for requirement in requirements}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_wrong_name_of_a_test() -> None:
    """TEST that no test has in its name: what is meant in one line, and a status of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "verif/system"]
    for processes in (["-p", "no:xdist"], ["-n", "1"]):
        run = subprocess.run(
            [*command, *processes],
            cwd=ROOT,
            env={**os.environ, "TEST": "matmul"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == pytest.ExitCode.USAGE_ERROR, run.stdout
        assert "'matmul' in its name; did you mean TEST=matrix_multiply?\n" in run.stdout
