# SPDX-License-Identifier: Apache-2.0
"""What goes over the serial line between the host and a board: frames, requests, replies.

Line: 8 data bits, least significant first, no parity, one stop bit.

Frame: END, the content and its CRC-32 (that of zlib, little endian), END. An END within is sent as
ESCAPE, ESCAPED_END; an ESCAPE as ESCAPE, ESCAPED_ESCAPE. Whatever stands between two ENDs and has
no right CRC is dropped without an answer: each END starts afresh, so noise, a broken frame or one
that was never finished cannot hold up the next.

Request: operation, sequence number (a byte each), number of 32-bit words (2 bytes), byte address (4
bytes, a multiple of 4), and for writes the words; all little endian. Reply: status, sequence number
of the request (a byte each), number of words that follow (2 bytes), and for reads the words. There
is one request at a time.

A host that gets no reply sends the same request again. Reads do no harm; a write with the sequence
number of the last request that was carried out is answered again and not carried out again. So a
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
"""What the first word of the board reads: 'TSB1', version 1 of this protocol."""


class Operation(IntEnum):
    """What is asked for."""

    READ_MEMORY = 0
    WRITE_MEMORY = 1
    READ_REGISTERS = 2
    WRITE_REGISTERS = 3
    READ_BOARD = 4
    """The words of BoardWord."""

    @property
    def is_write(self) -> bool:
        """Whether words go to the board."""
        return bool(self & 1)


class Status(IntEnum):
    """What became of a request."""

    DONE = 0
    REFUSED = 1
    """An unknown operation, too many words or none, or another number than it carries."""
    BUS_ERROR = 2
    """An address answered with an error; words before it may have been written."""


class BoardWord(IntEnum):
    """Byte address of what a board says about itself."""

    IDENTITY = 0
    MEMORY_BYTES = 4
    """Size of the memory, which starts at bus address 0."""
    CLOCK_HZ = 8
    CONFIGURATION = 12
    """`configuration_word` of the machine."""


def configuration_word(config: Config) -> int:
    """32 bits that differ between machines that run different programs; the name does not count."""
    values = [(field.name, getattr(config, field.name)) for field in fields(config)]
    return zlib.crc32(repr(values[1:]).encode())


def encode_frame(content: bytes) -> bytes:
    """The bytes on the line for a request or a reply."""
    checked = content + zlib.crc32(content).to_bytes(CRC_BYTES, "little")
    escaped = checked.replace(bytes([ESCAPE]), bytes([ESCAPE, ESCAPED_ESCAPE]))
    escaped = escaped.replace(bytes([END]), bytes([ESCAPE, ESCAPED_END]))
    return bytes([END]) + escaped + bytes([END])


def decode_frame(between: bytes) -> bytes | None:
    """The content of what stood between two ENDs; None where it is no whole frame."""
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
