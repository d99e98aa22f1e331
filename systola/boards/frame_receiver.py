# SPDX-License-Identifier: Apache-2.0
"""The receiver of checked frames from bytes on the line, see arch/serial_protocol.py."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.wiring import In, Out

from systola.arch.serial_protocol import END, ESCAPE, ESCAPED_END, ESCAPED_ESCAPE


class FrameReceiver(wiring.Component):
    """A unit that takes frames from a stream of bytes: it removes the END and escape bytes, and
    checks the CRC.

    Bytes come at least two cycles apart. Outputs follow one cycle after their byte. Nothing can
    stall the unit.

    | port | meaning |
    | --- | --- |
    | `valid`, `data` | a byte from the line |
    | `error` | a byte that was damaged on the line, instead of `valid` |
    | `content_valid`, `content` | a byte of a frame; the bytes of its CRC are included |
    | `end` | an END |
    | `good` | with `end`: the bytes since the END before have a right CRC |
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
                # An escape that an END cuts off is an error: the frame is not good.
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
