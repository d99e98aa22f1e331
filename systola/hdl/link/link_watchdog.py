# SPDX-License-Identifier: Apache-2.0
"""A watchdog for instructions of the links that wait for too long."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import LinkPart
from systola.arch.registers import BUS_TIMEOUT_BITS
from systola.hdl.parts.promise import promised


class LinkWatchdog(wiring.Component):
    """A watchdog that reports parts of the links that have waited for too long.

    | port      | meaning |
    |---|---|
    | `limit`   | cycles until the watchdog expires, 0 for never; stays while a program runs |
    | `waits`   | a bit for each LinkPart: the part waits |
    | `alive`   | something in the pod has moved |
    | `expired` | the limit is reached; high for one cycle |
    | `parts`   | the parts that wait, valid with `expired` |

    `expired` comes after `limit` consecutive cycles in which some part waited and nothing in the
    pod was `alive`. It comes LATENCY cycles after the last of these cycles.
    """

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
        cycle_counts = Signal()
        parts_counted = Signal.like(self.parts)
        cycles_remaining = Signal(BUS_TIMEOUT_BITS)
        m.d.sync += [
            parts_counted.eq(self.waits),
            self.parts.eq(parts_counted),
            cycle_counts.eq(self.waits.any() & ~self.alive & (self.limit != 0)),
            self.expired.eq(cycle_counts & (cycles_remaining == 1)),
            cycles_remaining.eq(cycles_remaining - 1),
        ]
        with m.If(~cycle_counts):
            m.d.sync += cycles_remaining.eq(self.limit)
        promised(m, platform, ~self.expired | self.parts.any(), "no part has waited too long")
        message = "the watchdog of the links expires twice"
        promised(m, platform, ~self.expired | (cycles_remaining != 1), message)
        return m
