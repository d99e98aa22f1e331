# SPDX-License-Identifier: Apache-2.0
"""All instructions, in the order of their opcodes."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.isa.activation import ACTIVATION
from systola.arch.isa.codes import Opcode
from systola.arch.isa.control import CONTROL
from systola.arch.isa.fields import Instruction
from systola.arch.isa.links import LINKS
from systola.arch.isa.matrix import MATRIX
from systola.arch.isa.transfers import TRANSFERS

INSTRUCTIONS = (*CONTROL, *TRANSFERS, *MATRIX, *ACTIVATION)
"""Instructions that every configuration knows."""
LINK_OPCODES = frozenset(entry.opcode for entry in LINKS)


def instructions_of(*, links: bool) -> tuple[Instruction, ...]:
    """Return the instructions that a core knows: INSTRUCTIONS and, with `links`, also LINKS."""
    return (*INSTRUCTIONS, *LINKS) if links else INSTRUCTIONS


BY_OPCODE: Mapping[Opcode, Instruction] = {entry.opcode: entry for entry in (*INSTRUCTIONS, *LINKS)}
BY_MNEMONIC: Mapping[str, Instruction] = {entry.mnemonic: entry for entry in BY_OPCODE.values()}
