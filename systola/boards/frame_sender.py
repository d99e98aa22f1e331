# SPDX-License-Identifier: Apache-2.0
"""The sender of frames as bytes on the line, see arch/serial_protocol.py."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.wiring import In, Out

from systola.arch.serial_protocol import CRC_BYTES, END, ESCAPE, ESCAPED_END, ESCAPED_ESCAPE

CONTENT = data.StructLayout({"data": 8, "last": 1})


class FrameSender(wiring.Component):
    """A unit that sends frames: bytes between ENDs, followed by their CRC.

    | port      | meaning |
    |---|---|
    | `content` | stream of the bytes of a frame, up to `last`; taken at the pace of `byte` |
    | `byte`    | stream to the line; a byte of `content` becomes one or two bytes there |
    """

    def __init__(self) -> None:
        super().__init__(
            {"content": In(stream.Signature(CONTENT)), "byte": Out(stream.Signature(8))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = CRC32_ISO_HDLC().create()
        content, byte = self.content, self.byte

        plain = Signal(8)
        plain_valid = Signal()
        special = Signal()
        second = Signal()
        plain_taken = Signal()
        m.d.comb += [
            special.eq((plain == END) | (plain == ESCAPE)),
            byte.valid.eq(plain_valid),
            byte.payload.eq(plain),
            plain_taken.eq(plain_valid & byte.ready & (~special | second)),
        ]
        with m.If(special):
            escape = Mux(plain == END, ESCAPED_END, ESCAPED_ESCAPE)
            m.d.comb += byte.payload.eq(Mux(second, escape, ESCAPE))
        with m.If(plain_valid & byte.ready):
            m.d.sync += second.eq(special & ~second)

        number = Signal(range(CRC_BYTES))
        with m.FSM():
            with m.State("BEGIN"):
                m.d.comb += [byte.payload.eq(END), byte.valid.eq(content.valid)]
                with m.If(content.valid & byte.ready):
                    m.d.comb += crc.start.eq(1)
                    m.next = "CONTENT"
            with m.State("CONTENT"):
                m.d.comb += [
                    plain.eq(content.payload.data),
                    plain_valid.eq(content.valid),
                    content.ready.eq(plain_taken),
                    crc.data.eq(content.payload.data),
                    crc.valid.eq(plain_taken),
                ]
                with m.If(plain_taken & content.payload.last):
                    m.d.sync += number.eq(0)
                    m.next = "CRC"
            with m.State("CRC"):
                m.d.comb += [
                    plain.eq(crc.crc.word_select(number, 8)),
                    plain_valid.eq(1),
                ]
                with m.If(plain_taken):
                    m.d.sync += number.eq(number + 1)
                    with m.If(number == CRC_BYTES - 1):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [byte.payload.eq(END), byte.valid.eq(1)]
                with m.If(byte.ready):
                    m.next = "BEGIN"
        return m
