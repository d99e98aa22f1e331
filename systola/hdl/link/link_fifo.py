# SPDX-License-Identifier: Apache-2.0
"""The FIFO where beats from a neighbour wait."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import LinkBeat
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised, promised_offer


class LinkFifo(wiring.Component):
    """A FIFO with room for the `config.link_beats` beats that a neighbour has credits for.

    | port            | meaning |
    |---|---|
    | `valid`, `beat` | a beat comes; it cannot be refused |
    | `credit`        | a beat was taken in the cycle before; a register |
    | `taken`         | stream of the beats; a beat is offered from the cycle after it came |

    Throughput: one beat a cycle.
    """

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
        # There are two memories, since one memory for beats of 16 bytes would be slightly too wide
        # for LUTs.
        members = LinkBeat(config=self._config).members
        rings = {
            name: PayloadRing(
                payload=data.StructLayout({name: shape}), depth=self._config.link_beats
            )
            for name, shape in members.items()
        }
        beat_count = Signal(range(self._config.link_beats + 1))
        next_count = Signal.like(beat_count)
        beat_taken = Signal()
        m.d.comb += [
            beat_taken.eq(self.taken.valid & self.taken.ready),
            next_count.eq(beat_count + self.valid - beat_taken),
        ]
        for name, ring in rings.items():
            m.submodules[name] = ring
            m.d.comb += [
                ring.push.eq(self.valid),
                ring.pushed.eq(self.beat[name]),
                ring.pop.eq(beat_taken),
                self.taken.payload[name].eq(ring.oldest),
            ]
        m.d.sync += [
            beat_count.eq(next_count),
            self.taken.valid.eq(next_count != 0),
            self.credit.eq(beat_taken),
        ]
        beat = self.taken
        message = "a beat changes before it is taken"
        promised_offer(m, platform, beat.valid, beat.ready, beat.payload.as_value(), message)
        promised(m, platform, beat.valid == (beat_count != 0), "a beat is not there")
        promised(
            m,
            platform,
            ~self.valid | beat_taken | (beat_count != self._config.link_beats),
            "a neighbour sends more than it has credits for",
        )
        return m
