# SPDX-License-Identifier: Apache-2.0
"""Tells when a memory has not answered for too long."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.registers import BUS_TIMEOUT_BITS, BusPort
from systola.hdl.transfers.host_writer import WRITES_IN_FLIGHT


class Handshakes(data.StructLayout):
    """The channels of a port: `offered`, one of them is valid and not ready; `taken`, one of them
    is both."""

    def __init__(self) -> None:
        super().__init__({"offered": 1, "taken": 1})


def handshakes(bus: wiring.PureInterface, *channels: str) -> Value:
    """The Handshakes of some channels of a port, by the prefixes of their members."""
    pairs = [(getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")) for name in channels]
    return Cat(
        Cat(valid & ~ready for valid, ready in pairs).any(),
        Cat(valid & ready for valid, ready in pairs).any(),
    )


class BusWatchdog(wiring.Component):
    """`to_memory`: the channels on which each BusPort sends addresses and data; `from_memory`:
    those on which it gets beats and answers. `quiet`: nothing is under way on the port, of which
    only reads are looked at; `written`: the last beat of a write is taken.

    A memory owes something when it does not take what is sent to it, and when a read is under way
    or a whole burst is written and nothing comes back. `expired` is up for a cycle when something
    has been owed for `limit` cycles in which nothing moved on any port, LATENCY cycles after the
    last of them; never with a `limit` of 0. `ports` then tells who waits. `limit` stays while a
    program runs.
    """

    LATENCY = 3

    def __init__(self) -> None:
        super().__init__(
            {
                "limit": In(BUS_TIMEOUT_BITS),
                "to_memory": In(data.ArrayLayout(Handshakes(), len(BusPort))),
                "from_memory": In(data.ArrayLayout(Handshakes(), len(BusPort))),
                "quiet": In(BusPort),
                "written": In(1),
                "expired": Out(1),
                "ports": Out(len(BusPort)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        unanswered = Signal(range(WRITES_IN_FLIGHT + 1))
        writes = exact_log2(BusPort.HOST_WRITE)
        m.d.sync += unanswered.eq(unanswered + self.written - self.from_memory[writes].taken)

        moves = Signal()
        owing = Signal(len(BusPort))
        for number in range(len(BusPort)):
            sent, back = self.to_memory[number], self.from_memory[number]
            expects = ~self.quiet[number] if number != writes else unanswered != 0
            m.d.sync += owing[number].eq(sent.offered | (expects & ~back.offered))
        m.d.sync += moves.eq(
            Cat(
                channels[n].taken
                for channels in (self.to_memory, self.from_memory)
                for n in range(len(BusPort))
            ).any()
        )
        counts = Signal()
        counted = Signal(len(BusPort))
        left = Signal(BUS_TIMEOUT_BITS)
        m.d.sync += [
            counted.eq(owing),
            self.ports.eq(counted),
            counts.eq(owing.any() & ~moves & (self.limit != 0)),
            self.expired.eq(counts & (left == 1)),
            left.eq(left - 1),
        ]
        with m.If(~counts):
            m.d.sync += left.eq(self.limit)
        return m
