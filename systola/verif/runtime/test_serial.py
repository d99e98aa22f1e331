# SPDX-License-Identifier: Apache-2.0
"""Tests of serial ports without a working board: an error of one line, in bounded time.

The ports are pseudo terminals, and a thread of the test answers.
"""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import threading
import time
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.arch.registers import IDENTITY, VERSION, Control, Register, Status
from systola.arch.serial_protocol import IDENTITY as BOARD_IDENTITY
from systola.arch.serial_protocol import (
    BoardWord,
    Operation,
    configuration_word,
    decode_frame,
    encode_frame,
)
from systola.runtime import serial_backend, serial_port
from systola.runtime.backend import UnavailableError
from systola.runtime.serial_backend import SerialBackend
from systola.runtime.serial_port import SerialPort
from systola.verif.cli.test_errors import run
from systola.verif.kit.images import make_image

CONFIG = preset("tiny")
NMEA = b"$GPGGA,092750.000,5321.6802,N,00630.3372,W,1,8,1.03,61.7,M,55.2,M,,*76\r\n"
IMAGE = make_image([encode(Opcode.HALT)], host=np.zeros(4096, np.uint8))

Far = Callable[[bytes], bytes]
"""Type of a device at the other end of a serial port (far end), which is a function.

The function takes the bytes that have arrived at the device, and returns the bytes to send.
"""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_port, "SILENCE_SECONDS", 0.02)
    monkeypatch.setattr(serial_port, "ANSWER_SECONDS", 0.05)


@contextmanager
def port_to(far: Far) -> Generator[str]:
    """Yield the name of a pseudo terminal, as a serial port, with device `far` at its other end."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            ready, _, _ = select.select([master], [], [], 0.001)
            if answer := far(os.read(master, 4096) if ready else b""):
                os.write(master, answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield os.ttyname(slave)
    finally:
        ended.set()
        thread.join()
        os.close(master)
        os.close(slave)


def receiver() -> Far:
    """Return a device that ignores its input, and sends a byte of GPS text at each call."""
    sentence = bytearray(NMEA)

    def far(came: bytes) -> bytes:
        sentence.extend(sentence[:1])
        return bytes([sentence.pop(0)])

    return far


class Board:
    """A device that answers like a board, but runs no programs.

    STATUS reads as `at_rest` before START, and as `started` after it. `resets` counts the writes of
    SOFT_RESET, which have no other effect.
    """

    def __init__(self, *, at_rest: Status, started: Status) -> None:
        self._pending = b""
        self._status, self._started = at_rest, started
        self.resets = 0

    def __call__(self, came: bytes) -> bytes:
        *frames, self._pending = (self._pending + came).split(b"\xc0")
        requests = filter(None, map(decode_frame, frames))
        return b"".join(map(encode_frame, map(self._answer, requests)))

    def _answer(self, request: bytes) -> bytes:
        operation, sequence, count, address = struct.unpack_from("<BBHI", request)
        words: list[int] = []
        if operation == Operation.WRITE_REGISTERS and address == Register.CONTROL:
            (value,) = struct.unpack_from("<I", request, 8)
            if value == Control.START:
                self._status = self._started
            self.resets += value == Control.SOFT_RESET
        elif operation == Operation.READ_BOARD:
            known = {
                BoardWord.IDENTITY: BOARD_IDENTITY,
                BoardWord.MEMORY_BYTES: 1 << 16,
                BoardWord.CLOCK_HZ: 25_000_000,
                BoardWord.CONFIGURATION: configuration_word(CONFIG),
            }
            words = [known[BoardWord(address)]]
        elif operation == Operation.READ_REGISTERS:
            registers = {
                Register.ID: IDENTITY,
                Register.VERSION: VERSION,
                Register.STATUS: self._status,
            }
            words = [registers.get(address + 4 * n, 0) for n in range(count)]
        elif operation == Operation.READ_MEMORY:
            words = [0] * count
        return struct.pack(f"<BBH{len(words)}I", 0, sequence, len(words), *words)


def test_a_board() -> None:
    """Check that a program on the simulated board ends without a fault."""
    with port_to(Board(at_rest=Status(0), started=Status.DONE)) as name:
        backend = SerialBackend(CONFIG, SerialPort(name))
        assert backend.run(IMAGE).fault is None
        assert backend.programs == 1


@pytest.mark.parametrize(
    ("far", "came"),
    [
        (receiver(), r"only [\d,]+ bytes that are no reply"),
        # This device sends all bytes back, as a cable from the port to itself would.
        (lambda came: came, r"only [\d,]+ bytes that are no reply"),
        (lambda came: b"", "not a byte"),
    ],
    ids=["receiver", "echo", "silence"],
)
def test_no_board(far: Far, came: str, capsys: pytest.CaptureFixture[str]) -> None:
    with port_to(far) as name:
        began = time.monotonic()
        status, out, err = run(f"gemm 4 4 4 --preset tiny --backend serial --port {name}", capsys)
    # Eight attempts of 0.05 s each, with the transfer of the bytes, take less than 5 s.
    assert time.monotonic() - began < 5
    assert (status, out) == (2, "")
    assert err.startswith(f"tpu: error: no answer from the board on {name} in 8 attempts, ")
    assert re.search(came, err)
    assert err.count("\n") == 1


def test_a_port_that_takes_nothing() -> None:
    """Check that a write to a serial port times out if the device does not read its bytes."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        port = SerialPort(os.ttyname(slave))
        with pytest.raises(UnavailableError, match="write timeout"):
            port.write(bytes(1 << 20))
    finally:
        os.close(master)
        os.close(slave)


def test_always_busy(capsys: pytest.CaptureFixture[str]) -> None:
    with port_to(Board(at_rest=Status(0), started=Status.BUSY)) as name:
        status, out, err = run(
            f"gemm 4 4 4 --preset tiny --backend serial --port {name} --program-seconds 0.05",
            capsys,
        )
    assert (status, out) == (2, "")
    assert err == (
        f"tpu: error: the program on {name} has not ended after 0.05 s and 0 cycles "
        "(--program-seconds N waits longer)\n"
    )


def test_always_waiting() -> None:
    """Check that a program with a Synchronize_Host that never ends is stopped by the time limit.

    The host lets the program go on each time, but STATUS always shows that it waits.
    """
    board = Board(at_rest=Status(0), started=Status.BUSY | Status.WAITING)
    with port_to(board) as name:
        backend = SerialBackend(CONFIG, SerialPort(name), program_seconds=0.05)
        with pytest.raises(UnavailableError, match=r"has not ended after 0\.05 s"):
            backend.run(IMAGE)


def test_busy_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_backend, "RESET_SECONDS", 0.05)
    board = Board(at_rest=Status.BUSY, started=Status.DONE)
    with port_to(board) as name:
        backend = SerialBackend(CONFIG, SerialPort(name))
        with pytest.raises(UnavailableError, match="stays busy after a reset"):
            backend.run(IMAGE)
    assert board.resets == 1
