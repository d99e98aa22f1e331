# SPDX-License-Identifier: Apache-2.0
"""From bytes on the line to checked frames, see arch/serial_protocol.py."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.wiring import In, Out

from systola.arch.serial_protocol import END, ESCAPE, ESCAPED_END, ESCAPED_ESCAPE


class FrameReceiver(wiring.Component):
    """Takes off ENDs and escapes, and checks the CRC.

    Bytes come at least two cycles apart: `valid` with `data`; or `error` for a byte that was
    broken on its way. One cycle later: `content_valid` with each byte `content` of a frame, its
    CRC included; `end` with an END, and then `good` when what came since the last END has a right
    CRC. Nothing can hold it up.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "data": In(8),
                "valid": In(1),
                "error": In(1),
                "content": Out(8),
                "content_valid": Out(1),
                "end": Out(1),
                "good": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = CRC32_ISO_HDLC().create()
        broken = Signal(init=1)
        escaped = Signal()
        content = Signal(8, reset_less=True)
        is_content = Signal()
        is_end = Signal()
        m.d.sync += [is_content.eq(0), is_end.eq(0)]
        with m.If(self.error):
            m.d.sync += broken.eq(1)
        with m.If(self.valid):
            m.d.sync += escaped.eq(0)
            with m.If(self.data == END):
                # An escape that the END cuts off is part of no frame.
                m.d.sync += [is_end.eq(1), broken.eq(broken | escaped)]
            with m.Elif(escaped):
                m.d.sync += [
                    content.eq(Mux(self.data == ESCAPED_END, END, ESCAPE)),
                    is_content.eq(1),
                ]
                with m.If((self.data != ESCAPED_END) & (self.data != ESCAPED_ESCAPE)):
                    m.d.sync += broken.eq(1)
            with m.Elif(self.data == ESCAPE):
                m.d.sync += escaped.eq(1)
            with m.Else():
                m.d.sync += [content.eq(self.data), is_content.eq(1)]
        with m.If(is_end):
            m.d.sync += broken.eq(0)
        m.d.comb += [
            crc.start.eq(is_end),
            crc.valid.eq(is_content),
            crc.data.eq(content),
            self.content.eq(content),
            self.content_valid.eq(is_content),
            self.end.eq(is_end),
            self.good.eq(~broken & crc.match_detected),
        ]
        return m
