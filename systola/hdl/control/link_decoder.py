# SPDX-License-Identifier: Apache-2.0
"""Turns Send, Receive and Reduce into commands of the senders and receivers of the link unit."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.control.checks import Found
from systola.hdl.control.scalar_unit import EffectiveInstruction, fields_of, is_one_of
from systola.hdl.link_commands import LinkCommand


class LinkDecoder(wiring.Component):
    """A decoder that forms the command of a sender or receiver, combinationally.

    | port      | meaning |
    |---|---|
    | `given`   | the instruction, with its index registers added |
    | `found`   | results of the steps of the instruction |
    | `command` | the command |
    | `side`    | side of the machine that the instruction names |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "given": In(EffectiveInstruction(links=True)),
                "found": In(Found(config=config)),
                "command": Out(LinkCommand(config=config)),
                "side": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, found, kind = self.command, self.found, self.given.kind
        fields = fields_of(self.given.word)
        send, receive, reduce = (
            fields[opcode] for opcode in (Opcode.SEND, Opcode.RECEIVE, Opcode.REDUCE)
        )
        sends, reduces = (is_one_of(kind, opcode) for opcode in (Opcode.SEND, Opcode.REDUCE))
        sums = Signal()
        m.d.comb += [
            sums.eq(Mux(sends, send.sums, reduces)),
            command.sums.eq(sums),
            command.adds.eq(reduces & reduce.accumulate),
            command.place.eq(Mux(sums, found.accumulator.base, found.buffer.base)),
            command.rows.eq(Mux(sends, send.rows, Mux(reduces, reduce.rows, receive.rows))),
            self.side.eq(Mux(sends, send.side, Mux(reduces, reduce.side, receive.side))),
        ]
        return m
