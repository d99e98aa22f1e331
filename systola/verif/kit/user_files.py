# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of programs that write files: folders, a full disk, missing rights.

Such programs must never lose a file of their user.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Generator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

NOBODY = 65534
"""The user ID (UID) of a user without rights."""


def tree(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Return the mode of everything in a folder, with the content of files and the targets of
    links.
    """
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = None
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (mode, content)
    return found


@contextmanager
def full_disk(room: int = 10) -> Generator[None]:
    """Limit the size of each file that this process writes to `room` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def as_nobody() -> Generator[None]:
    """Give up the rights of root while the context lasts, if this process is root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def null_device(path: Path) -> None:
    """Make a null device at `path`, or skip the test if the system does not allow it."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"nothing")
    except PermissionError:
        pytest.skip("no devices can be made here")


@contextmanager
def protected_folder() -> Generator[Path]:
    """Make a folder for a test and enter it; nobody can write to file `old` or folder `below`."""
    with TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "old").write_bytes(b"old content")
        (folder / "old").chmod(0o444)
        (folder / "below").mkdir()
        (folder / "below/old").write_bytes(b"old content")
        (folder / "below/old").chmod(0o666)
        (folder / "below/to_old").symlink_to("../old")
        (folder / "below").chmod(0o555)
        yield folder
        (folder / "below").chmod(0o755)
