# SPDX-License-Identifier: Apache-2.0
"""The design on a board: clock, pins, and BoardTop."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import io

from systola.arch.config import Config, ConfigError
from systola.boards.board_top import BoardTop
from systola.boards.clock import PllSettings, add_clock
from systola.boards.uart_receiver import MIN_DIVISOR

_MAX_BAUD_ERROR = 0.015
"""Largest error of the baud rate, as a fraction.

A serial line works with an error of a few per cent in total, and the other end has an error, too.
"""


def uart_divisor(clock: PllSettings, baud: int) -> int:
    """Return the clock cycles of one bit on the serial line.

    Raises ConfigError for a baud rate that the clock cannot make.
    """
    hz = round(clock.hz)
    divisor = round(hz / baud)
    if divisor < MIN_DIVISOR or abs(hz / divisor / baud - 1) > _MAX_BAUD_ERROR:
        raise ConfigError(
            f"a clock of {hz / 1e6:g} MHz makes no {baud} baud; it makes up to "
            f"{hz // MIN_DIVISOR}, the better the lower"
        )
    return divisor


class BoardDesign(Elaboratable):
    """A design for an Amaranth platform that has a `uart`. A bit takes `divisor` cycles."""

    def __init__(self, *, config: Config, memory_bytes: int, divisor: int, clock: PllSettings):
        self._clock = clock
        self._top = BoardTop(
            config=config, memory_bytes=memory_bytes, divisor=divisor, clock_hz=round(clock.hz)
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        add_clock(m, platform, self._clock)
        m.submodules.top = top = self._top
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [top.rx.eq(rx.i), tx.o.eq(top.tx)]
        return m
