# SPDX-License-Identifier: Apache-2.0
"""The connections of the units of the control path with each other."""

from amaranth.hdl import Module
from amaranth.lib.wiring import connect

from systola.hdl.control.decoder import Decoder
from systola.hdl.control.fetch import Fetch
from systola.hdl.control.scalar_unit import ScalarUnit
from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.control.sequencer import Sequencer


def join_control(
    m: Module,
    fetch: Fetch,
    scalar: ScalarUnit,
    decoder: Decoder,
    sequencer: Sequencer,
    board: Scoreboard,
) -> None:
    """Connect the units through which an instruction passes, in their order."""
    connect(m, fetch.instruction, scalar.fetched)
    connect(m, scalar.coming, decoder.coming)
    connect(m, decoder.decoded, sequencer.decoded)
    m.d.comb += [
        fetch.starved.eq(decoder.idle),
        fetch.jump.eq(scalar.jump),
        fetch.jump_to.eq(scalar.jump_to),
        scalar.moves.eq(decoder.moves),
        decoder.opcode.eq(scalar.opcode),
        decoder.instruction.eq(scalar.instruction),
        decoder.frees.eq(sequencer.frees),
        sequencer.exhausted.eq(fetch.exhausted & decoder.idle),
        sequencer.pc.eq(fetch.instruction.payload.pc),
        sequencer.room.eq(board.room),
        sequencer.idle.eq(board.idle),
        board.offered.eq(decoder.decoded.valid),
        board.passable.eq(sequencer.passable),
        board.issue.eq(sequencer.issue),
        board.decoded.eq(decoder.decoded.payload),
    ]
