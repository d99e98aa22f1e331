# SPDX-License-Identifier: Apache-2.0
"""A unit for tests with the decoder and the sequenced decoder side by side.

The decoder, `Decoder`, shows the whole decoded instruction at once. The sequenced decoder,
`SequencedDecoder`, writes one word or cell of it in a cycle. Each decoder has its own stream of
instructions.
"""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.control.sequenced_decoder import SequencedDecoder
from systola.verif.units.control.given_word import WORD, give
from systola.verif.units.control.staged_decoder import Staged

OUTPUTS = ("writes", "written", "keeps", "cell", "kept", "judges", "verdict")


class BothDecoders(wiring.Component):
    """A unit with a decoder and a sequenced decoder, to compare their outputs.

    | port | meaning |
    |---|---|
    | `instruction` | instructions for the decoder, as in `Staged` |
    | `given` | instructions for the sequenced decoder |
    | `shows` | an output of the sequenced decoder has a new value |

    Outputs of both decoders have the same names here as in the decoders.
    """

    def __init__(self, *, config: Config):
        self._staged = Staged(config=config)
        self._sequenced = SequencedDecoder(config=config)
        members = self._sequenced.signature.members
        super().__init__(
            {
                **self._staged.signature.members,
                **{name: members[name] for name in OUTPUTS},
                "given": In(stream.Signature(WORD)),
                "shows": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        staged = m.submodules.staged = self._staged
        sequenced = m.submodules.sequenced = self._sequenced
        for name, member in staged.signature.members.items():
            if name != "instruction":
                mine, its = getattr(self, name), getattr(staged, name)
                m.d.comb += its.eq(mine) if member.flow == In else mine.eq(its)
        given = self.given.payload
        m.d.comb += [
            staged.instruction.valid.eq(self.instruction.valid),
            staged.instruction.payload.eq(self.instruction.payload),
            self.instruction.ready.eq(staged.instruction.ready),
            sequenced.instruction.valid.eq(self.given.valid),
            self.given.ready.eq(sequenced.instruction.ready),
            sequenced.host_limit.eq(self.host_limit),
            sequenced.weight_tiles.eq(self.weight_tiles),
            *(getattr(self, name).eq(getattr(sequenced, name)) for name in OUTPUTS),
            self.shows.eq(sequenced.writes | sequenced.keeps | sequenced.judges),
        ]
        give(m, sequenced, given)
        return m
