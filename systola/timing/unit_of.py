# SPDX-License-Identifier: Apache-2.0
"""The unit of each instruction in the timing model, which has no control unit."""

from __future__ import annotations

from systola.arch import isa
from systola.arch.isa import INSTRUCTIONS, Executor
from systola.timing.record import Unit

_UNITS = {
    Executor.HOST_READER: Unit.HOST_READ,
    Executor.HOST_WRITER: Unit.HOST_WRITE,
    Executor.MATRIX_UNIT: Unit.ARRAY,
    Executor.ACTIVATION_UNIT: Unit.ACTIVATION,
}
UNIT_OF = {
    entry.opcode: _UNITS[entry.executor] for entry in INSTRUCTIONS if entry.executor in _UNITS
}
COMPARED = {
    opcode: {
        Unit.HOST_READ: ((Unit.ARRAY, Unit.ACTIVATION), (Unit.HOST_WRITE,)),
        Unit.HOST_WRITE: ((Unit.HOST_READ,), (Unit.ACTIVATION,)),
        Unit.ARRAY: ((Unit.HOST_READ,), (Unit.ACTIVATION,)),
        Unit.ACTIVATION: ((Unit.HOST_READ, Unit.HOST_WRITE), (Unit.ARRAY, Unit.ACTIVATION)),
    }[unit]
    for opcode, unit in UNIT_OF.items()
}
"""For each opcode: units with instructions that the sequencer compares with the next instruction.

The comparison comes before the issue, with all instructions under way. The units of an inner tuple
are compared one after the other, and all tuples at the same time.
"""
WAIT_FOR = {bit: _UNITS[Executor[str(bit.name)]] for bit in isa.Unit}
"""Unit of the timing model for each bit of a Debug_Tag's `wait` field."""
