# SPDX-License-Identifier: Apache-2.0
"""A watchdog for memories that do not answer."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.registers import BUS_TIMEOUT_BITS, BusPort
from systola.hdl.parts.promise import promised
from systola.hdl.transfers.host_writer import WRITES_IN_FLIGHT


class Handshakes(data.StructLayout):
    """A summary of the handshakes on some AXI channels of a port.

    | field     | meaning |
    |---|---|
    | `offered` | a channel is valid and not ready |
    | `taken`   | a channel is valid and ready |
    """

    def __init__(self) -> None:
        super().__init__({"offered": 1, "taken": 1})


def handshakes(bus: wiring.PureInterface, *channels: str) -> Value:
    """Return the Handshakes of some channels of a port. "ar" names the channel of `arvalid`."""
    pairs = [(getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")) for name in channels]
    return Cat(
        Cat(valid & ~ready for valid, ready in pairs).any(),
        Cat(valid & ready for valid, ready in pairs).any(),
    )


class BusWatchdog(wiring.Component):
    """A watchdog that reports a memory that has not answered for too long.

    | port          | meaning |
    |---|---|
    | `limit`       | cycles until the watchdog expires, 0 for never; stays while a program runs |
    | `to_memory`   | for each BusPort: the channels on which the port sends addresses and data |
    | `from_memory` | for each BusPort: the channels on which the port gets beats and answers |
    | `quiet`       | for each BusPort: no transfer is under way; only used for reads |
    | `written`     | the last beat of a write is taken |
    | `expired`     | the limit is reached; high for one cycle |
    | `ports`       | the ports that wait, valid with `expired` |

    A memory owes an action in three cases. It does not take an address or data that a port sends.
    A read is under way, and no beat comes back. A whole burst is written, and no answer comes back.

    `expired` comes when a memory has owed an action for `limit` consecutive cycles, in which
    nothing moved on any port. It comes LATENCY cycles after the last of these cycles.
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
        writes_unanswered = Signal(range(WRITES_IN_FLIGHT + 1))
        writes = exact_log2(BusPort.HOST_WRITE)
        m.d.sync += writes_unanswered.eq(
            writes_unanswered + self.written - self.from_memory[writes].taken
        )

        port_moves = Signal()
        ports_owing = Signal(len(BusPort))
        for number in range(len(BusPort)):
            sent, back = self.to_memory[number], self.from_memory[number]
            expects = ~self.quiet[number] if number != writes else writes_unanswered != 0
            m.d.sync += ports_owing[number].eq(sent.offered | (expects & ~back.offered))
        m.d.sync += port_moves.eq(
            Cat(
                channels[n].taken
                for channels in (self.to_memory, self.from_memory)
                for n in range(len(BusPort))
            ).any()
        )
        cycle_counts = Signal()
        ports_counted = Signal(len(BusPort))
        cycles_remaining = Signal(BUS_TIMEOUT_BITS)
        m.d.sync += [
            ports_counted.eq(ports_owing),
            self.ports.eq(ports_counted),
            cycle_counts.eq(ports_owing.any() & ~port_moves & (self.limit != 0)),
            self.expired.eq(cycle_counts & (cycles_remaining == 1)),
            cycles_remaining.eq(cycles_remaining - 1),
        ]
        with m.If(~cycle_counts):
            m.d.sync += cycles_remaining.eq(self.limit)
        promised(m, platform, ~self.expired | self.ports.any(), "no port has waited too long")
        most = writes_unanswered <= WRITES_IN_FLIGHT
        promised(m, platform, most, "more writes are under way than may be")
        return m
