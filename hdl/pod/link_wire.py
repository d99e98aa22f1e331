# SPDX-License-Identifier: Apache-2.0
"""The way between two cores."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link.link_signature import LinkSignature


class LinkWire(wiring.Component):
    """One direction of a link with `stages` registers each way, so that cores may lie far apart."""

    def __init__(self, *, config: Config, stages: int):
        self._stages = stages
        link = LinkSignature(config=config)
        super().__init__({"sender": In(link), "receiver": Out(link)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for source, target in (
            (self.sender.valid, self.receiver.valid),
            (self.sender.beat, self.receiver.beat),
            (self.sender.token, self.receiver.token),
            (self.receiver.credit, self.sender.credit),
        ):
            m.d.comb += target.eq(self._late(m, Value.cast(source)))
        return m

    def _late(self, m: Module, value: Value) -> Value:
        for _ in range(self._stages):
            later = Signal(len(value))
            m.d.sync += later.eq(value)
            value = later
        return value
