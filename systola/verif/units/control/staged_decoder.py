# SPDX-License-Identifier: Apache-2.0
"""The decoder for tests, with registers in place of the scalar unit's stages before it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.control.decoded import Decoded
from systola.hdl.control.decoder import Decoder
from systola.hdl.control.scalar_unit import EffectiveInstruction


class Staged(wiring.Component):
    """A decoder with two registers for instructions, like the two stages of the scalar unit.

    The decoder moves an instruction from the first register to the last. `entered`: an instruction
    is taken from the stream `instruction`. The caller takes a decoded instruction in the cycle
    after `frees`.
    """

    def __init__(self, *, config):
        self._decoder = Decoder(config=config)
        members = dict(self._decoder.signature.members)
        for name in ("opcode", "coming", "moves", "instruction", "decoded"):
            del members[name]
        instruction = In(stream.Signature(EffectiveInstruction(links=config.links)))
        shown = {"decoded__valid": Out(1), "decoded__payload": Out(Decoded(config=config))}
        super().__init__({**members, **shown, "instruction": instruction, "entered": Out(1)})

    def elaborate(self, platform):
        m = Module()
        decoder = m.submodules.decoder = self._decoder
        given = self.instruction.payload
        first, last, full = Signal.like(given), Signal.like(given), Signal()
        m.d.comb += [
            decoder.frees.eq(self.frees),
            self.decoded__valid.eq(decoder.decoded.valid),
            self.decoded__payload.eq(decoder.decoded.payload),
            decoder.host_limit.eq(self.host_limit),
            decoder.weight_tiles.eq(self.weight_tiles),
            self.idle.eq(decoder.idle),
            self.instruction.ready.eq(~full | decoder.coming.ready),
            self.entered.eq(self.instruction.valid & self.instruction.ready),
            decoder.opcode.eq(given.word[:8]),
            decoder.coming.valid.eq(full),
            decoder.coming.payload.word.eq(first.word),
            decoder.coming.payload.kind.eq(first.kind),
            decoder.instruction.eq(last),
        ]
        m.d.sync += decoder.decoded.ready.eq(self.frees)
        with m.If(self.instruction.ready):
            m.d.sync += full.eq(self.instruction.valid)
        with m.If(self.entered):
            m.d.sync += first.eq(given)
        with m.If(decoder.moves):
            m.d.sync += last.eq(first)
        return m
