# SPDX-License-Identifier: Apache-2.0
"""Tests of .npz files that have a wrong bit, are cut short or encrypted, or have false headers."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from systola.runtime.npz import Npz, NpzError

ARRAYS = {"x": np.arange(6, dtype=np.int16).reshape(2, 3), "y": np.array(["a", "bc"])}


def archive(*, compress: bool = False) -> bytes:
    content = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(content, **ARRAYS)
    return content.getvalue()


def read_all(content: bytes) -> dict[str, np.ndarray]:
    found = Npz(content)
    return {name: found.read(name) for name in found.names}


def header(shape: tuple[int, ...]) -> bytes:
    content = io.BytesIO()
    about = {"descr": "<i2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, about)
    return content.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_any_bit(compress: bool) -> None:
    """Check a .npz file with one flipped bit, for each bit in turn.

    The file is refused, or all values of its arrays are right. Only the arrays' names may differ.
    """
    whole = archive(compress=compress)
    assert list(read_all(whole)) == list(ARRAYS)
    refused = 0
    for place in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            try:
                found = read_all(bytes(content))
            except NpzError:
                refused += 1
                continue
            for array, wanted in zip(found.values(), ARRAYS.values(), strict=True):
                assert array.dtype == wanted.dtype and np.array_equal(array, wanted)
    assert refused > 4 * len(whole)


def test_any_length() -> None:
    whole = archive()
    for size in range(len(whole)):
        with pytest.raises(NpzError):
            read_all(whole[:size])


def test_a_password() -> None:
    content = bytearray(archive())
    content[content.find(b"PK\x01\x02") + 8] |= 1
    local = content.find(b"PK\x03\x04")
    content[local + 6] |= 1
    with pytest.raises(NpzError, match="encrypted"):
        read_all(bytes(content))


def test_claims() -> None:
    """Check that .npz files with false or forbidden headers are refused.

    Examples are a shape larger than the data, a name twice, Python objects, and a member that is
    too long.
    """
    for shape in ((1 << 40, 3), (2, 4), (1,), (0,), (1 << 70,)):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as file:
            file.writestr("x.npy", header(shape) + bytes(12))
        with pytest.raises(
            NpzError,
            match=f"it has 12 bytes of numbers, not {np.prod(shape) * 2}"
            if shape[0] < 1 << 60
            else "it has 12",
        ):
            read_all(content.getvalue())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("x.npy", header((0,)))
        file.writestr("x", header((0,)))
    with pytest.raises(NpzError, match="two arrays have the same name"):
        Npz(content.getvalue())
    content = io.BytesIO()
    np.savez(content, x=np.array([{}], object))
    with pytest.raises(NpzError, match="Object arrays"):
        read_all(content.getvalue())
    whole = bytearray(archive())
    place = whole.find(b"PK\x01\x02")
    whole[place + 24 : place + 28] = struct.pack("<I", 1 << 30)
    with pytest.raises(NpzError):
        read_all(bytes(whole))
