# SPDX-License-Identifier: Apache-2.0
"""The unit of each instruction, as the timing model tells them apart."""

from __future__ import annotations

from systola.arch import isa
from systola.arch.isa import Opcode
from systola.timing.record import Unit

UNIT_OF = {
    Opcode.READ_HOST_MEMORY: Unit.HOST_READ,
    Opcode.READ_HOST_MEMORY_ALTERNATE: Unit.HOST_READ,
    Opcode.LOAD_PARAMETERS: Unit.HOST_READ,
    Opcode.LOAD_TABLE: Unit.HOST_READ,
    Opcode.WRITE_HOST_MEMORY: Unit.HOST_WRITE,
    Opcode.WRITE_HOST_MEMORY_ALTERNATE: Unit.HOST_WRITE,
    Opcode.MATRIX_MULTIPLY: Unit.ARRAY,
    Opcode.CONVOLVE: Unit.ARRAY,
    Opcode.ACTIVATE: Unit.ACTIVATION,
    Opcode.DEPTHWISE: Unit.ACTIVATION,
    Opcode.POOL: Unit.ACTIVATION,
    Opcode.VECTOR: Unit.ACTIVATION,
    Opcode.MEASURE: Unit.ACTIVATION,
    Opcode.TRANSPOSE: Unit.ACTIVATION,
    Opcode.RANDOM: Unit.ACTIVATION,
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
"""The units with whose instructions under way those of each opcode are compared, and which of them
one after the other."""
WAIT_FOR = {
    isa.Unit.HOST_READER: Unit.HOST_READ,
    isa.Unit.MATRIX_UNIT: Unit.ARRAY,
    isa.Unit.ACTIVATION_UNIT: Unit.ACTIVATION,
    isa.Unit.HOST_WRITER: Unit.HOST_WRITE,
}
"""The unit of each bit that a Debug_Tag may wait for."""
