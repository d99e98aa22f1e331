# SPDX-License-Identifier: Apache-2.0
"""Compiled models as files: a zip archive of arrays and a description in JSON.

Equal content gives equal bytes. Nothing is compressed and no bytes are shared, so no file can claim
to be more than it is. A checksum over everything stands in the archive's comment.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from systola.compiler.printable import printable
from systola.runtime.plain_archive import check_members
from systola.runtime.plain_data import DTYPES, DataError, Packer, Unpacker

FORMAT = "systola program"
VERSION = 6
"""Version of the format: it rises if the fields of a class or the meaning of an array change."""

TRAINED = b"about.npy"
"""Name of the first member of an archive that systola.training has saved."""

_MAGIC = b"PK\x03\x04"
_NAME = 30
"""Byte offset in an archive at which the name of its first member begins."""
_DESCRIPTION = "program.json"
_TIME = (1980, 1, 1, 0, 0, 0)
_DAMAGED = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
)
"""Errors of zipfile and json for a file that is no archive, or has no description."""

T = TypeVar("T")


class ProgramFileError(ValueError):
    """An error for a file that is no compiled model or is damaged, with the reason in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def is_program(content: bytes) -> bool:
    """Return whether a file with this content claims to be a compiled model."""
    return content.startswith(_MAGIC) and not is_trained(content)


def is_trained(content: bytes) -> bool:
    """Return whether the content claims to be a network that systola.training has saved."""
    return content.startswith(_MAGIC) and content[_NAME : _NAME + len(TRAINED)] == TRAINED


def write_program(item: object) -> bytes:
    """Return the content of a file that holds `item`, a dataclass that plain_data accepts."""
    packer = Packer()
    packed = packer.pack(item)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": [
            {"dtype": array.dtype.name, "shape": list(array.shape)} for array in packer.arrays
        ],
        "values": packer.shared,
        "program": packed,
    }
    text = json.dumps(description, allow_nan=False, separators=(",", ":"))
    members = {_DESCRIPTION: text.encode()}
    members |= {_array_name(number): each.tobytes() for number, each in enumerate(packer.arrays)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data)
        archive.comment = _checksum(members)
    return content.getvalue()


def read_program(kind: type[T], content: bytes) -> T:
    """Return the object of class `kind` from `content` that write_program has made.

    Raises ProgramFileError for any other content.
    """
    try:
        members, checksum = _members(content)
        if checksum != _checksum(members):
            raise ProgramFileError("the program file is damaged or cut short")
        description = json.loads(members[_DESCRIPTION])
        if not isinstance(description, dict):
            raise DataError("its description is no object")
        return _unpacked(kind, cast("dict[str, Any]", description), members)
    except ProgramFileError:
        raise
    except DataError as error:
        raise ProgramFileError(f"the program file is damaged: {error}") from None
    except _DAMAGED:
        raise ProgramFileError("not a compiled program, or damaged") from None


def _members(content: bytes) -> tuple[dict[str, bytes], bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_members(archive, len(content))
        if _DESCRIPTION not in archive.namelist():
            raise ProgramFileError("not a compiled program")
        if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
            raise ProgramFileError("the program file is damaged: it is compressed")
        return {name: archive.read(name) for name in archive.namelist()}, archive.comment


def _unpacked(kind: type[T], description: dict[str, Any], members: Mapping[str, bytes]) -> T:
    if description.get("format") != FORMAT:
        raise ProgramFileError("not a compiled program")
    if description.get("version") != VERSION:
        raise ProgramFileError(
            f"the program file has version {description.get('version')!r}, this is for version "
            f"{VERSION}: compile the model again"
        )
    if description.keys() != {"format", "version", "arrays", "values", "program"}:
        raise DataError("its description has other parts than it should")
    arrays = [
        _array(each, members[_array_name(number)])
        for number, each in enumerate(description["arrays"])
    ]
    return Unpacker(arrays, description["values"]).unpack(kind, description["program"])


def _array(description: dict[str, Any], content: bytes) -> NDArray[Any]:
    dtype, shape = description["dtype"], description["shape"]
    if dtype not in DTYPES or any(type(size) is not int or size < 0 for size in shape):
        raise DataError("an array is of no known type or shape")
    return np.frombuffer(content, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _array_name(number: int) -> str:
    return f"array{number}"


def _checksum(members: Mapping[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name, data in members.items():
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest().encode()
