# SPDX-License-Identifier: Apache-2.0
"""Tells when instructions of the links have waited for too long."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import LinkPart
from systola.arch.registers import BUS_TIMEOUT_BITS


class LinkWatchdog(wiring.Component):
    """`expired` is up for a cycle when the parts that `waits` names, one at least in each of them,
    have waited for `limit` cycles in which nothing in the pod was `alive`, LATENCY cycles after the
    last of them; never with a `limit` of 0. `parts` then tells which. `limit` stays while a program
    runs."""

    LATENCY = 2

    def __init__(self) -> None:
        super().__init__(
            {
                "limit": In(BUS_TIMEOUT_BITS),
                "waits": In(len(LinkPart)),
                "alive": In(1),
                "expired": Out(1),
                "parts": Out(len(LinkPart)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counts = Signal()
        counted = Signal.like(self.parts)
        left = Signal(BUS_TIMEOUT_BITS)
        m.d.sync += [
            counted.eq(self.waits),
            self.parts.eq(counted),
            counts.eq(self.waits.any() & ~self.alive & (self.limit != 0)),
            self.expired.eq(counts & (left == 1)),
            left.eq(left - 1),
        ]
        with m.If(~counts):
            m.d.sync += left.eq(self.limit)
        return m
