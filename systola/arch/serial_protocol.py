# SPDX-License-Identifier: Apache-2.0
"""Frames, requests and replies on the serial line between the host and a board.

Line: 8 data bits, least significant first, no parity, one stop bit.

Frame: END, the content and its CRC-32 (as in zlib, little endian), END. Inside a frame an END is
sent as ESCAPE, ESCAPED_END, and an ESCAPE as ESCAPE, ESCAPED_ESCAPE. Bytes between two ENDs are
dropped without an answer if their CRC is wrong. Each END starts a new frame, so noise, or a frame
that is broken or unfinished, cannot hold up the next frame.

Request: operation, sequence number (a byte each), number of 32-bit words (2 bytes), byte address (4
bytes, a multiple of 4), and for writes the words; all little endian. Reply: status, sequence number
of the request (a byte each), number of words that follow (2 bytes), and for reads the words. There
is one request at a time.

A host that gets no reply sends the same request again. A repeated read does no harm. A write with
the sequence number of the last request carried out is answered, but not carried out again. So a
host counts its requests, modulo 256, and begins with a read.
"""

from __future__ import annotations

import zlib
from dataclasses import fields
from enum import IntEnum

from systola.arch.config import Config

END = 0xC0
ESCAPE = 0xDB
ESCAPED_END = 0xDC
ESCAPED_ESCAPE = 0xDD

WORD_BYTES = 4
REQUEST_HEADER_BYTES = 8
REPLY_HEADER_BYTES = 4
CRC_BYTES = 4
MAX_WORDS = 256
"""Words in one request."""

IDENTITY = 0x3142_5354
"""Content of the first word of the board: 'TSB1', version 1 of this protocol."""


class Operation(IntEnum):
    """An operation that a request asks for."""

    READ_MEMORY = 0
    WRITE_MEMORY = 1
    READ_REGISTERS = 2
    WRITE_REGISTERS = 3
    READ_BOARD = 4
    """Read words about the board itself, at the addresses of BoardWord."""

    @property
    def is_write(self) -> bool:
        """Return whether the request writes words on the board."""
        return bool(self & 1)


class Status(IntEnum):
    """The outcome of a request, as the reply names it."""

    DONE = 0
    REFUSED = 1
    """The operation is unknown, or the number of words is 0, too large, or not the number that
    came."""
    BUS_ERROR = 2
    """An address answered with an error; words before it may have been written."""


class BoardWord(IntEnum):
    """Byte addresses of words about the board itself."""

    IDENTITY = 0
    MEMORY_BYTES = 4
    """Size in bytes of the memory, which starts at bus address 0."""
    CLOCK_HZ = 8
    CONFIGURATION = 12
    """The `configuration_word` of the machine."""


def configuration_word(config: Config) -> int:
    """Return 32 bits that differ between machines that run different programs.

    They depend on all fields of the configuration but its name.
    """
    values = [(field.name, getattr(config, field.name)) for field in fields(config)]
    return zlib.crc32(repr(values[1:]).encode())


def encode_frame(content: bytes) -> bytes:
    """Return the bytes on the line for a request or a reply."""
    checked = content + zlib.crc32(content).to_bytes(CRC_BYTES, "little")
    escaped = checked.replace(bytes([ESCAPE]), bytes([ESCAPE, ESCAPED_ESCAPE]))
    escaped = escaped.replace(bytes([END]), bytes([ESCAPE, ESCAPED_END]))
    return bytes([END]) + escaped + bytes([END])


def decode_frame(between: bytes) -> bytes | None:
    """Return the content of the frame in the bytes between two ENDs; None if the frame is not
    whole.
    """
    parts = between.split(bytes([ESCAPE]))
    whole = bytearray(parts[0])
    for part in parts[1:]:
        if not part or part[0] not in (ESCAPED_END, ESCAPED_ESCAPE):
            return None
        whole.append(END if part[0] == ESCAPED_END else ESCAPE)
        whole += part[1:]
    if len(whole) < CRC_BYTES:
        return None
    content, crc = bytes(whole[:-CRC_BYTES]), whole[-CRC_BYTES:]
    return content if zlib.crc32(content) == int.from_bytes(crc, "little") else None
