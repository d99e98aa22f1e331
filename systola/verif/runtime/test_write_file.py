# SPDX-License-Identifier: Apache-2.0
"""Tests of `write_file`, which writes output files that users name.

After a call, the file has its whole new content, or is unchanged if the call has failed."""

from __future__ import annotations

import ast
import errno
import os
import re
import stat
from pathlib import Path
from threading import Thread

import pytest

from systola.runtime.write_file import check_writable, write_file
from systola.verif.kit.checkout import PACKAGE
from systola.verif.kit.user_files import (
    NOBODY,
    as_nobody,
    full_disk,
    null_device,
    protected_folder,
    tree,
)

NEW = b"new content" * 100


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a new folder, and return it. It has a file `old`, and a folder `links`.

    The links go to `old`, to each other, or to files that do not exist.
    """
    monkeypatch.chdir(tmp_path)
    Path("old").write_bytes(b"old content")
    Path("old").chmod(0o604)
    Path("links").mkdir()
    Path("links/to_old").symlink_to("../old")
    Path("links/to_link").symlink_to("to_old")
    Path("links/to_nothing").symlink_to("../nothing")
    Path("links/into_nowhere").symlink_to("../nowhere/file")
    Path("links/loop").symlink_to("loop")
    os.link("old", "links/hard")
    return tmp_path


def test_a_new_file_has_the_permissions_of_any_other(folder: Path) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            write_file(f"new{mask}", NEW)
        finally:
            os.umask(before)
        assert tree(folder)[f"new{mask}"] == (stat.S_IFREG | mode, NEW)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("old", "old"),
        ("./links/../old", "old"),
        ("links/to_old", "old"),
        ("links/to_link", "old"),
        ("links/to_nothing", "nothing"),
        ("links/hard", "links/hard"),
        ("n" * 255, "n" * 255),
        ("\udcff", "\udcff"),
    ],
)
def test_one_regular_file_changes(name: str, changed: str, folder: Path) -> None:
    """Check that a write changes one regular file only, also through links, and no permissions.

    Another hard link to the file keeps the old content.
    """
    expected = tree(folder)
    mode, _ = expected.get(changed, (stat.S_IFREG | 0o666 & ~umask(), None))
    check_writable(name)
    assert tree(folder) == expected
    write_file(name, NEW)
    assert tree(folder) == expected | {changed: (mode, NEW)}


def umask() -> int:
    """Return the umask of this process: the permissions that new files do not get."""
    before = os.umask(0)
    os.umask(before)
    return before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_stays(folder: Path) -> None:
    os.chown("old", NOBODY, NOBODY)
    write_file("old", NEW)
    status = os.stat("old")
    assert (status.st_uid, status.st_gid) == (NOBODY, NOBODY)
    assert stat.S_IMODE(status.st_mode) == 0o604


def test_a_fifo_stays(folder: Path) -> None:
    os.mkfifo("fifo")
    Path("links/to_fifo").symlink_to("../fifo")
    before = tree(folder)
    for name in ("fifo", "links/to_fifo"):
        check_writable(name)
        read: list[bytes] = []
        reader = Thread(target=lambda read=read: read.append(Path("fifo").read_bytes()))
        reader.start()
        write_file(name, NEW)
        reader.join()
        assert read == [NEW]
    assert tree(folder) == before


def test_a_device_stays(folder: Path) -> None:
    null_device(folder / "null")
    Path("links/to_null").symlink_to("../null")
    before = tree(folder)
    for name in ("null", "links/to_null"):
        check_writable(name)
        write_file(name, NEW)
    assert tree(folder) == before


def test_an_open_file_goes_on_where_it_is(folder: Path) -> None:
    """Check writes to an open file by a name such as /dev/fd/3 or /dev/stdout.

    The writes begin at the present position in the open file.
    """
    before = tree(folder)
    with open("script", "wb", buffering=0) as file:
        os.symlink(f"/dev/fd/{file.fileno()}", "links/to_open")
        file.write(b"first ")
        for name in (f"/dev/fd/{file.fileno()}", f"/proc/self/fd/{file.fileno()}", "links/to_open"):
            check_writable(name)
            write_file(name, b"second ")
        file.write(b"third")
    os.remove("links/to_open")
    mode = stat.S_IFREG | 0o666 & ~umask()
    assert tree(folder) == before | {"script": (mode, b"first " + 3 * b"second " + b"third")}
    with open("gone", "w+b") as file:
        os.remove("gone")
        write_file(f"/dev/fd/{file.fileno()}", NEW)
        assert file.read() == b"" and file.seek(0) == 0 and file.read() == NEW
    assert not [name for name in os.listdir() if name.startswith("gone")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("links", errno.EISDIR),
        ("nowhere/file", errno.ENOENT),
        ("links/into_nowhere", errno.ENOENT),
        ("old/file", errno.ENOTDIR),
        ("links/loop", errno.ELOOP),
        ("n" * 256, errno.ENAMETOOLONG),
        ("", errno.ENOENT),
        ("new/", errno.ENOENT),
        ("zero\0byte", errno.EINVAL),
        ("/dev/fd/999", errno.EBADF),
    ],
)
def test_names_that_cannot_be_written(name: str, code: int, folder: Path) -> None:
    before = tree(folder)
    for attempt in (check_writable, lambda name: write_file(name, NEW)):
        with pytest.raises(OSError, match=rf"\[Errno {code}\]") as caught:
            attempt(name)
        assert caught.value.filename == name
    assert tree(folder) == before


@pytest.mark.parametrize("name", ["old", "below/old", "below/new"])
def test_protected_files_and_folders(name: str) -> None:
    """Check that write-protected files, and files in write-protected folders, are not replaced.

    A rename could replace a write-protected file, so `write_file` checks the permission itself.
    """
    with protected_folder() as folder:
        before = tree(folder)
        with as_nobody():
            for attempt in (check_writable, lambda name: write_file(name, NEW)):
                with pytest.raises(PermissionError) as caught:
                    attempt(name)
                assert caught.value.filename == name
        assert tree(folder) == before


@pytest.mark.parametrize("name", ["old", "links/to_old", "new"])
def test_a_full_disk(name: str, folder: Path) -> None:
    before = tree(folder)
    with full_disk(), pytest.raises(OSError, match=rf"\[Errno {errno.EFBIG}\]") as caught:
        write_file(name, NEW)
    assert caught.value.filename == name
    assert tree(folder) == before


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_control_c(function: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = tree(folder)
    monkeypatch.setattr(os, function, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file("old", NEW)
    assert tree(folder) == before


def test_a_full_device(folder: Path) -> None:
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOSPC}\].*'/dev/full'"):
        write_file("/dev/full", NEW)


ROOMS = ("cli", "runtime", "training", "views")
WRITERS = {
    "runtime/write_file.py": "it is the one",
    "cli/output_folder.py": "a folder of files",
    "cli/streams.py": "the null device, in the place of a closed output",
    "runtime/quantiser/onnx_model.py": "a temporary folder, which the quantiser reads",
}

MODE = re.compile(r"[rbt]*[wax+][wax+rbt]*")
WRITES = re.compile(r"write_text|write_bytes|savefig|tofile|savez.*|savetxt")


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_code_opens_files_to_write(room: str) -> None:
    found = {
        str(path.relative_to(PACKAGE)): line
        for path in (PACKAGE / room).rglob("*.py")
        if (line := _opens_to_write(path))
    }
    assert {name: line for name, line in found.items() if name not in WRITERS} == {}


def _opens_to_write(path: Path) -> int | None:
    """Return the line number of a call in a source file that opens or writes a file, or None.

    A call with the argument `content` does not count, since `content` is a BytesIO.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        arguments = (*node.args, *(keyword.value for keyword in node.keywords))
        words = [each.value for each in arguments if isinstance(each, ast.Constant)]
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "open" and any(MODE.fullmatch(str(word)) for word in words):
            return node.lineno
        in_memory = "content" in [getattr(each, "id", None) for each in arguments]
        if WRITES.fullmatch(name) and not in_memory:
            return node.lineno
    return None
