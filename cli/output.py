# SPDX-License-Identifier: Apache-2.0
"""Files that a command writes at its end."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.cli.errors import UserError


class OutputFile:
    """A file that is known to be writable before the work begins, '-' being standard output.

    A context manager: a file that was not there before and is not written after all goes away.
    Raises UserError when it cannot be opened or written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._new = self._written = False
        self._file = None
        if path == "-":
            return
        try:
            self._new = not Path(path).exists()
            self._file = open(path, "ab")  # noqa: SIM115 - closed by __exit__
        except (OSError, ValueError) as error:
            raise UserError(f"cannot write {path}: {_reason(error)}") from None

    def write(self, content: bytes) -> None:
        """Replaces the content of the file."""
        file = self._file or sys.stdout.buffer
        try:
            sys.stdout.flush()
            if self._file and S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate(0)
            file.write(content)
            file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"cannot write {self._path}: {_reason(error)}") from None
        self._written = True

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file:
            # What write() could not get rid of, close() would try again.
            with suppress(OSError):
                self._file.close()
            if self._new and not self._written:
                Path(self._path).unlink(missing_ok=True)


def check_files(*, read: Sequence[str], written: Sequence[str | None]) -> None:
    """Raises UserError where a command would write a file over that it reads, or one two times.

    `written` are the options that name a file, None where they are not given. What is no regular
    file, a device or a pipe, can be named as often as one likes, but not standard output.
    """
    seen = {_identity(path): path for path in read}
    for path in written:
        if path is None:
            continue
        identity = _identity(path)
        if identity in seen:
            twice = "is named twice" if path == seen[identity] else f"is {seen[identity]}, too"
            raise UserError(f"{path} {twice}: the output would be written over it")
        if identity is not None:
            seen[identity] = path


def _identity(path: str) -> object:
    """The same for all names of a file; None for what can be written again and again."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path if path == "-" else os.path.realpath(path)
    return (status.st_dev, status.st_ino) if S_ISREG(status.st_mode) else None


def npz(outputs: Sequence[NDArray[Any]]) -> bytes:
    """The content of a .npz file with an array y, or y0, y1, ... where there are several."""
    arrays = {f"y{number}" if len(outputs) > 1 else "y": y for number, y in enumerate(outputs)}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_file(path: str) -> bytes:
    """Content of a file; raises UserError when it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()
