# SPDX-License-Identifier: Apache-2.0
"""The numbers of instructions and of the codes in their fields, and the limits of both."""

from __future__ import annotations

from enum import IntEnum, IntFlag

INSTRUCTION_BYTES = 16
OPCODE_BITS = 8
PARAMETER_PLANES = 9
"""Lines of one parameter entry: 4 byte planes of bias, 4 of multiplier, 1 of shift."""
TABLE_BYTES = 256
CURVE_ENTRIES = 513
"""Number of values that describe a curve. They are the ends of its straight lines, from the least
argument to the largest.
"""
CURVE_SHIFT = 7
"""Number of low bits of a curve's argument. They are the argument's place between the two ends of a
straight line.
"""
CURVE_TABLES = 5
"""Number of successive tables that hold a curve. The last one holds only one number."""
LONG_TABLES = 4
"""Number of successive tables that together hold one table of int32."""
WEIGHT_READS_IN_FLIGHT = 8
"""Largest number of Read_Weights instructions that may have tiles in the weight queue at one time.
"""
REGISTERS = 8
"""Index registers of the scalar unit; register 0 is always zero."""
LOOP_DEPTH = 4
"""Loops that may be open at one time."""
DEPTHWISE_TAPS = 64
"""Taps of the largest kernel of Depthwise."""
TANH_INTEGER_BITS = 4
"""Largest number of integer bits of the argument of functions TANH and EXP."""
RECIPROCAL, INVERSE_ROOT = 5, 6
"""Values of `table` for 1/x and 1/sqrt(x) with function EXP; smaller values are integer bits."""
QUOTIENT_BITS = 15
"""Number of bits by which QUOTIENT shifts a dividend to the left if the divisor is 0 or -1. Each
bit of a larger divisor takes one off.
"""
RECIPROCAL_START, RECIPROCAL_SLOPE = 1515870810, -1010580540
"""Constants 48/17 and -32/17 with 29 fractional bits. A partition begins its reciprocal with the
straight line that they describe.
"""
PARTITION_ZEROS = 4
"""Least number of leading zeros of a sum for which a partition computes a reciprocal."""
PARTITION_SHIFT = 35
"""Number from which the leading zeros of a sum are subtracted, to get a partition's right shift."""
EXPONENT_REGISTERS = 8
"""Exponent registers of the activation unit; register 0 is always zero."""
RANDOM_LANES = 8
"""Columns that one generator of Random serves."""
RANDOM_WARM_UP = 16
"""Steps that a generator of Random makes before the step for its first line."""
RANDOM_GROUP = 0x1E3779B97F4A7C15
"""Factor that, times the number of a generator, gives each generator of Random its own first state.
"""
DITHER_BITS = 4
"""Bits of the random number that a stochastic rounding adds."""
TAGS_WAITING = 8
"""Largest number of Debug_Tag instructions that wait without holding up later instructions."""


class Opcode(IntEnum):
    """The first byte of an instruction. Zero is no opcode: cleared memory must not run."""

    NOP = 0x01
    HALT = 0x02
    SYNCHRONIZE = 0x03
    INTERRUPT_HOST = 0x04
    SYNCHRONIZE_HOST = 0x05
    DEBUG_TAG = 0x06
    REQUIRE_MACHINE = 0x07
    SET_REGISTER = 0x08
    LOOP = 0x09
    END_LOOP = 0x0A
    SET_CONFIG_WINDOW = 0x0C
    SET_CONFIG_SCALE = 0x0D
    READ_HOST_MEMORY = 0x10
    WRITE_HOST_MEMORY = 0x11
    LOAD_PARAMETERS = 0x12
    LOAD_TABLE = 0x13
    READ_HOST_MEMORY_ALTERNATE = 0x14
    WRITE_HOST_MEMORY_ALTERNATE = 0x15
    READ_WEIGHTS = 0x20
    MATRIX_MULTIPLY = 0x30
    CONVOLVE = 0x31
    ACTIVATE = 0x40
    DEPTHWISE = 0x41
    POOL = 0x42
    VECTOR = 0x43
    MEASURE = 0x44
    TRANSPOSE = 0x45
    RANDOM = 0x46
    SEND = 0x58
    RECEIVE = 0x59
    REDUCE = 0x5A
    BARRIER = 0x5B


class Function(IntEnum):
    """The `function` field of Activate, Depthwise and Vector."""

    NONE = 0
    RELU = 1
    RELU6 = 2
    TABLE = 3
    SIGMOID = 4
    TANH = 5
    EXP = 6
    QUOTIENT = 7


GATES = (Function.SIGMOID, Function.TANH, Function.EXP)
"""The functions of the gate lanes: int16 in, int16 out."""


class Rounding(IntEnum):
    """The `rounding` field of Activate, Depthwise, Pool and Vector."""

    DOUBLE = 0
    SINGLE = 1


class Reduction(IntEnum):
    """The `reduction` field of Pool."""

    MAX = 0
    AVERAGE = 1
    SUM = 2


class Operation(IntEnum):
    """The `operation` field of Vector."""

    COPY = 0
    ADD = 1
    SUBTRACT = 2
    MULTIPLY = 3


class Source(IntEnum):
    """The `source` field of Measure."""

    NONE = 0
    ACCUMULATORS = 1
    LINES = 2


class Side(IntEnum):
    """The `side` field of Send, Receive and Reduce: a neighbour in the ring."""

    LEFT = 0
    RIGHT = 1


class LinkPart(IntFlag):
    """Parts of a core's link unit, as FAULT_ADDRESS names them."""

    SEND_LEFT = 1
    SEND_RIGHT = 2
    RECEIVE_LEFT = 4
    RECEIVE_RIGHT = 8
    BARRIER = 16


class Unit(IntFlag):
    """Bits of the `wait` field of Debug_Tag: the units that it waits for."""

    HOST_READER = 1
    MATRIX_UNIT = 2
    ACTIVATION_UNIT = 4
    HOST_WRITER = 8
