# SPDX-License-Identifier: Apache-2.0
"""Instruction words with legal operands, each of which a test may change."""

from __future__ import annotations

import dataclasses

from systola.arch.isa import Opcode, Operation, Reduction, encode
from systola.verif.golden.rig import PAGE, SQUARE, TINY

# A machine with vectors of 3 input elements at a pitch of 4 bytes in host memory, and of 6 output
# elements at a pitch of 8. Its host bus has 4 bytes.
WIDE = dataclasses.replace(TINY, name="wide", rows=3, cols=6)
NO_TABLES = dataclasses.replace(SQUARE, name="no tables", tables=0)
WINDOW = 2 * PAGE
TILES = 16
COPY = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}


def read(**changes: int) -> bytes:
    return encode(Opcode.READ_HOST_MEMORY, **{**COPY, **changes})


def write(**changes: int) -> bytes:
    return encode(Opcode.WRITE_HOST_MEMORY, **{**COPY, **changes})


def read_alternate(**changes: int) -> bytes:
    return encode(Opcode.READ_HOST_MEMORY_ALTERNATE, **{**COPY, **changes})


def write_alternate(**changes: int) -> bytes:
    return encode(Opcode.WRITE_HOST_MEMORY_ALTERNATE, **{**COPY, **changes})


def parameters(**changes: int) -> bytes:
    return encode(Opcode.LOAD_PARAMETERS, **{"host": 0, "parameter": 0, "count": 1, **changes})


def table(**changes: int) -> bytes:
    return encode(Opcode.LOAD_TABLE, **{"host": 0, "table": 0, **changes})


def weights(tile: int = 0, count: int = 1) -> bytes:
    return encode(Opcode.READ_WEIGHTS, tile=tile, count=count)


def multiply(**changes: int) -> bytes:
    at = {"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 1}
    return encode(Opcode.MATRIX_MULTIPLY, **{**at, **changes})


def activate(**changes: int) -> bytes:
    at = {"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": 1, "parameter": 0}
    return encode(Opcode.ACTIVATE, **{**at, **changes})


def convolve(**changes: int) -> bytes:
    at = {"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1}
    return encode(Opcode.CONVOLVE, **{**at, **changes})


def depthwise(**changes: int) -> bytes:
    at = {"buffer": 0, "taps": 200, "destination": 400, "blocks": 1, "parameter": 0}
    return encode(Opcode.DEPTHWISE, **{**at, **changes})


def pool(**changes: int) -> bytes:
    at = {"buffer": 0, "destination": 400, "blocks": 1, "parameter": 0, "reduction": Reduction.MAX}
    return encode(Opcode.POOL, **{**at, **changes})


def vector(**changes: int) -> bytes:
    at = {"operation": Operation.ADD, "buffer": 0, "operand": 200, "destination": 400, "rows": 1}
    return encode(Opcode.VECTOR, **{**at, "parameter": 0, **changes})


def requirement(**changes: int) -> bytes:
    """Return a Require_Machine with the numbers of `TINY`, or with changed numbers."""
    machine = {"rows": 4, "columns": 4, "host_bus": 4, "weight_bus": 4}
    return encode(Opcode.REQUIRE_MACHINE, **{**machine, **changes})


def patched(word: bytes, bit: int, value: int, width: int) -> bytes:
    """Return an instruction word with `width` bits from bit `bit` on replaced by `value`.

    So a test can set a value that encode() would refuse.
    """
    number = int.from_bytes(word, "little")
    number = number & ~(((1 << width) - 1) << bit) | value << bit
    return number.to_bytes(16, "little")
