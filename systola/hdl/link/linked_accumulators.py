# SPDX-License-Identifier: Apache-2.0
"""The accumulators of a core with links, which read and add to rows now and then."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from systola.arch.config import Config
from systola.hdl.link.link_signature import AccumulatorReadSignature, AccumulatorUpdateSignature
from systola.hdl.memories.accumulators import SUMS_LATENCY, Accumulators, accumulator_ports
from systola.hdl.parts.promise import promised


class LinkedAccumulators(wiring.Component):
    """A bank of Accumulators with two further ports for the links.

    | port          | meaning |
    |---|---|
    | `sums_read`   | reads of the links, in cycles without `enable` |
    | `sums_update` | updates of the links, in cycles without `update`; `sums` come with `enable` |

    All other members are the members of Accumulators, and always win. The sums of `sums_update`
    wait here until the accumulators need them.
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
        m.d.comb += [
            read.ready.eq(memory.ready & ~self.enable),
            read.data.eq(memory.data),
            update.ready.eq(~self.update),
            link_adds.eq(update.enable & update.ready & update.adds),
            memory.enable.eq(self.enable | read.enable),
            memory.address.eq(Mux(self.enable, self.address, read.address)),
            memory.update.eq(self.update | update.enable),
            memory.reads.eq(Mux(self.update, self.reads, link_adds << update.address[0])),
            memory.row.eq(Mux(self.update, self.row, update.address)),
            memory.accumulate.eq(Mux(self.update, self.accumulate, update.adds)),
            memory.shift.eq(Mux(self.update, self.shift, 0)),
            memory.sums.eq(Mux(from_link, link_sums, self.sums)),
            self.ready.eq(memory.ready),
            self.data.eq(memory.data),
            self.flawed.eq(memory.flawed),
        ]
        loses = ~(self.enable & read.ready)
        promised(m, platform, loses, "a read of the links wins over Activate")
        loses = ~(self.update & update.ready)
        promised(m, platform, loses, "sums of the links win over the array")
        return m
