# SPDX-License-Identifier: Apache-2.0
"""The registers on a link between two cores."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import LinkSignature
from systola.hdl.parts.promise import promised

SLOWEST = 8
"""Largest number of cycles for which an uneven wire delays its oldest credit."""


class LinkWire(wiring.Component):
    """A wire for one direction of a link, with `stages` registers each way, so that cores may lie
    far apart.

    | port       | meaning |
    |---|---|
    | `sender`   | the end at the sender |
    | `receiver` | the end at the receiver |

    `uneven`, for tests: with 0 the wire has a constant delay. Else it is a seed for random delays
    of credits. A credit goes at most SLOWEST cycles after the credit before it. With such delays
    senders run out of credits.
    """

    def __init__(self, *, config: Config, stages: int, uneven: int = 0):
        self._config, self._stages, self._uneven = config, stages, uneven
        link = LinkSignature(config=config)
        super().__init__({"sender": In(link), "receiver": Out(link)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        credit = (
            self._kept(m, platform, self.receiver.credit) if self._uneven else self.receiver.credit
        )
        for source, target in (
            (self.sender.valid, self.receiver.valid),
            (self.sender.beat, self.receiver.beat),
            (self.sender.token, self.receiver.token),
            (credit, self.sender.credit),
        ):
            m.d.comb += target.eq(self._late(m, Value.cast(source)))
        return m

    def _kept(self, m: Module, platform: object, credit: Value) -> Value:
        """Return the credits, each after a random delay."""
        credits_kept = Signal(range(self._config.link_beats + 1))
        wait_remaining = Signal(range(SLOWEST))
        # The polynomial is x^16 + x^15 + x^13 + x^4 + 1, in the form of Galois.
        random_bits = Signal(16, init=self._uneven)
        credit_goes = Signal()
        m.d.comb += credit_goes.eq((credits_kept != 0) & (wait_remaining == 0))
        m.d.sync += [
            random_bits.eq((random_bits >> 1) ^ Mux(random_bits[0], 0xD008, 0)),
            credits_kept.eq(credits_kept + credit - credit_goes),
            wait_remaining.eq(
                Mux(
                    credit_goes,
                    random_bits[:3] & random_bits[4:7],
                    Mux(wait_remaining != 0, wait_remaining - 1, 0),
                )
            ),
        ]
        most = credits_kept <= self._config.link_beats
        promised(m, platform, most, "a wire keeps more credits than there are")
        return credit_goes

    def _late(self, m: Module, value: Value) -> Value:
        for _ in range(self._stages):
            later = Signal(len(value))
            m.d.sync += later.eq(value)
            value = later
        return value
