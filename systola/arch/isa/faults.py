# SPDX-License-Identifier: Apache-2.0
"""Faults: the reasons for which a machine stops."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from systola.arch.isa.codes import DEPTHWISE_TAPS, LOOP_DEPTH, WEIGHT_READS_IN_FLIGHT, LinkPart


class Fault(IntEnum):
    """A reason for which a machine stopped. The value stands in the FAULT_CAUSE register."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    ILLEGAL_FIELD = 2
    BUFFER_RANGE = 3
    ACCUMULATOR_RANGE = 4
    PARAMETER_RANGE = 5
    TABLE_RANGE = 6
    HOST_WINDOW = 7
    WEIGHT_WINDOW = 8
    FETCH_WINDOW = 9
    WEIGHT_UNDERFLOW = 10
    WEIGHT_OVERFLOW = 11
    HOST_READ_ERROR = 12
    HOST_WRITE_ERROR = 13
    WEIGHT_READ_ERROR = 14
    FETCH_ERROR = 15
    UNAVAILABLE = 16
    WINDOW = 17
    OVERLAP = 18
    LOOP = 19
    BUS_TIMEOUT = 20
    MEMORY_ERROR = 21
    LINK_KIND = 22
    LINK_TIMEOUT = 23
    POD_STOPPED = 24
    OTHER_MACHINE = 25


FAULT_TEXT: Mapping[Fault, tuple[str, str]] = {
    Fault.NONE: ("no fault", "0"),
    Fault.ILLEGAL_OPCODE: ("the table of instructions has no such opcode", "the opcode"),
    Fault.ILLEGAL_FIELD: (
        "a bit outside the fields is set, a field is below its minimum or has no such value, "
        "`tail` exceeds the vector, `host` or `stride` is no multiple of the host bus width, or "
        "the instruction names a combination of fields that its text excludes",
        "0",
    ),
    Fault.BUFFER_RANGE: (
        "the last line is beyond the unified buffer",
        "first line of the region that does not fit: `buffer`, `taps`, `operand` or `destination`",
    ),
    Fault.ACCUMULATOR_RANGE: ("the last row is beyond the accumulators", "`accumulator`"),
    Fault.PARAMETER_RANGE: ("the last entry is beyond the parameter memory", "`parameter`"),
    Fault.TABLE_RANGE: ("there is no such table", "`table`"),
    Fault.HOST_WINDOW: ("the last byte is beyond the host window", "`host`"),
    Fault.WEIGHT_WINDOW: ("the last tile is beyond the weight window", "`tile`"),
    Fault.FETCH_WINDOW: (
        "the 16 bytes of the instruction are not wholly inside the host window",
        "byte offset of the instruction, modulo 2^32",
    ),
    Fault.WEIGHT_UNDERFLOW: (
        "the instruction needs more tiles than are in the weight queue: earlier Read_Weights have "
        "queued them, and no earlier MatrixMultiply or Convolve has consumed them",
        "tiles still queued",
    ),
    Fault.WEIGHT_OVERFLOW: (
        f"at least {WEIGHT_READS_IN_FLIGHT} Read_Weights ran before this one, and none of the last "
        f"{WEIGHT_READS_IN_FLIGHT} has had all its tiles consumed by earlier instructions",
        "`tile`",
    ),
    Fault.HOST_READ_ERROR: ("host memory answered a data read with an error", "0"),
    Fault.HOST_WRITE_ERROR: ("host memory answered a write with an error", "0"),
    Fault.WEIGHT_READ_ERROR: ("weight memory answered a read with an error", "0"),
    Fault.FETCH_ERROR: ("host memory answered an instruction fetch with an error", "0"),
    Fault.UNAVAILABLE: (
        "the instruction needs hardware that this configuration leaves out",
        "the opcode",
    ),
    Fault.WINDOW: (
        "no Set_Config_Window has run in this program, a row of the feature map is longer than "
        "its pitch, the window does not fit packed channels, or a kernel of Depthwise has more "
        f"than {DEPTHWISE_TAPS} taps",
        "0",
    ),
    Fault.OVERLAP: (
        "the lines of the result overlap the lines of an operand",
        "`destination`",
    ),
    Fault.LOOP: (
        f"a Loop inside {LOOP_DEPTH} open loops or without iterations, or an End_Loop without an "
        "open loop",
        "number of open loops",
    ),
    Fault.BUS_TIMEOUT: (
        "a memory has not answered for as many cycles as the register BUS_TIMEOUT has. FAULT_PC "
        "is 0. BUSY stays until the transfers under way have ended; if they never end, only the "
        "reset input of the machine helps",
        "the ports that wait for memory: 1 host reads, 2 host writes, 4 weight reads, or their sum",
    ),
    Fault.MEMORY_ERROR: (
        "a byte of the unified buffer or the accumulators has changed since it was written, in a "
        "configuration with PARITY. FAULT_PC is 0. The data that the program wrote to host memory "
        "may be wrong",
        "1 unified buffer, 2 accumulators, or their sum",
    ),
    Fault.LINK_KIND: (
        "lines came where a Reduce takes sums, or sums where a Receive takes lines. FAULT_PC is 0",
        "where they came from: 4 the left, 8 the right",
    ),
    Fault.LINK_TIMEOUT: (
        "instructions of the links wait for a neighbour that sends nothing, takes nothing or comes "
        "to no Barrier. Nothing has moved on the links of the pod for as many cycles as the "
        "register BUS_TIMEOUT has, or this core waits while another core ends with this fault. "
        "FAULT_PC is 0",
        "the parts with instructions that have not completed, the sum of: "
        + ", ".join(f"{int(part)} {str(part.name).lower()}" for part in LinkPart),
    ),
    Fault.POD_STOPPED: (
        "another core of the pod had a fault before this core had ended. FAULT_PC is 0",
        "0",
    ),
    Fault.OTHER_MACHINE: (
        "the program was built for a machine with another array or another bus than this machine "
        "has",
        "0",
    ),
}
"""Meaning of each cause, and the content of the FAULT_ADDRESS register with it."""
