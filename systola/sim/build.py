# SPDX-License-Identifier: Apache-2.0
"""The folder of built simulators, in which each simulator is built only once.

Beside each result stands a seal, the checksum of the result. A result without its seal, or with
other bytes, was cut short by a full disk or a loss of power, and is made again.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from systola.sim.notices import notice, sign_of_life

KEY = "[0-9a-f]{24}"
"""Regular expression for the beginning of the name of a result, see content_key."""
SIM_DIRECTORY = Path(__file__).resolve().parent
WORK = "make-"
"""Beginning of the name of a directory in which a result is made; its key and `-` follow."""
SEAL = ".sha256"
"""End of the name of a seal, a file with the checksum of a result; the result's name comes before.
"""


def build_root() -> Path:
    """Return the directory of everything that is built and can be deleted at any time.

    The directory is SYSTOLA_BUILD if it is set, else `build` in the checkout that this file belongs
    to, else the user's cache directory.
    """
    if chosen := os.environ.get("SYSTOLA_BUILD"):
        return Path(chosen).resolve()
    checkout = SIM_DIRECTORY.parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / "build"
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "systola"


class BuildFolderError(RuntimeError):
    """An error for a build folder that cannot be written: which one, why, and the remedy, in one
    line.
    """


def build_folder(*parts: str) -> Path:
    """Return the folder `parts` of build_root(), made if it is missing. Raises BuildFolderError."""
    folder = build_root().joinpath(*parts)
    with in_build_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def in_build_folder(folder: Path) -> Generator[None]:
    """Turn errors of the operating system into BuildFolderError, for work in `folder`."""
    try:
        yield
    except OSError as error:
        raise BuildFolderError(
            f"cannot build in {error.filename or folder}: {(error.strerror or str(error)).lower()} "
            "(the environment variable SYSTOLA_BUILD names another folder to build in)"
        ) from error


def content_key(*parts: str | bytes) -> str:
    """Return a name for the result of building from `parts`; equal parts give equal names."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def built_once(kind: str, key: str, what: str, make: Callable[[Path], Path]) -> Path:
    """Return the file or directory that `make` leaves, from the cache or made now.

    `make` gets an empty directory to work in and returns the path of its result in it. If several
    processes ask at one time, one makes the result and the others wait. `what` is for the lines
    that are printed on stderr while the result is made. Raises BuildFolderError.
    """
    result = build_root() / kind / key
    if _is_whole(result):
        return result
    folder = build_folder(kind)
    with in_build_folder(folder), _locked(folder, key, what):
        if _is_whole(result):
            return result
        if result.exists():
            notice(f"what was kept is damaged: {result}")
            _remove(result)
        _remove_leftovers(folder, key)
        started = time.monotonic()
        where = folder if is_plain(folder) else _temporary_root()
        with (
            tempfile.TemporaryDirectory(prefix=f"{WORK}{key}-", dir=where) as work,
            sign_of_life(what),
        ):
            notice(f"{what} (kept for the next time) ...")
            made = make(Path(work))
            if where != folder:
                made = Path(shutil.move(made, folder / f"{key}.part"))
            _seal(made, result)
            made.replace(result)
            _to_disk(folder)
        seconds = time.monotonic() - started
        notice(f"{what}: done in {seconds:.0f} s")
    return result


def _is_whole(result: Path) -> bool:
    """Return whether `result` exists and has the bytes that were built."""
    try:
        return result.with_name(result.name + SEAL).read_text() == _checksum(result)
    except OSError:
        return False


def _seal(made: Path, result: Path) -> None:
    """Write the seal of `result`, which will have the content of `made`, and flush both to the
    disk.
    """
    for path in (made, *made.rglob("*")):
        _to_disk(path)
    seal = result.with_name(result.name + SEAL)
    seal.write_text(_checksum(made))
    _to_disk(seal)


def _checksum(built: Path) -> str:
    """Return the SHA-256 of a file, or of all files in a directory with their names."""
    digest = hashlib.sha256()
    for path in sorted([built, *built.rglob("*")]):
        digest.update(f"{path.relative_to(built)}\0".encode())
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _to_disk(path: Path) -> None:
    """Wait until a file or the names in a directory are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _remove(result: Path) -> None:
    if result.is_dir():
        shutil.rmtree(result)
    else:
        result.unlink()


def is_plain(path: Path) -> bool:
    """Return whether a path works in GNU make, and in makefiles that quote nothing.

    A path with a space, a bracket, a quote or a similar character does not.
    """
    return re.fullmatch(r"[A-Za-z0-9_/.,+@-]*", str(path)) is not None


@lru_cache
def plain_path(folder: Path) -> Path:
    """Return a path of `folder` that GNU make can work with.

    The path is the folder itself if it has a plain name, else a link to it. The link is removed
    when the process ends. Raises BuildFolderError.
    """
    if is_plain(folder):
        return folder
    link = _links() / content_key(str(folder))
    link.symlink_to(folder)
    return link


@lru_cache
def _links() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="systola-", dir=_temporary_root()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _temporary_root() -> Path:
    """Find the folder for temporary files. Raises BuildFolderError if its name is not plain."""
    root = Path(tempfile.gettempdir())
    if not is_plain(root):
        raise BuildFolderError(
            f"make cannot work in {root}: let TMPDIR name a folder without spaces and the like"
        )
    return root


def _remove_leftovers(folder: Path, own: str) -> None:
    """Remove the remains of killed processes. The caller holds the lock of key `own`."""
    for work in folder.glob(f"{WORK}*"):
        key = work.name.removeprefix(WORK).rpartition("-")[0]
        if key == own:
            shutil.rmtree(work, ignore_errors=True)
        elif key:
            with in_use(folder / f"{key}.lock") as used:
                if not used:
                    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def in_use(lock: Path) -> Generator[bool]:
    """Yield whether another process builds the result of this lock file.

    If no process builds it, the lock is held until the end of the context, so that none begins.
    """
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield True
        else:
            yield False


@contextmanager
def _locked(folder: Path, key: str, what: str) -> Generator[None]:
    with (folder / f"{key}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with sign_of_life(f"another process is {what}, this one waits"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
