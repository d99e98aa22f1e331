# SPDX-License-Identifier: Apache-2.0
"""A register in a stream that does not pass `ready` on in the same cycle."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class SkidBuffer(wiring.Component):
    """A buffer that offers each payload of `input` at `output`, in order, a cycle after it came.

    A payload that comes while `output` waits is kept in a second place. Throughput: one a cycle.
    All outputs are registers, `input.ready` too: it is low while the second place is in use.
    Payloads of `output` stay as they are until they are taken.
    """

    def __init__(self, *, payload: data.StructLayout):
        super().__init__(
            {"input": In(stream.Signature(payload)), "output": Out(stream.Signature(payload))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shown = Signal.like(self.output.payload, reset_less=True)
        spare = Signal.like(shown)
        waits = Signal()  # a payload is in the second place
        vacant = Signal(init=1)  # the inverse of `waits`, which serves the choice of payloads alone
        free = Signal()
        m.d.comb += [
            free.eq(~self.output.valid | self.output.ready),
            self.input.ready.eq(vacant),
            self.output.payload.eq(shown),
        ]
        # Payloads are taken with or without `valid`.
        with m.If(free):
            m.d.sync += [
                self.output.valid.eq(~vacant | self.input.valid),
                shown.eq(Mux(waits, spare, self.input.payload)),
            ]
        with m.If(~waits):
            m.d.sync += spare.eq(self.input.payload)
        fills = Signal()
        m.d.comb += fills.eq(~free & (~vacant | self.input.valid))
        m.d.sync += [waits.eq(fills), vacant.eq(~fills)]
        return m
