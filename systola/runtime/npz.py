# SPDX-License-Identifier: Apache-2.0
"""Arrays of .npz files, each read when a caller asks for it. The file may be damaged in any way."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from systola.runtime.plain_archive import check_members

_SUFFIX = ".npy"
_END = b"PK\x05\x06"
"""First bytes of the record at the end of a zip archive."""
_COUNT = 10
"""Byte offset of the number of members in this record."""
_MANY = 0xFFFF
"""Number in this field that stands for too many members for 16 bits."""


class NpzError(ValueError):
    """An error for a file that is no .npz file, or an array that cannot be read.

    Its text is the reason, in one line.
    """


class Npz:
    """A .npz file with its arrays. Raises NpzError if the content is no such file."""

    def __init__(self, content: bytes) -> None:
        with _reasons():
            self._archive = zipfile.ZipFile(io.BytesIO(content))
            check_members(self._archive, len(content))
        members = self._archive.infolist()
        # zipfile reads the members that it finds. If a length is damaged, some of them are hidden.
        end = content.rfind(_END) + _COUNT
        count = int.from_bytes(content[end : end + 2], "little")
        if count not in (len(members), _MANY):
            raise NpzError(f"it has {len(members)} arrays, not {count}")
        self._members = {each.filename.removesuffix(_SUFFIX): each for each in members}
        if len(self._members) != len(members):
            raise NpzError("two arrays have the same name")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, in the order of the file."""
        return tuple(self._members)

    def stored_bytes(self, name: str) -> int:
        """Return the number of bytes of an array with its header, as the file states it."""
        return self._members[name].file_size

    def read(self, name: str) -> NDArray[Any]:
        """Read an array that does not consist of objects.

        Raises NpzError if the array is damaged, encrypted, or not as long as its header states.
        Raises MemoryError if there is no room for it.
        """
        member = self._members[name]
        with _reasons():
            # The length is checked first, since numpy reserves as much memory as a header asks for.
            with self._archive.open(member) as file:
                shape, dtype = _header(file)
                rest = member.file_size - file.tell()
                size = dtype.itemsize
                for length in shape:
                    size *= length
                if size != rest and not dtype.hasobject:
                    raise NpzError(f"it has {rest} bytes of numbers, not {size}")
            with self._archive.open(member) as file:
                return np.lib.format.read_array(file, allow_pickle=False)

    def pickled(self, name: str) -> bytes:
        """Read an array of objects as a pickle, its form in the file.

        The pickle may be any program. Raises NpzError if the array is damaged, encrypted, or not of
        objects.
        """
        with _reasons(), self._archive.open(self._members[name]) as file:
            _, dtype = _header(file)
            if not dtype.hasobject:
                raise NpzError(f"{name} is an array of {dtype}, not of objects")
            return file.read()


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of an array: its shape and its type."""
    if np.lib.format.read_magic(file) == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype


@contextmanager
def _reasons() -> Generator[None]:
    """Turn any error of zipfile and numpy for damaged bytes into an NpzError."""
    try:
        yield
    except (NpzError, MemoryError):
        raise
    # For damaged bytes zipfile and numpy raise almost any error: BadZipFile, zlib.error,
    # RuntimeError for a password, NotImplementedError, struct.error, LZMAError, TypeError,
    # OverflowError.
    except Exception as error:
        raise NpzError(" ".join(str(error).split()) or type(error).__name__) from None
