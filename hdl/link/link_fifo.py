# SPDX-License-Identifier: Apache-2.0
"""Where beats from a neighbour wait."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import LinkBeat
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised


class LinkFifo(wiring.Component):
    """Has room for the `config.link_beats` beats that a neighbour has credits for, and so no way to
    say no. A beat is offered in the cycle after it came; `credit`, a register, tells in the cycle
    after it was taken. Throughput: one a cycle."""

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "valid": In(1),
                "beat": In(LinkBeat(config=config)),
                "credit": Out(1),
                "taken": Out(stream.Signature(LinkBeat(config=config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Two memories: in one, a beat of 16 bytes would be a bit too much for LUTs.
        members = LinkBeat(config=self._config).members
        rings = {
            name: PayloadRing(
                payload=data.StructLayout({name: shape}), depth=self._config.link_beats
            )
            for name, shape in members.items()
        }
        count = Signal(range(self._config.link_beats + 1))
        after = Signal.like(count)
        takes = Signal()
        m.d.comb += [
            takes.eq(self.taken.valid & self.taken.ready),
            after.eq(count + self.valid - takes),
        ]
        for name, ring in rings.items():
            m.submodules[name] = ring
            m.d.comb += [
                ring.push.eq(self.valid),
                ring.pushed.eq(self.beat[name]),
                ring.retire.eq(takes),
                self.taken.payload[name].eq(ring.oldest),
            ]
        m.d.sync += [
            count.eq(after),
            self.taken.valid.eq(after != 0),
            self.credit.eq(takes),
        ]
        promised(
            m,
            platform,
            ~self.valid | takes | (count != self._config.link_beats),
            "a neighbour sends more than it has credits for",
        )
        return m
