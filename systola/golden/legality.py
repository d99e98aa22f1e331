# SPDX-License-Identifier: Apache-2.0
"""ILLEGAL_FIELD: contents that no instruction word may have, in any state of the machine."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.config import Config
from systola.arch.isa import (
    GATES,
    INVERSE_ROOT,
    TANH_INTEGER_BITS,
    Function,
    Instruction,
    Opcode,
    Operation,
    reserved_bits,
)


def fields_legal(
    config: Config, entry: Instruction, operands: Mapping[str, int], word: bytes
) -> bool:
    """Return whether the instruction is free of ILLEGAL_FIELD.

    `operands` are effective: index registers have been added.
    """
    if reserved_bits(entry, word):
        return False
    for field in entry.fields:
        if field.indexes:
            continue
        value = operands[field.name]
        if field.minimum is not None and value < field.minimum:
            return False
        if field.values is not None and value not in tuple(field.values):
            return False
    bus = config.host_bus_bytes
    if operands.get("host", 0) % bus or operands.get("stride", 0) % bus:
        return False
    match entry.opcode:
        case Opcode.READ_HOST_MEMORY | Opcode.READ_HOST_MEMORY_ALTERNATE:
            return operands["tail"] <= config.rows
        case Opcode.WRITE_HOST_MEMORY | Opcode.WRITE_HOST_MEMORY_ALTERNATE:
            return operands["tail"] <= config.cols
        case Opcode.ACTIVATE if operands["stochastic"] and not config.training:
            return False
        case Opcode.ACTIVATE | Opcode.VECTOR:
            return _function_legal(config, operands)
        case Opcode.DEPTHWISE:
            return operands["function"] != Function.TABLE
        case _:
            return True


def _function_legal(config: Config, operands: Mapping[str, int]) -> bool:
    """Return whether the instruction may have its `function` together with its `wide`, `accumulate`
    and `table`.
    """
    function = operands["function"]
    if function == Function.QUOTIENT:
        # The instruction is an Activate or a Vector, and only Vector has an operation.
        operation = operands.get("operation")
        divides = config.training and operation == Operation.MULTIPLY
        bytes_only = operation == Operation.ADD and not operands["wide_operands"]
        looks_up = config.attention and (operation == Operation.COPY or bytes_only)
        partitions = config.attention and bytes_only  # if there is `accumulate`, but no `wide`
        return (divides or looks_up) and (operands["accumulate"] <= operands["wide"] or partitions)
    if not operands["wide"]:
        return not operands["accumulate"] and function not in GATES
    if function == Function.EXP and config.training:
        return operands["table"] <= INVERSE_ROOT
    if function in (Function.TANH, Function.EXP):
        return operands["table"] <= TANH_INTEGER_BITS
    if function == Function.TABLE:
        return config.attention
    return function in (Function.NONE, Function.SIGMOID)
