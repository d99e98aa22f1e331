# SPDX-License-Identifier: Apache-2.0
"""A function that gives an instruction word to the sequenced decoder."""

from amaranth.lib import data

from systola.hdl.control.field_port import PART_BITS

WORD = data.StructLayout({"word": 128, "error": 1})


def give(m, sequenced, given):
    """Connect an instruction word to the sequenced decoder.

    The decoder gets the opcode at once. Of the word it gets two neighbouring parts of 32 bits, from
    the part with number `place` on.
    """
    m.d.comb += [
        sequenced.instruction.payload.opcode.eq(given.word),
        sequenced.instruction.payload.error.eq(given.error),
    ]
    parts = [given.word[at : at + 2 * PART_BITS] for at in range(0, 128, PART_BITS)]
    with m.Switch(sequenced.place):
        for number, part in enumerate(parts):
            with m.Case(number):
                m.d.sync += sequenced.pair.eq(part)
