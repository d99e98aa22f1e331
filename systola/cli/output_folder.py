# SPDX-License-Identifier: Apache-2.0
"""A folder that a command writes whole, and may replace where nobody has changed it since."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from systola.cli.errors import UserError

SUMS = "SHA256SUMS"
"""The file that lists all others, for `sha256sum -c`."""
_PART = ".systola-part-"


class OutputFolder:
    """A folder that is known, before the work begins, to be new, empty, or of the same command.

    A context manager that removes the folders it has made if they are not written in the end.
    Raises UserError if the folder cannot be made, and if it holds anything that the command did not
    write: a file that SHA256SUMS does not list, or one that was changed since.
    """

    def __init__(self, path: str, command: str) -> None:
        """Check the folder; `command` is the name of the command, such as "tpu deliver"."""
        self._folder = Path(path)
        self._mark = f"# The files of this folder, by '{command}'."
        self._made: list[Path] = []
        self._old = self._files_before()
        try:
            self._make(self._folder)
            # A folder may look writable and not be so. Only writing a file shows it.
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            self._remove_made()
            raise self._refusal(error) from None

    def write(self, contents: Mapping[str, bytes], header: str) -> None:
        """Replace the whole content of the folder by the files `contents`, and SHA256SUMS.

        Names may have folders in them. `header` has lines that begin with "#"; they stand at the
        top of SHA256SUMS. Files are written beside the old ones first, so that a full disk leaves
        those as they were.
        """
        sums = (f"{_checksum(data)}  {name}\n" for name, data in contents.items())
        listed = f"{header}{self._mark}\n{''.join(sums)}".encode()
        try:
            part = Path(tempfile.mkdtemp(prefix=_PART, dir=self._folder))
            try:
                for name, data in contents.items():
                    (part / name).parent.mkdir(parents=True, exist_ok=True)
                    (part / name).write_bytes(data)
                (part / SUMS).write_bytes(listed)
                for name in (*contents, SUMS):
                    (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(part / name, self._folder / name)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            for name in self._old - {*contents, SUMS}:
                (self._folder / name).unlink(missing_ok=True)
                for parent in list(Path(name).parents)[:-1]:
                    with suppress(OSError):  # the folder has other files
                        (self._folder / parent).rmdir()
        except OSError as error:
            raise self._refusal(error) from None
        self._made = []

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove_made()

    def _make(self, folder: Path) -> None:
        """Make the folder and the missing folders above it, and note the new folders for their
        removal.
        """
        if folder.is_dir():
            return
        self._make(folder.parent)
        folder.mkdir()
        self._made.append(folder)

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _files_before(self) -> set[str]:
        """Return the names of the files in the folder, all of them written by this command."""
        found: set[str] = set()
        try:
            if not self._folder.is_dir() or not any(self._folder.iterdir()):
                return found
            listed = self._listed()
            for path in self._folder.rglob("*"):
                if path.is_dir() and not path.is_symlink():
                    continue
                name = str(path.relative_to(self._folder))
                if name not in listed or path.is_symlink() or not path.is_file():
                    raise UserError(f"{self._folder} is not empty: it has {name}")
                if name != SUMS and _checksum(path.read_bytes()) != listed[name]:
                    raise UserError(f"{path} was changed: it would be lost")
                found.add(name)
        except OSError as error:
            raise self._refusal(error) from None
        return found

    def _listed(self) -> dict[str, str]:
        """Return the checksum of each file as SHA256SUMS lists it. SHA256SUMS itself is in the
        result, without a checksum.
        """
        path = self._folder / SUMS
        if path.is_symlink() or not path.is_file():
            first = min(each.name for each in self._folder.iterdir())
            raise UserError(f"{self._folder} is not empty: it has {first}")
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if self._mark not in lines:
            raise UserError(f"{self._folder} is not empty: its {SUMS} is of something else")
        pairs = (line.split("  ", 1) for line in lines if not line.startswith("#"))
        return {SUMS: "", **{pair[1]: pair[0] for pair in pairs if len(pair) == 2}}

    def _refusal(self, error: OSError) -> UserError:
        return UserError(f"cannot write {self._folder}: {(error.strerror or str(error)).lower()}")


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
