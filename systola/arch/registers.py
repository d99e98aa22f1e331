# SPDX-License-Identifier: Apache-2.0
"""The AXI4-Lite register map and the cycle classes: offsets and bits, defined here only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from systola.arch.config import HOST_PAGE_BYTES

IDENTITY = 0x5450_5531
"""Value of the ID register: 'TPU1'."""
VERSION = 5

TRACE_DEPTH = 64
"""Number of tags that the trace holds."""


class Register(IntEnum):
    """The 32-bit registers, by their byte offsets."""

    ID = 0x000
    VERSION = 0x004
    CONTROL = 0x008
    STATUS = 0x00C
    IRQ_ENABLE = 0x010
    IRQ_STATUS = 0x014
    IRQ_CODE = 0x018
    PROGRAM = 0x01C
    HOST_BASE_LO = 0x020
    HOST_BASE_HI = 0x024
    HOST_PAGES = 0x028
    WEIGHT_BASE_LO = 0x030
    WEIGHT_BASE_HI = 0x034
    WEIGHT_TILES = 0x038
    FAULT_CAUSE = 0x040
    FAULT_PC = 0x044
    FAULT_ADDRESS = 0x048
    BUS_TIMEOUT = 0x04C
    GEOMETRY = 0x050
    BUFFER_LINES = 0x054
    ACCUMULATOR_ROWS = 0x058
    FEATURES = 0x05C
    TAGS = 0x060
    COUNTERS = 0x100
    TRACE = 0x200


@dataclass(frozen=True)
class RegisterText:
    """The access ('RO', 'RW', 'RWL', 'WO' or 'W1C') and the meaning of one register.

    A register with RWL ignores writes while a program runs, so that its windows do not change.
    """

    access: str
    doc: str


REGISTER_TEXT: dict[Register, RegisterText] = {
    Register.ID: RegisterText("RO", f"0x{IDENTITY:08x}, the characters TPU1"),
    Register.VERSION: RegisterText("RO", "version of the register map and instruction set"),
    Register.CONTROL: RegisterText(
        "WO",
        "START: run the program at PROGRAM (ignored while BUSY). SOFT_RESET: abandon the program; "
        "outstanding bus transfers end in order, then BUSY falls, and STATUS, IRQ_STATUS and the "
        "FAULT registers are clear. Other registers keep their values. RESUME: lets the next or "
        "waiting Synchronize_Host pass",
    ),
    Register.STATUS: RegisterText(
        "RO", "BUSY, DONE (program ended at Halt), FAULT (it did not), WAITING (Synchronize_Host)"
    ),
    Register.IRQ_ENABLE: RegisterText("RW", "the interrupt is IRQ_STATUS & IRQ_ENABLE, any bit"),
    Register.IRQ_STATUS: RegisterText("W1C", "DONE, FAULT, PROGRAM (Interrupt_Host)"),
    Register.IRQ_CODE: RegisterText("RO", "code of the last Interrupt_Host"),
    Register.PROGRAM: RegisterText(
        "RWL", "byte offset of the program in the host window, a multiple of 128 (low bits read 0)"
    ),
    Register.HOST_BASE_LO: RegisterText("RWL", "bus address of the host window, 4 KiB aligned"),
    Register.HOST_BASE_HI: RegisterText("RWL", "upper bits of that address"),
    Register.HOST_PAGES: RegisterText("RWL", "size of the host window in 4 KiB pages, up to 2^20"),
    Register.WEIGHT_BASE_LO: RegisterText("RWL", "bus address of the weight window, 4 KiB aligned"),
    Register.WEIGHT_BASE_HI: RegisterText("RWL", "upper bits of that address"),
    Register.WEIGHT_TILES: RegisterText("RWL", "size of the weight window in tiles, up to 2^24"),
    Register.FAULT_CAUSE: RegisterText("RO", "why the program stopped, see the faults"),
    Register.FAULT_PC: RegisterText("RO", "number of the faulting instruction in the program"),
    Register.FAULT_ADDRESS: RegisterText("RO", "the offending address, see the faults"),
    Register.BUS_TIMEOUT: RegisterText(
        "RWL",
        "cycles for which a memory may owe the machine an answer, while nothing moves on any port, "
        "before the program ends with the fault BUS_TIMEOUT; 0: for ever",
    ),
    Register.GEOMETRY: RegisterText("RO", "array rows in bits 15:0, columns in bits 31:16"),
    Register.BUFFER_LINES: RegisterText("RO", "lines of the unified buffer"),
    Register.ACCUMULATOR_ROWS: RegisterText("RO", "rows of the accumulators"),
    Register.FEATURES: RegisterText("RO", "what this configuration has: FEATURES below"),
    Register.TAGS: RegisterText("RO", "tags of Debug_Tag that entered the trace since START"),
    Register.COUNTERS: RegisterText(
        "RO",
        "one pair of words (low, high; 48 bits) for each cycle class, in the order of the table "
        "below; cleared by START",
    ),
    Register.TRACE: RegisterText(
        "RO",
        f"the last {TRACE_DEPTH} tags as pairs of words: cycle since START (modulo 2^32; the "
        "counters sum to it in the cycle of the tag, the one after START being 1), tag. Number i "
        f"since START, from 0, is pair i modulo {TRACE_DEPTH}",
    ),
}

REGISTER_SPACE_BITS = 12
POD_IDENTITY = 0x5450_4F44
"""Value of the ID register of a pod: 'TPOD'."""


class PodRegister(IntEnum):
    """The registers of a pod, by their byte offsets in its page."""

    ID = 0x000
    VERSION = 0x004
    CONTROL = 0x008
    STATUS = 0x00C
    IRQ_ENABLE = 0x010
    IRQ_STATUS = 0x014
    CORES = 0x018
    FIRST_FAULT = 0x01C


POD_REGISTER_TEXT: dict[PodRegister, RegisterText] = {
    PodRegister.ID: RegisterText("RO", f"0x{POD_IDENTITY:08x}, the characters TPOD"),
    PodRegister.VERSION: RegisterText("RO", "as VERSION of a core"),
    PodRegister.CONTROL: RegisterText(
        "WO",
        "START: empties the links and starts all cores in the same cycle (ignored while BUSY). "
        "SOFT_RESET, RESUME: the same in each core",
    ),
    PodRegister.STATUS: RegisterText(
        "RO",
        "BUSY (a core is, or is about to start), DONE (all programs ended at Halt), FAULT (one of "
        "them did not, since START)",
    ),
    PodRegister.IRQ_ENABLE: RegisterText("RW", "the interrupt is IRQ_STATUS & IRQ_ENABLE, any bit"),
    PodRegister.IRQ_STATUS: RegisterText(
        "W1C",
        "DONE; FAULT, with the first fault, while others may still be BUSY; CORE, as long as the "
        "interrupt of a core is up",
    ),
    PodRegister.CORES: RegisterText("RO", "how many cores there are"),
    PodRegister.FIRST_FAULT: RegisterText(
        "RO",
        "with FAULT: FAULT_CAUSE of the core that had the first fault in bits 7:0, its number in "
        "bits 31:8; the other cores have faults of their own, POD_STOPPED where they had none",
    ),
}


class PodInterrupt(IntFlag):
    """The bits of IRQ_STATUS and IRQ_ENABLE of a pod."""

    DONE = 1
    FAULT = 2
    CORE = 4


def core_page(core: int) -> int:
    """Return the byte offset of the registers of a core of a pod; the first page is the pod's."""
    return (core + 1) << REGISTER_SPACE_BITS


def pod_space_bits(cores: int) -> int:
    """Return the number of address bits of the registers of a pod and its cores."""
    return REGISTER_SPACE_BITS + cores.bit_length()


BUS_TIMEOUT_BITS = 32
PROGRAM_ALIGNMENT = 128
"""Alignment of the start of a program in bytes, so that a fetch burst never leaves a page."""


class Control(IntFlag):
    """The bits of CONTROL."""

    START = 1
    SOFT_RESET = 2
    RESUME = 4


class Status(IntFlag):
    """The bits of STATUS."""

    BUSY = 1
    DONE = 2
    FAULT = 4
    WAITING = 8


class Feature(IntFlag):
    """The bits of FEATURES."""

    TABLES = 1
    DEPTHWISE = 2
    WIDE = 4
    PARITY = 8
    LINKS = 16
    ATTENTION = 32


class BusPort(IntFlag):
    """The bits of FAULT_ADDRESS after a BUS_TIMEOUT: the ports that wait for memory."""

    HOST_READ = 1
    HOST_WRITE = 2
    WEIGHT_READ = 4


DATA_ID, FETCH_ID = 0, 1
"""ARID on the host port of a read of data, and of a read of instructions."""


class CheckedMemory(IntFlag):
    """The bits of FAULT_ADDRESS after a MEMORY_ERROR: the memories in which a byte has a wrong
    parity.
    """

    UNIFIED_BUFFER = 1
    ACCUMULATORS = 2


class Interrupt(IntFlag):
    """The bits of IRQ_STATUS and IRQ_ENABLE."""

    DONE = 1
    FAULT = 2
    PROGRAM = 4


class CycleClass(IntEnum):
    """The classes of cycles. Each cycle of a program belongs to one class, so their counts sum to
    its duration."""

    ARRAY_ACTIVE = 0
    WEIGHT_STALL = 1
    WEIGHT_SHIFT = 2
    INPUT_STALL = 3
    OPERAND_STALL = 4
    ACCUMULATOR_STALL = 5
    VECTOR = 6
    OUTPUT_STALL = 7
    HOST_WAIT = 8
    FETCH = 9
    DRAIN = 10


CYCLE_CLASS_TEXT: dict[CycleClass, str] = {
    CycleClass.ARRAY_ACTIVE: "a vector enters the array",
    CycleClass.WEIGHT_STALL: "a row of the weight tile has not arrived from weight memory",
    CycleClass.WEIGHT_SHIFT: "the next tile is there, and the array is still taking the one before",
    CycleClass.INPUT_STALL: "the vector is still on its way from host memory",
    CycleClass.OPERAND_STALL: "the vector is still being written by Activate",
    CycleClass.ACCUMULATOR_STALL: "the accumulator row is still to be read by Activate",
    CycleClass.VECTOR: "no MatrixMultiply or Convolve waits, and the activation unit takes lines "
    "for Depthwise, Pool or Vector",
    CycleClass.OUTPUT_STALL: "no MatrixMultiply or Convolve waits, and an instruction cannot be "
    "issued because the queue of its unit is full or the units must drain for it",
    CycleClass.HOST_WAIT: "no MatrixMultiply or Convolve waits, and Synchronize_Host does",
    CycleClass.FETCH: "no MatrixMultiply or Convolve waits, and instructions are being fetched or "
    "decoded",
    CycleClass.DRAIN: "after Halt or a fault: the units finish",
}

COUNTER_BITS = 48


def program_registers(
    *, host_base: int, host_bytes: int, weight_base: int, tiles: int, program: int
) -> tuple[tuple[Register, int], ...]:
    """Return the registers that a host writes before START, in order, with their values.

    They set the windows and the program, and clear all pending interrupts. `host_base` and
    `weight_base` are bus addresses, and `host_bytes` is a size. All three are multiples of
    HOST_PAGE_BYTES. `tiles` is the size of the weight window. `program` is an offset in bytes in
    the host window.
    """
    return (
        (Register.HOST_BASE_LO, host_base & 0xFFFF_FFFF),
        (Register.HOST_BASE_HI, host_base >> 32),
        (Register.HOST_PAGES, host_bytes // HOST_PAGE_BYTES),
        (Register.WEIGHT_BASE_LO, weight_base & 0xFFFF_FFFF),
        (Register.WEIGHT_BASE_HI, weight_base >> 32),
        (Register.WEIGHT_TILES, tiles),
        (Register.PROGRAM, program),
        (Register.IRQ_STATUS, Interrupt.DONE | Interrupt.FAULT | Interrupt.PROGRAM),
    )


def counter_offset(which: CycleClass) -> int:
    """Return the byte offset of the low word of a counter."""
    return Register.COUNTERS + 8 * which


def trace_offset(number: int) -> int:
    """Return the byte offset of the word with the cycle, since START, of tag `number` of the trace.

    Tags are counted from 0. The tag itself is 4 bytes further.
    """
    return Register.TRACE + 8 * (number % TRACE_DEPTH)
