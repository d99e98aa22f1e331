# SPDX-License-Identifier: Apache-2.0
"""Zip archives from anywhere: none takes more memory than its file can account for."""

from __future__ import annotations

import zipfile

_HEADER_BYTES = 30
"""Bytes before the name and the data of a member, at least."""
SMALL_BYTES = 1 << 28
"""Bytes that an archive may unpack to in any case."""
LARGEST_RATIO = 100
"""Bytes that an archive beyond SMALL_BYTES may unpack to for each byte of its file."""


def check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise BadZipFile unless the members of `archive`, a file of `size` bytes, can be believed.

    The members must have different names and lie one after the other in the file. If members shared
    bytes, a small file could claim any number of members. For the same reason bytes must not be
    compressed beyond all measure.
    """
    members = sorted(archive.infolist(), key=lambda each: each.header_offset)
    if len({each.filename for each in members}) < len(members):
        raise zipfile.BadZipFile("two of its parts have the same name")
    end = 0
    for member in members:
        if member.header_offset < end:
            raise zipfile.BadZipFile("its parts overlap")
        end = member.header_offset + _HEADER_BYTES + member.compress_size
    if end > size:
        raise zipfile.BadZipFile("its parts do not lie in the file")
    unpacked = sum(each.file_size for each in members)
    if unpacked > max(SMALL_BYTES, LARGEST_RATIO * size):
        raise zipfile.BadZipFile(f"it claims to unpack to {unpacked:,} bytes from {size:,}")
