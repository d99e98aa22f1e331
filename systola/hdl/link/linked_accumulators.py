# SPDX-License-Identifier: Apache-2.0
"""The accumulators of a core with links. The links get cycles that no other unit uses."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from systola.arch.config import Config
from systola.hdl.link.link_signature import AccumulatorUpdateSignature
from systola.hdl.memories.accumulators import SUMS_LATENCY, Accumulators, accumulator_ports
from systola.hdl.parts.promise import promised
from systola.hdl.ports import AccumulatorReadSignature


class LinkedAccumulators(wiring.Component):
    """A bank of Accumulators with two further ports for the links.

    | port          | meaning |
    |---|---|
    | `sums_read`   | reads of the links, in cycles without `read.enable` |
    | `sums_update` | updates of the links, in cycles without `update.enable`; `sums` come with
                      their `enable` |

    All other ports are the ports of Accumulators, and always win over the ports of the links. The
    sums of `sums_update` wait in this unit until the accumulators need them.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                **accumulator_ports(config),
                "sums_read": In(AccumulatorReadSignature(config=config)),
                "sums_update": In(AccumulatorUpdateSignature(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory = m.submodules.memory = Accumulators(config=self._config)
        read, update = self.sums_read, self.sums_update
        link_adds = Signal()
        link_sums = Signal.like(update.sums, reset_less=True)
        from_link = Signal()
        assert SUMS_LATENCY == 1
        m.d.sync += [from_link.eq(update.enable & update.ready), link_sums.eq(update.sums)]
        first, wins = self.update, self.update.enable
        m.d.comb += [
            read.ready.eq(memory.read.ready & ~self.read.enable),
            read.data.eq(memory.read.data),
            update.ready.eq(~wins),
            link_adds.eq(update.enable & update.ready & update.adds),
            memory.read.enable.eq(self.read.enable | read.enable),
            memory.read.address.eq(Mux(self.read.enable, self.read.address, read.address)),
            memory.update.enable.eq(wins | update.enable),
            memory.update.reads.eq(Mux(wins, first.reads, link_adds << update.address[0])),
            memory.update.address.eq(Mux(wins, first.address, update.address)),
            memory.update.adds.eq(Mux(wins, first.adds, update.adds)),
            memory.update.shift.eq(Mux(wins, first.shift, 0)),
            memory.update.sums.eq(Mux(from_link, link_sums, first.sums)),
            self.read.ready.eq(memory.read.ready),
            self.read.data.eq(memory.read.data),
            self.flawed.eq(memory.flawed),
        ]
        loses = ~(self.read.enable & read.ready)
        promised(m, platform, loses, "a read of the links wins over Activate")
        loses = ~(wins & update.ready)
        promised(m, platform, loses, "sums of the links win over the array")
        return m
