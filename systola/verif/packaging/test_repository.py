# SPDX-License-Identifier: Apache-2.0
"""Tests of rules for files of the repository: licences, imports, lock files, workflows."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import combinations
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from setuptools import find_packages

from systola.verif.kit.checkout import ROOT

NOT_SOURCE = {".git", ".venv", "build", "dist", "__pycache__", ".pytest_cache", ".ruff_cache"}
WITHOUT_LICENCE_LINE = {
    ".ipynb",
    ".json",
    ".jsonl",
    ".md",
    ".npz",
    ".onnx",
    ".png",
    ".svg",
    ".tflite",
}
WITHOUT_LICENCE_LINE_NAMES = {".gitignore", "LICENSE", "NOTICE", "py.typed"}
FOR_DEVELOPERS = {
    Path("systola/models/make_digits.py"),
    Path("systola/models/make_networks.py"),
    Path("systola/models/training_data.py"),
    # This file is used only after interpreters.py has found LiteRT.
    Path("systola/compiler/cut/tflite_source.py"),
    Path("systola/torch.py"),  # imports PyTorch; users of this file have installed it
    Path("systola/runtime/interpreters.py"),  # imports LiteRT for the parts that run on the host
    Path("systola/runtime/engine.py"),  # imports Dask for clusters; an error names a missing Dask
    Path("systola/runtime/litert.py"),
    Path("systola/runtime/serial_port.py"),
    Path("systola/sim/runner.py"),
    Path("systola/training/keras_file.py"),
    Path("systola/training/weight_files.py"),  # imports h5py; an error names a missing h5py
    Path("systola/views/plots.py"),
}
"""Files outside verif/ that may import packages which are not dependencies of `tpu`.

Some commands report a missing extra package: `tpu demo` (LiteRT), `tpu run --backend serial`
(pyserial), `--roofline` (matplotlib), and `tpu train` of a .keras file (Keras).
"""
MACHINE_PATH = re.compile(rb"(?<![\w.)}])/(?:home|root|work|Users)/\w+")


def repository_files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_SOURCE | {"systola.egg-info"}]
        # NOT_SOURCE has .git, which is a folder in a clone but a file in a git work tree.
        yield from (Path(folder, name) for name in names if name not in NOT_SOURCE)


def test_licence_line() -> None:
    """Check that every source file names its licence within the first three lines."""
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
    """Check that no file names a home or work folder of the computer on which it was written."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in repository_files()
        for match in MACHINE_PATH.finditer(path.read_bytes())
    ]
    assert found == []


def packages() -> list[str]:
    """Return the folders of the packages that the wheel carries."""
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    names = find_packages(str(ROOT), **find["find"])
    return [name.replace(".", "/") for name in names]


def test_imports_are_declared() -> None:
    """Check that the dependencies in pyproject.toml have every package that `tpu` imports.

    Other tests run with all extra packages installed, so they cannot find a missing dependency.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = distribution_names(project["project"]["dependencies"])
    distributions = packages_distributions()
    for folder in packages():
        for path in (ROOT / folder).glob("*.py"):
            if folder.startswith("systola/verif") or path.relative_to(ROOT) in FOR_DEVELOPERS:
                continue
            for module in imported_modules(path) - sys.stdlib_module_names - {"systola"}:
                owners = {normalised(name) for name in distributions.get(module, [module])}
                assert owners & declared, f"{path.relative_to(ROOT)} imports {module}"


LOCKED = {
    "requirements/environment.lock": ("dependencies", "test", "lint", "pages", "serial"),
    "requirements/site.lock": ("site",),
    "requirements/synth.lock": ("dependencies", "synth"),
}
"""Lock files from which `make` installs, each with the lists in pyproject.toml that it locks."""


def locked_versions(name: str) -> dict[str, str]:
    """Return the version of each package in a lock file, by the package's name.

    Asserts that each line is a comment, or an exact version of a package with a checksum.
    """
    text = (ROOT / name).read_text().replace("\\\n", "")
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        requirement, *checksums = re.split(r"\s+--hash=", line.strip())
        parsed = Requirement(requirement)
        (exact,) = parsed.specifier
        assert (exact.operator, parsed.url) == ("==", None), line
        assert checksums, line
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in checksums), line
        assert normalised(parsed.name) not in versions, line
        versions[normalised(parsed.name)] = exact.version
    return versions


@pytest.mark.parametrize("name", LOCKED)
def test_lock(name: str) -> None:
    """Check that a lock file's version of each package is within the range in pyproject.toml."""
    versions = locked_versions(name)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = table["project"]
    lists = project["optional-dependencies"] | table["dependency-groups"]
    lists["dependencies"] = project["dependencies"]
    wanted = [each for key in LOCKED[name] for each in lists[key]]
    for requirement in map(Requirement, wanted):
        assert versions[normalised(requirement.name)] in requirement.specifier, requirement


def test_locks_agree() -> None:
    for one, other in combinations(map(locked_versions, LOCKED), 2):
        for name in one.keys() & other.keys():
            assert one[name] == other[name], name


def test_everything_is_installed_from_a_lock() -> None:
    """Check that `make` installs only packages with a checksum, and this project."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    assert re.search(r"^INSTALL := .* --require-hashes .*--only-binary :all:", text, re.MULTILINE)
    installs = re.findall(r"(?:pip install|\$\(INSTALL\)).*", text)
    files = [found for line in installs for found in re.findall(r"--requirement (\S+)", line)]
    assert sorted(files) == sorted(LOCKED)
    for line in installs:
        assert "--require-hashes" in line or "--requirement" in line or "--no-deps" in line, line


def test_no_keras_that_runs_code_from_a_file() -> None:
    """Check that Keras is 3.14 or later: earlier versions run code from a file.

    The advisories are CVE-2025-1550, CVE-2025-8747, CVE-2025-9906 and CVE-2026-1462.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    found = [Requirement(each) for extra in extras.values() for each in extra]
    keras = [each for each in found if each.name == "keras"]
    assert len(keras) == 2
    for version in ("3.8.0", "3.9.0", "3.10.0", "3.11.0", "3.11.3", "3.12.0", "3.13.2"):
        assert not any(version in each.specifier for each in keras), version


def test_one_version() -> None:
    """Check that package, citation and newest entry of the change log have the same version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == version


def test_actions_by_commit() -> None:
    """Check that GitHub workflows name actions of other projects by commit.

    A tag can be moved to other code, but a commit cannot. The version is in a comment.
    """
    for path in (ROOT / ".github" / "workflows").iterdir():
        for line in re.findall(r"uses:.*", path.read_text()):
            assert re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


def test_parts_of_continuous_integration() -> None:
    """Check that the GitHub workflow runs all parts that the script .ci/run knows.

    The script refuses an unknown part, and lists the known parts.
    """
    said = subprocess.run([ROOT / ".ci" / "run", "lnit"], capture_output=True, text=True)
    assert said.returncode == 2 and said.stdout == ""
    known = re.fullmatch(r"unknown part 'lnit' \(known: (.*)\)\n", said.stderr)
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    parts = re.search(r"part: \[(.*)\]", workflow)
    assert known and parts and known[1] == parts[1]


def runs_icarus(test: ast.FunctionDef) -> bool:
    """Return whether the source of a test calls a function with "icarus" or "iverilog"."""
    calls = (node for each in test.body for node in ast.walk(each) if isinstance(node, ast.Call))
    arguments = (
        argument
        for call in calls
        if isinstance(call.func, ast.Name)
        for argument in (*call.args, *(each.value for each in call.keywords))
    )
    return any(
        isinstance(argument, ast.Constant) and argument.value in ("icarus", "iverilog")
        for argument in arguments
    )


def test_needs_of_tests() -> None:
    """Check that each test that runs Icarus Verilog has the mark `icarus`.

    Tests with the mark are skipped if Icarus Verilog is not installed.
    """
    for path in sorted((ROOT / "verif").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and runs_icarus(node):
                marks = {ast.unparse(mark) for mark in node.decorator_list}
                helper = not node.name.startswith("test_")
                assert helper or "pytest.mark.icarus" in marks, f"{path.name}: {node.name}"


def imported_modules(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, also inside functions."""
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
    """Return package names without extras and versions: `amaranth` for `amaranth[x]==0.5.10`."""
    return {normalised(re.split(r"[\[=<>~ ]", requirement)[0]) for requirement in requirements}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_wrong_name_of_a_test() -> None:
    """Check a value of TEST that no test's name has: one line suggests similar names.

    The exit status is the status of a usage error.
    """
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
