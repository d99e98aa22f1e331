# SPDX-License-Identifier: Apache-2.0
"""A serial port of this computer, through pyserial."""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

from systola.runtime.backend import UnavailableError

DEFAULT_BAUD = 1_000_000
SILENCE_SECONDS = 0.3
"""Seconds of silence after which no byte is expected: more than adapters and systems take."""
ANSWER_SECONDS = 1.0
"""Seconds until a whole answer must be there, apart from the time of its bytes on the line.

Bytes that keep coming do not extend this time.
"""


class SerialPort:
    """A Line on the serial port `name`, such as /dev/ttyUSB0: 8 data bits, no parity, one stop bit.

    Raises UnavailableError if pyserial is not installed or the port cannot be opened.
    """

    def __init__(self, name: str, baud: int = DEFAULT_BAUD) -> None:
        try:
            # pyserial is optional, and has no type information.
            serial: Any = import_module("serial")
        except ImportError:
            raise UnavailableError(
                "a serial port needs the Python package pyserial (pip install 'systola[serial]')"
            ) from None
        self._name = name
        self._byte_seconds = 10 / baud
        self._written = time.monotonic()
        try:
            self._port = serial.Serial(name, baud)
            self._port.reset_input_buffer()
        except (OSError, ValueError) as error:  # SerialException is an OSError
            raise UnavailableError(f"cannot open serial port {name}: {_reason(error)}") from None

    @property
    def name(self) -> str:
        """Name of the port."""
        return self._name

    def write(self, content: bytes) -> None:
        """Send bytes, see Line. Raises UnavailableError if the port does not accept them."""
        try:
            self._port.write_timeout = ANSWER_SECONDS + len(content) * self._byte_seconds
            self._port.write(content)
        except OSError as error:  # a time-out is an OSError, too
            raise UnavailableError(f"serial port {self._name}: {_reason(error)}") from None
        self._written = time.monotonic()

    def read(self, awaited: int) -> bytes:
        """Return the bytes that have come, see Line. Raises UnavailableError if the port fails."""
        line_seconds = awaited * self._byte_seconds
        left = self._written + ANSWER_SECONDS + line_seconds - time.monotonic()
        if left <= 0:
            return b""
        try:
            self._port.timeout = min(left, SILENCE_SECONDS + line_seconds)
            first = self._port.read(1)
            return first + self._port.read(self._port.in_waiting) if first else b""
        except OSError as error:
            raise UnavailableError(f"serial port {self._name}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the reason for an error of the system or of pyserial, in one line."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else " ".join(str(error).split()).lower()
