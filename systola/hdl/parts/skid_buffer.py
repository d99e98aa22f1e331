# SPDX-License-Identifier: Apache-2.0
"""A register in a stream that cuts the path of `ready` through it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised, promised_offer


class SkidBuffer(wiring.Component):
    """A buffer that passes each payload on, in order, one cycle after it came.

    | port     | meaning |
    |---|---|
    | `input`  | stream of payloads |
    | `output` | the same stream; a payload stays until it is taken |

    A payload that comes while `output` waits is kept in a second place. Throughput: one payload a
    cycle. All outputs are registers, also `input.ready`: it is low while the second place is in
    use.
    """

    def __init__(self, *, payload: data.StructLayout):
        super().__init__(
            {"input": In(stream.Signature(payload)), "output": Out(stream.Signature(payload))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shown = Signal.like(self.output.payload, reset_less=True)
        spare = Signal.like(shown)
        spare_valid = Signal()  # the second place holds a payload
        # the inverse of `spare_valid`: a separate register, for the choice of payloads
        spare_free = Signal(init=1)
        output_free = Signal()
        m.d.comb += [
            output_free.eq(~self.output.valid | self.output.ready),
            self.input.ready.eq(spare_free),
            self.output.payload.eq(shown),
        ]
        # Payloads are copied whether they are valid or not.
        with m.If(output_free):
            m.d.sync += [
                self.output.valid.eq(~spare_free | self.input.valid),
                shown.eq(Mux(spare_valid, spare, self.input.payload)),
            ]
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.input.payload)
        spare_fills = Signal()
        m.d.comb += spare_fills.eq(~output_free & (~spare_free | self.input.valid))
        m.d.sync += [spare_valid.eq(spare_fills), spare_free.eq(~spare_fills)]
        shows = self.output
        message = "a payload changes before it is taken"
        promised_offer(m, platform, shows.valid, shows.ready, shows.payload.as_value(), message)
        promised(m, platform, spare_free != spare_valid, "the second place is full and free")
        return m
