# SPDX-License-Identifier: Apache-2.0
"""The requests to a board over a serial line, which are repeated until the board answers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Protocol

from systola.arch.serial_protocol import (
    CRC_BYTES,
    END,
    MAX_WORDS,
    REPLY_HEADER_BYTES,
    WORD_BYTES,
    Operation,
    Status,
    decode_frame,
    encode_frame,
)
from systola.runtime.backend import BackendError, UnavailableError

ATTEMPTS = 8
"""Number of times that a request is sent before the board counts as absent."""
_NOISE_BYTES = 8 * MAX_WORDS * WORD_BYTES
"""Bytes without a reply in them after which a request counts as unanswered, even if more come."""


class Line(Protocol):
    """A serial line that carries bytes in both directions."""

    @property
    def name(self) -> str:
        """The name by which the user knows the line."""
        ...

    def write(self, content: bytes) -> None:
        """Send bytes."""
        ...

    def read(self, awaited: int) -> bytes:
        """Return the bytes that have come, at least one.

        The result is empty if the line was silent for too long. It is empty, too, if the answer to
        the last write takes too long although bytes come. `awaited` is the number of bytes of the
        request and its answer, for which there must be time.
        """
        ...


class SerialLink:
    """A client that carries out requests on the board at the other end of `line`.

    A request without a whole reply is sent again, see arch/serial_protocol.py. `moved` is called
    with the bytes of memory transferred so far. Each method raises UnavailableError if there is no
    answer at all, and BackendError if the board refuses.
    """

    def __init__(self, line: Line, *, moved: Callable[[int], None] | None = None) -> None:
        self._line = line
        self._moved = moved
        self._bytes = 0
        self._sequence = random.randrange(256)

    def read_board(self, address: int) -> int:
        """Read a word of the board's description of itself."""
        return self._read(Operation.READ_BOARD, address, 1)[0]

    def read_registers(self, offset: int, count: int) -> tuple[int, ...]:
        """Read `count` registers of the machine, from byte `offset` on."""
        return self._read(Operation.READ_REGISTERS, offset, count)

    def write_register(self, offset: int, value: int) -> None:
        """Write a register of the machine."""
        self._write(Operation.WRITE_REGISTERS, offset, value.to_bytes(WORD_BYTES, "little"))

    def read_memory(self, address: int, size: int) -> bytes:
        """Read the memory; `address` and `size` are bytes in whole words."""
        parts: list[bytes] = []
        for start in range(address, address + size, MAX_WORDS * WORD_BYTES):
            count = min(MAX_WORDS, (address + size - start) // WORD_BYTES)
            words = self._read(Operation.READ_MEMORY, start, count)
            parts.append(struct.pack(f"<{count}I", *words))
            self._count(len(parts[-1]))
        return b"".join(parts)

    def write_memory(self, address: int, content: bytes) -> None:
        """Write whole words to the memory."""
        for start in range(0, len(content), MAX_WORDS * WORD_BYTES):
            part = content[start : start + MAX_WORDS * WORD_BYTES]
            self._write(Operation.WRITE_MEMORY, address + start, part)
            self._count(len(part))

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._moved:
            self._moved(self._bytes)

    def _read(self, operation: Operation, address: int, count: int) -> tuple[int, ...]:
        words = self._ask(operation, address, count, b"")
        return struct.unpack(f"<{count}I", words)

    def _write(self, operation: Operation, address: int, content: bytes) -> None:
        self._ask(operation, address, len(content) // WORD_BYTES, content)

    def _ask(self, operation: Operation, address: int, count: int, content: bytes) -> bytes:
        """Send a request, and return the words of the reply."""
        self._sequence = (self._sequence + 1) % 256
        header = struct.pack("<BBHI", operation, self._sequence, count, address)
        frame = encode_frame(header + content)
        expected = 0 if operation.is_write else count
        # Each byte of the reply may be escaped.
        awaited = len(frame) + 2 * (REPLY_HEADER_BYTES + expected * WORD_BYTES + CRC_BYTES + 1)
        noise = 0
        for _ in range(ATTEMPTS):
            self._line.write(frame)
            reply, total = self._await_reply(awaited, expected)
            if reply is None:
                noise += total
                continue
            status = reply[0]
            if status != Status.DONE:
                self._complain(status, operation, address)
            return reply[REPLY_HEADER_BYTES:]
        came = f"only {noise:,} bytes that are no reply" if noise else "not a byte"
        raise UnavailableError(
            f"no answer from the board on {self._line.name} in {ATTEMPTS} attempts, {came} "
            "(is it configured, and is the baud rate its own?)"
        )

    def _await_reply(self, awaited: int, expected: int) -> tuple[bytes | None, int]:
        """Return the reply to the request under way, or None, and the number of bytes that came.

        Replies to earlier requests are dropped.
        """
        pending = b""
        total = 0
        while total < _NOISE_BYTES:
            came = self._line.read(awaited)
            if not came:
                break
            total += len(came)
            *parts, pending = (pending + came).split(bytes([END]))
            for reply in filter(None, map(decode_frame, parts)):
                if len(reply) < REPLY_HEADER_BYTES:
                    continue
                status, sequence, count = struct.unpack_from("<BBH", reply)
                if sequence != self._sequence or len(reply) != REPLY_HEADER_BYTES + 4 * count:
                    continue
                if count == (expected if status == Status.DONE else 0):
                    return reply, total
        return None, total

    def _complain(self, status: int, operation: Operation, address: int) -> None:
        what = operation.name.lower().replace("_", " ")
        if status == Status.BUS_ERROR:
            raise BackendError(f"the board has nothing at address 0x{address:x} ({what})")
        raise BackendError(f"the board on {self._line.name} refuses to {what}: status {status}")
