# SPDX-License-Identifier: Apache-2.0
"""The steps of Send, Receive and Reduce."""

from __future__ import annotations

from systola.arch.isa import Opcode
from systola.hdl.control.step_program import Program
from systola.hdl.control.step_row import When


def link(p: Program) -> None:
    """Append the ROM rows of an instruction of the link unit.

    The flags of the instruction are the side and, for a Send, whether it sends sums. A Receive or
    a Reduce has one field for the first line or row that it writes. A Send has a field for its
    first line and another one for its first row of sums.
    """
    sends = p.entry.opcode is Opcode.SEND
    p.move("rows", word="link_rows")
    p.flush()
    if not sends:
        (taken,) = p.entry.writes
        p.region(taken, "sums" if p.entry.opcode is Opcode.REDUCE else "result", word="place")
        return
    lines, sums = p.entry.reads
    p.region(lines, "result", word="place")
    p.region(sums, "sums")
    p.emit(base="sums.base", word="place", when=When.FLAG_A)
