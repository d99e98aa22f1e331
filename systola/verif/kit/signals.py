# SPDX-License-Identifier: Apache-2.0
"""Functions that read and drive the ports of a simulated module."""

from __future__ import annotations

from typing import Any


def read_bit(port: Any) -> bool:
    """Return the value of a 1-bit port. Raises ValueError if the bit is neither 0 nor 1."""
    return bool(port.value)


def read(port: Any) -> int:
    """Return the value of a port as a number. Raises ValueError if a bit is neither 0 nor 1."""
    return int(port.value)


class Driven:
    """A driver of an input port, which is faster because it writes the port only to change its
    value.
    """

    def __init__(self, port: Any):
        self._port = port
        self._value = 0
        port.value = 0

    def set(self, value: int) -> None:
        """Drive the port with `value` from the next delta cycle on."""
        if value != self._value:
            self._value = value
            self._port.value = value

    @property
    def value(self) -> int:
        """The value with which the port is driven."""
        return self._value
