# SPDX-License-Identifier: Apache-2.0
"""Requests to a board over a serial line, repeated until they are answered."""

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
"""Times that a request is sent before the board counts as gone."""
_NOISE_BYTES = 8 * MAX_WORDS * WORD_BYTES
"""So much without a reply in it is no answer, even if more is coming."""


class Line(Protocol):
    """A serial line."""

    @property
    def name(self) -> str:
        """What the user knows it by."""
        ...

    def write(self, content: bytes) -> None:
        """Sends bytes."""
        ...

    def read(self, awaited: int) -> bytes:
        """Returns what has come, at least a byte.

        Returns nothing where the line was silent for too long, or where the answer to the last
        write takes too long although bytes come. `awaited` is the number of bytes that the request
        and its answer have on the line, for which there must be time.
        """
        ...


class SerialLink:
    """Carries out requests on the board at the other end of `line`.

    A request without a whole reply is sent again, see arch/serial_protocol.py. `moved` is called
    with the bytes of memory transferred so far. Each method raises UnavailableError where there is
    no answer at all, and BackendError where the board refuses.
    """

    def __init__(self, line: Line, *, moved: Callable[[int], None] | None = None) -> None:
        self._line = line
        self._moved = moved
        self._bytes = 0
        self._sequence = random.randrange(256)

    def read_board(self, address: int) -> int:
        """A word of what the board says about itself."""
        return self._read(Operation.READ_BOARD, address, 1)[0]

    def read_registers(self, offset: int, count: int) -> tuple[int, ...]:
        """Registers of the machine, from byte `offset` on."""
        return self._read(Operation.READ_REGISTERS, offset, count)

    def write_register(self, offset: int, value: int) -> None:
        """Writes a register of the machine."""
        self._write(Operation.WRITE_REGISTERS, offset, value.to_bytes(WORD_BYTES, "little"))

    def read_memory(self, address: int, size: int) -> bytes:
        """Content of the memory; `address` and `size` in whole words."""
        parts: list[bytes] = []
        for start in range(address, address + size, MAX_WORDS * WORD_BYTES):
            count = min(MAX_WORDS, (address + size - start) // WORD_BYTES)
            words = self._read(Operation.READ_MEMORY, start, count)
            parts.append(struct.pack(f"<{count}I", *words))
            self._count(len(parts[-1]))
        return b"".join(parts)

    def write_memory(self, address: int, content: bytes) -> None:
        """Writes whole words to the memory."""
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
        """The words of the reply to a request."""
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
        """Returns the reply to the request under way, or None, and how many bytes came.

        Replies to requests before that one are dropped.
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
