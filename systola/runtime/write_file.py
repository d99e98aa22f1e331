# SPDX-License-Identifier: Apache-2.0
"""The one way to write a file that a user named: all of its new content, or the old file stays."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import EACCES, EINVAL, EISDIR
from os import PathLike
from stat import S_IMODE, S_ISDIR, S_ISREG
from tempfile import TemporaryDirectory

_DESCRIPTORS = "/dev/fd"
"""The folder with the files that this process has open, by their numbers."""
_PREFIX = ".tpu-"
"""Start of the name of the folder in which new content is written, before it gets its file's
name.
"""


def write_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file; after any error a regular file keeps its old content.

    A regular file, or a new file, gets its content by a rename of a complete file in the same
    folder. Links on the way stay, and so do the file's permissions and owner. Another hard link
    keeps the old content. Devices, FIFOs and open files such as /dev/stdout are written to as they
    are. Raises OSError with the name `path`.
    """
    with _named(path) as name:
        place, status = _place(name)
        if isinstance(place, int):
            with open(place, "wb", closefd=False) as file:
                file.write(content)
        elif status and not S_ISREG(status.st_mode):
            with open(name, "wb") as file:
                file.write(content)
        else:
            with _beside(place, status) as new:
                _fill(new, content, status)
                os.replace(new, place)


def check_writable(path: str | PathLike[str]) -> None:
    """Raise the OSError that write_file would raise now, as far as one can know without writing."""
    with _named(path) as name:
        place, status = _place(name)
        if isinstance(place, int):
            os.fstat(place)
        elif status and not S_ISREG(status.st_mode):
            # A FIFO is not opened: that waits for its reader.
            if S_ISDIR(status.st_mode):
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            if not os.access(name, os.W_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
        else:
            with _beside(place, status):
                pass


@contextmanager
def _named(path: str | PathLike[str]) -> Generator[str]:
    """Yield `path` as text; an error in the context becomes an OSError with that name."""
    name = os.fspath(path)
    try:
        yield name
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), name) from None
    except ValueError as error:  # a null byte in the path
        raise OSError(EINVAL, str(error), name) from None


def _place(name: str) -> tuple[int | str, os.stat_result | None]:
    """Return the file at the end of all links, and its status; None if nothing is there.

    An open file of this process is returned as its descriptor: a rename would leave whoever holds
    that descriptor with a file without a name.
    """
    try:
        status = os.stat(name)
    except FileNotFoundError:
        if not os.path.basename(name):
            raise
        status = None
    folder, last = os.path.split(name)
    while True:
        if last.isdecimal() and os.path.realpath(folder) == os.path.realpath(_DESCRIPTORS):
            return int(last), status
        place = os.path.join(folder, last)
        if not os.path.islink(place):
            return place, status
        folder, last = os.path.split(os.path.join(folder, os.readlink(place)))


@contextmanager
def _beside(place: str, status: os.stat_result | None) -> Generator[str]:
    """Yield a path in the file system of `place`, in a folder that goes away with the context."""
    if status:
        # A rename would replace a file that is protected against writing.
        open(place, "ab").close()
    with TemporaryDirectory(prefix=_PREFIX, dir=os.path.dirname(place) or ".") as folder:
        yield os.path.join(folder, "new")


def _fill(new: str, content: bytes, status: os.stat_result | None) -> None:
    """Write the file `new`, to the disk itself, with the owner and permissions in `status`."""
    with open(new, "xb") as file:
        file.write(content)
        file.flush()
        if status:
            with suppress(PermissionError):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), S_IMODE(status.st_mode))
        os.fsync(file.fileno())
