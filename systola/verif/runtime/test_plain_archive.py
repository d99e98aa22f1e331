# SPDX-License-Identifier: Apache-2.0
"""Tests that zip archives are refused if their members claim more bytes than the file has."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.runtime import program_file
from systola.runtime.plain_archive import check_members
from systola.runtime.program_file import ProgramFileError, read_program
from systola.verif.cli.test_errors import MODEL, run

LOCAL, DIRECTORY, END = "<IHHHHHIIIHH", "<IHHHHHHIIIHHHHHII", "<IHHHHIIH"
"""Formats, for module struct, of a zip file's three kinds of headers (APPNOTE.TXT)."""


def zip_file(members: Sequence[tuple[str, int, bytes]], data: bytes) -> bytes:
    """Return a zip file of uncompressed members: `data`, and a directory that lists the members.

    Each member has a name, the offset of its header in `data`, and its content.
    """
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
    """Return a zip file of `count` members that overlap: each contains all members after it.

    A member's content is the header of the next member, followed by the next member's content.
    """
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
    """Check that the file is right but for its overlapping members.

    Python's module zipfile reads such a file, or refuses it for this reason: versions from 2024 on
    do. The other tests need a file that nothing else is wrong with.
    """
    content = overlapping(4, 1000)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = [len(archive.read(name)) for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        refusal = str(error)
    else:
        refusal = "Overlapped"
        assert sizes[-1] == 1000
        assert sum(sizes) > 2 * len(content)
    assert refusal.startswith("Overlapped")


def test_a_small_file_takes_little_memory() -> None:
    """Check a file of 100 kB with members that claim ten megabytes.

    The file is refused before memory for the members is allocated.
    """
    content = overlapping(100, 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(ProgramFileError, match="not a compiled program, or damaged"):
            read_program(object, content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_members() -> None:
    """Check that .npz files from numpy, and a zip file without members, are accepted."""
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
    """Return a compressed .npz file of two arrays, each with `unpacked` bytes of zeros.

    The arrays have names that commands of `tpu` expect.
    """
    file = io.BytesIO()
    zeros = np.zeros(unpacked, np.int8)
    np.savez_compressed(file, x=zeros, about=zeros)
    return file.getvalue()


def test_compressed_beyond_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a file that would unpack to many times its size is refused.

    If the unpacked size is below SMALL_BYTES, the file is accepted.
    """
    monkeypatch.setattr("systola.runtime.plain_archive.SMALL_BYTES", 8 << 20)
    check(compressed(3 << 20))
    with pytest.raises(zipfile.BadZipFile, match=r"claims to unpack to 8,388,864 bytes from \d"):
        check(compressed(4 << 20))  # 8 MiB, and a header of 128 bytes for each array


@pytest.mark.parametrize(
    "command",
    [
        "run m.tflite --input bomb.npz --output y.npz --backend iss",
        "train 64,10 --data bomb.npz",
        "train bomb.npz --data x.npz",
    ],
)
def test_commands(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that each command that reads a .npz file refuses one that would unpack to 128 MiB.

    The command does so before it allocates the memory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("systola.runtime.plain_archive.SMALL_BYTES", 8 << 20)
    Path("bomb.npz").write_bytes(compressed(64 << 20))
    Path("m.tflite").write_bytes((files("systola.models") / MODEL).read_bytes())
    np.savez("x.npz", x=np.zeros((2, 64)), y=np.zeros(2))
    tracemalloc.start()
    try:
        status, out, err = run(command, capsys)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "bomb.npz" in err


def test_the_checksum_is_not_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a file with overlapping members is refused even if its checksum is right."""
    monkeypatch.setattr(program_file, "_checksum", lambda members: b"")
    with pytest.raises(ProgramFileError, match="not a compiled program, or damaged"):
        read_program(object, overlapping(3, 100))
