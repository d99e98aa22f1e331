# SPDX-License-Identifier: Apache-2.0
"""Archives that claim more than their file has, and the commands that read them."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from systola.runtime import program_file
from systola.runtime.plain_archive import check_members
from systola.runtime.program_file import ProgramFileError, read_program

LOCAL, DIRECTORY, END = "<IHHHHHIIIHH", "<IHHHHHHIIIHHHHHII", "<IHHHHIIH"
"""The three records of a zip file, as its specification (APPNOTE.TXT) has them."""


def zip_file(members: Sequence[tuple[str, int, bytes]], data: bytes) -> bytes:
    """A zip file of stored members: names, places of their headers in `data`, and contents."""
    directory = b"".join(
        struct.pack(
            DIRECTORY,
            *(0x02014B50, 20, 20, 0, 0, 0, 33, zlib.crc32(content)),
            *(len(content), len(content), len(name), 0, 0, 0, 0, 0, place),
        )
        + name.encode()
        for name, place, content in members
    )
    count = len(members)
    end = struct.pack(END, 0x06054B50, 0, 0, count, count, len(directory), len(data), 0)
    return data + directory + end


def local_header(name: str, content: bytes) -> bytes:
    return (
        struct.pack(
            LOCAL,
            *(0x04034B50, 20, 0, 0, 0, 33, zlib.crc32(content)),
            *(len(content), len(content), len(name), 0),
        )
        + name.encode()
    )


def overlapping(count: int, size: int) -> bytes:
    """Members of which each begins with the header of the next one and ends with its bytes."""
    data = bytes(size)
    found: list[tuple[str, bytes]] = []
    for number in reversed(range(count)):
        name = f"array{number}" if number else "program.json"
        found.insert(0, (name, data))
        data = local_header(name, data) + data
    places = [len(data) - len(content) - 30 - len(name) for name, content in found]
    members = [(name, at, content) for (name, content), at in zip(found, places, strict=True)]
    return zip_file(members, data)


def check(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_members(archive, len(content))


def test_overlapping_members_are_an_archive_to_others() -> None:
    """The file of the next tests is one that Python's own module reads."""
    content = overlapping(4, 1000)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = [len(archive.read(name)) for name in archive.namelist()]
    assert sizes[-1] == 1000
    assert sum(sizes) > 2 * len(content)


def test_a_small_file_takes_little_memory() -> None:
    """A hundred kilobytes that claim ten megabytes are refused before they take them."""
    content = overlapping(100, 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(ProgramFileError, match="not a compiled program, or damaged"):
            read_program(object, content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_members() -> None:
    """What numpy and this project write is taken."""
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=np.zeros((3, 4)), y=np.arange(5), empty=np.zeros(0))
        check(file.getvalue())
    check(zip_file([], b""))


@pytest.mark.parametrize("count", [2, 3])
def test_overlapping_members(count: int) -> None:
    with pytest.raises(zipfile.BadZipFile, match="its parts overlap"):
        check(overlapping(count, 100))


def test_members_of_one_name() -> None:
    part = local_header("a", b"1") + b"1"
    with pytest.raises(zipfile.BadZipFile, match="the same name"):
        check(zip_file([("a", 0, b"1"), ("a", len(part), b"1")], 2 * part))


def test_a_member_outside_the_file() -> None:
    part = local_header("a", bytes(1000)) + b"1"
    with pytest.raises(zipfile.BadZipFile, match="do not lie in the file"):
        check(zip_file([("a", 0, bytes(1000))], part))


def compressed(unpacked: int) -> bytes:
    """A deflated member of so many zeros, as an array of a .npz file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            for _ in range(unpacked >> 20):
                member.write(bytes(1 << 20))
    return file.getvalue()


def test_compressed_beyond_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros shrink a thousandfold: a little of that is data, a lot of it is an attack."""
    monkeypatch.setattr("systola.runtime.plain_archive.SMALL_BYTES", 8 << 20)
    check(compressed(8 << 20))
    with pytest.raises(zipfile.BadZipFile, match=r"claims to unpack to 9,437,184 bytes from \d"):
        check(compressed(9 << 20))


def test_the_checksum_is_not_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of overlapping members whose checksum is right, nothing is read either."""
    monkeypatch.setattr(program_file, "_checksum", lambda members: b"")
    with pytest.raises(ProgramFileError, match="not a compiled program, or damaged"):
        read_program(object, overlapping(3, 100))
