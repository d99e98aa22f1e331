# SPDX-License-Identifier: Apache-2.0
"""The scalar unit, with logic that moves instructions from stage to stage, as the decoder does.

The scalar unit has two stages. The decoder decides when an instruction moves from the first stage
to the last.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.hdl.commands import PC_BITS
from systola.hdl.control.fetch import FetchedInstruction
from systola.hdl.control.scalar_unit import EffectiveInstruction, ScalarUnit


class MovedScalar(wiring.Component):
    """A scalar unit for tests that moves each instruction as soon as possible.

    | port | meaning |
    |---|---|
    | `fetched` | instructions for the first stage |
    | `instruction` | instructions from the last stage, each from its second cycle there on |
    | `lingers` | an instruction that has moved to the last stage stays in the first stage, too |
    | `jump`, `jump_to` | an End_Loop jumps back; number of the instruction to go on with |
    | `idle` | both stages are empty |
    """

    def __init__(self):
        super().__init__(
            {
                "fetched": In(stream.Signature(FetchedInstruction())),
                "instruction": Out(stream.Signature(EffectiveInstruction())),
                "lingers": In(1),
                "jump": Out(1),
                "jump_to": Out(PC_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        scalar = m.submodules.scalar_unit = ScalarUnit()
        connect(m, flipped(self.fetched), scalar.fetched)
        # number of cycles of the present instruction in the first stage, at most three
        age = Signal(2)
        moved = Signal()  # whether the instruction in the first stage is in the last stage, too
        full = Signal()
        m.d.comb += [
            scalar.moves.eq(scalar.coming.valid & (age >= 2) & ~moved & ~full),
            scalar.coming.ready.eq((scalar.moves | moved) & ~self.lingers),
            self.instruction.payload.eq(scalar.instruction),
            self.jump.eq(scalar.jump),
            self.jump_to.eq(scalar.jump_to),
            self.idle.eq(~(scalar.coming.valid | full)),
        ]
        with m.If(~scalar.coming.valid | scalar.coming.ready):
            m.d.sync += [age.eq(0), moved.eq(0)]
        with m.Else():
            m.d.sync += [age.eq(age + (age != 3)), moved.eq(moved | scalar.moves)]
        with m.If(scalar.moves):
            m.d.sync += full.eq(1)
        with m.Elif(self.instruction.valid & self.instruction.ready):
            m.d.sync += [full.eq(0), self.instruction.valid.eq(0)]
        with m.Elif(full):
            m.d.sync += self.instruction.valid.eq(1)
        return m
