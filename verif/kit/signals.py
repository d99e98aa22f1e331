# SPDX-License-Identifier: Apache-2.0
"""Reading and driving the ports of a simulated module."""

from __future__ import annotations

from typing import Any


def read_bit(port: Any) -> bool:
    """Value of a 1-bit port. Raises ValueError where it is neither 0 nor 1."""
    return bool(port.value)


def read(port: Any) -> int:
    """Value of a port as a number. Raises ValueError where a bit is neither 0 nor 1."""
    return int(port.value)


class Driven:
    """An input port of the module that is written only when its value changes: that is faster."""

    def __init__(self, port: Any):
        self._port = port
        self._value = 0
        port.value = 0

    def set(self, value: int) -> None:
        """Drives `value` from the next delta cycle on."""
        if value != self._value:
            self._value = value
            self._port.value = value

    @property
    def value(self) -> int:
        """What is being driven."""
        return self._value
