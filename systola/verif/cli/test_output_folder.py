# SPDX-License-Identifier: Apache-2.0
"""Tests of commands that write a folder: no file of a user is lost, and no old output stays."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from systola.cli.errors import UserError
from systola.cli.output_folder import OutputFolder
from systola.synth import delivery
from systola.verif.cli.test_errors import run

HEADER = "# a header\n"
FIRST = {"a.txt": b"a", "in/b.txt": b"b", "in/deeper/c.txt": b"c"}
SECOND = {"a.txt": b"another a", "in/d.txt": b"d"}


def write(folder: Path, contents: dict[str, bytes], command: str = "tpu test") -> None:
    with OutputFolder(str(folder), command) as output:
        output.write(contents, HEADER)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_new_and_again(tmp_path: Path) -> None:
    """Check that a command makes an output folder with its parents, and replaces it as a whole."""
    folder = tmp_path / "new" / "folder"
    for contents in (FIRST, SECOND, FIRST):
        write(folder, contents)
        found = files(folder)
        sums = found.pop("SHA256SUMS").decode()
        assert found == contents
        assert sums.startswith(HEADER)
        check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
        subprocess.run(check, cwd=folder, check=True)
        assert not [each for each in folder.rglob("*") if each.is_dir() and not any(each.iterdir())]


def test_empty_and_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("."), FIRST)
    write(Path("."), SECOND)
    assert set(files(tmp_path)) == {*SECOND, "SHA256SUMS"}


def add_file(folder: Path) -> str:
    (folder / "in" / "mine.txt").write_text("mine")
    return "is not empty: it has in/mine.txt"


def add_link(folder: Path) -> str:
    (folder / "link").symlink_to("nowhere")
    return "is not empty: it has link"


def change_file(folder: Path) -> str:
    (folder / "in" / "b.txt").write_text("mine")
    return "in/b.txt was changed: it would be lost"


def replace_by_link(folder: Path) -> str:
    os.replace(folder / "a.txt", folder.parent / "a.txt")
    (folder / "a.txt").symlink_to("../a.txt")
    return "is not empty: it has a.txt"


def other_sums(folder: Path) -> str:
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if line[0] != "#"))
    return "is not empty: its SHA256SUMS is of something else"


def no_sums(folder: Path) -> str:
    (folder / "SHA256SUMS").unlink()
    return "is not empty: it has a.txt"


@pytest.mark.parametrize(
    "change", [add_file, add_link, change_file, replace_by_link, other_sums, no_sums]
)
def test_nothing_is_lost(change: Callable[[Path], str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, FIRST)
    says = change(folder)
    before = files(tmp_path)
    with pytest.raises(UserError, match=re.escape(says)):
        write(folder, SECOND)
    assert files(tmp_path) == before


def test_folder_of_another_command(tmp_path: Path) -> None:
    write(tmp_path, FIRST, "tpu other")
    with pytest.raises(UserError, match="is of something else"):
        write(tmp_path, SECOND)


def test_removed_files_are_no_change(tmp_path: Path) -> None:
    write(tmp_path, FIRST)
    (tmp_path / "in" / "b.txt").unlink()
    write(tmp_path, SECOND)
    assert set(files(tmp_path)) == {*SECOND, "SHA256SUMS"}


@pytest.mark.parametrize("before", [None, FIRST])
def test_failure_leaves_what_was_there(
    before: dict[str, bytes] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that all files stay as before if a command ends in an error, or finds no room."""
    folder = tmp_path / "new" / "folder"
    if before:
        write(folder, before)
    was = sorted(tmp_path.rglob("*")), files(tmp_path)
    with pytest.raises(UserError, match="a mistake"), OutputFolder(str(folder), "tpu test"):
        raise UserError("a mistake")
    assert (sorted(tmp_path.rglob("*")), files(tmp_path)) == was
    really = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "d.txt":
            raise OSError(28, os.strerror(28), str(path))
        return really(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"cannot write .*folder: no space left on device"):
        write(folder, SECOND)
    assert (sorted(tmp_path.rglob("*")), files(tmp_path)) == was


def test_deliver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a command refuses a folder with a user's files before it begins to work."""
    monkeypatch.setattr(delivery, "delivery", None)
    (tmp_path / "README.md").write_text("mine")
    status, out, err = run(f"deliver --preset tiny -o {tmp_path}", capsys)
    assert (status, out) == (2, "")
    assert err == f"tpu: error: {tmp_path} is not empty: it has README.md\n"
    assert files(tmp_path) == {"README.md": b"mine"}
