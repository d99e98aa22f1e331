# SPDX-License-Identifier: Apache-2.0
"""Instructions of the program itself: its end, waiting, loops, registers and settings."""

from __future__ import annotations

from systola.arch.isa.codes import LOOP_DEPTH, TAGS_WAITING, Opcode, Unit
from systola.arch.isa.faults import Fault
from systola.arch.isa.fields import (
    CEILING,
    Executor,
    Field,
    Instruction,
    beside,
    registers,
)

_DEBUG_TAG = f"""\
`tag` and the number of cycles since START enter the trace of the registers. They enter in the first
cycle in which all earlier instructions of the units in `wait` have completed, and all earlier tags
have entered. Tags enter one a cycle, in program order. Bits of `wait`:

- 0, host_reader: Read_Host_Memory and its alternate, Load_Parameters and Load_Table, once the last
  line, entry or byte is on the chip.
- 1, matrix_unit: MatrixMultiply and Convolve, once the last sum is in the accumulators.
- 2, activation_unit: Activate, Depthwise, Pool, Vector, Measure, Transpose and Random, once the
  last line is in the buffer.
- 3, host_writer: Write_Host_Memory and its alternate, once the last write is acknowledged.

There is no bit for Read_Weights. Later instructions consume its tiles, and a MatrixMultiply that
has completed has had its tiles.

With `wait` = 0, the tag enters in the cycle after its issue, if no other tag waits. Later
instructions are not held up. Only a Debug_Tag is, while {TAGS_WAITING} tags wait.

The instruction completes when its tag enters. Synchronize, and the instructions that wait like it,
wait for all tags. So does the end of a program by Halt or by a fault found before issue. A bus
error and SOFT_RESET drop the tags that wait. There is no other effect."""

_SET_CONFIG_WINDOW = """\
A feature map in the buffer is H rows of W pixels. There are OH x OW windows.

1. Row y starts `pitch` lines after row y - 1.
2. Tap (i, j) of window (p, q) is the pixel at row y = `top` + p * `stride_y` + i * `dilation_y`
   and column x = `left` + q * `stride_x` + j * `dilation_x`.
3. The tap is inside the map if 0 <= y < H and 0 <= x < W.

Padding before the map is a negative `top` or `left`. Padding after it follows from OH and OW. The
window holds until the next Set_Config_Window or the end of the program.

A line holds one pixel of a block. So the instructions that use the window need W <= `pitch`, or end
in the fault WINDOW. Convolve with packed channels has a rule of its own."""

_REQUIRE_MACHINE = """\
The instruction does nothing on a machine that has an array of `rows` x `columns` and buses of
`host_bus` and `weight_bus` bytes. On any other machine the program ends.

These four numbers decide the places of bytes: in lines, in weight tiles, and in both memories. A
program that is built for other numbers may break no other rule and still write wrong bytes. Sizes
of memories are not among them, as each range has a fault of its own.

The tools put this instruction first in every program that they make. A program may leave it out.

- OTHER_MACHINE: one of the four numbers is not the machine's."""

_HALT = """\
1. All earlier instructions complete.
2. Weight tiles that no instruction has consumed are dropped.
3. DONE appears in STATUS.

Instructions after Halt are never executed. A fault drops the tiles, too. So every program starts
with an empty weight queue, index registers of zero, no open loop, no window and a scale of
zeros."""

_SYNCHRONIZE = """\
The next instruction starts when all earlier instructions have completed, and host memory has
acknowledged all their writes. Weight tiles may still be on their way.

A program has the same result without this instruction. It serves measurements, and hosts that
watch memory."""

_INTERRUPT_HOST = """\
1. The instruction waits like Synchronize.
2. `code` appears in IRQ_CODE, and the PROGRAM bit of IRQ_STATUS is set.
3. The program goes on."""

_SYNCHRONIZE_HOST = """\
1. The instruction waits like Synchronize.
2. The WAITING bit of STATUS is set until the host writes RESUME to CONTROL.
3. The program goes on. The instructions after this one see all that the host wrote to its memory
   before RESUME.

A RESUME that comes while no instruction waits is kept for the next Synchronize_Host. At most one is
kept, and none from one program to the next."""

_SET_REGISTER = """\
Register `register` becomes register `first` + register `second` + `value`, modulo 2^32.

An operand with an index register means the sum of its field and that register, modulo 2^width of
the field. Every check is made with the sum."""

_LOOP = f"""\
The instructions up to the matching End_Loop run `count` times. As for every operand, `count` means
the sum with its index register. Up to {LOOP_DEPTH} loops may be open.

- LOOP: `count` is 0, or {LOOP_DEPTH} loops are open already."""

_END_LOOP = """\
If the innermost open loop has iterations left, the program goes on with the instruction after its
Loop. Otherwise the loop is closed, and the program goes on with the instruction after End_Loop.

- LOOP: no loop is open."""

CONTROL: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.NOP,
        executor=Executor.SEQUENCER,
        summary="Does nothing.",
        semantics="No effect.",
    ),
    Instruction(
        opcode=Opcode.HALT,
        executor=Executor.SEQUENCER,
        summary="Ends the program.",
        semantics=_HALT,
    ),
    Instruction(
        opcode=Opcode.SYNCHRONIZE,
        executor=Executor.SEQUENCER,
        summary="Waits for the units.",
        semantics=_SYNCHRONIZE,
    ),
    Instruction(
        opcode=Opcode.INTERRUPT_HOST,
        executor=Executor.SEQUENCER,
        fields=(Field(name="code", width=16, doc="value for the host", default=0),),
        summary="Raises the interrupt with a code.",
        semantics=_INTERRUPT_HOST,
    ),
    Instruction(
        opcode=Opcode.SYNCHRONIZE_HOST,
        executor=Executor.SEQUENCER,
        summary="Waits for the host.",
        semantics=_SYNCHRONIZE_HOST,
    ),
    Instruction(
        opcode=Opcode.DEBUG_TAG,
        executor=Executor.SEQUENCER,
        fields=(
            Field(name="tag", width=16, doc="value for the trace", default=0),
            Field(
                name="wait",
                width=len(Unit),
                doc="units that it waits for, the sum of: "
                + ", ".join(f"{int(unit)} {str(unit.name).lower()}" for unit in Unit),
                default=0,
            ),
        ),
        summary="Marks a point of the program in the trace, or the completion of work.",
        semantics=_DEBUG_TAG,
    ),
    Instruction(
        opcode=Opcode.REQUIRE_MACHINE,
        executor=Executor.DECODER,
        fields=(
            Field(name="rows", width=12, doc="R: rows of the array"),
            Field(name="columns", width=12, doc="C: columns of the array"),
            Field(name="host_bus", width=12, doc="bytes of a beat on the host port"),
            Field(name="weight_bus", width=12, doc="bytes of a beat on the weight port"),
        ),
        checks=(Fault.OTHER_MACHINE,),
        summary="Stops a program that was built for another machine.",
        semantics=_REQUIRE_MACHINE,
    ),
    Instruction(
        opcode=Opcode.SET_REGISTER,
        executor=Executor.SCALAR_UNIT,
        fields=(
            *beside(
                Field(name="first", width=3, doc="register that is added", default=0),
                Field(name="second", width=3, doc="register that is added, too", default=0),
                Field(name="register", width=3, doc="register that is set, 1 to 7", minimum=1),
            ),
            Field(name="value", width=32, signed=True, doc="constant", default=0, at=32),
        ),
        summary="Computes an index register.",
        semantics=_SET_REGISTER,
    ),
    Instruction(
        opcode=Opcode.LOOP,
        executor=Executor.SCALAR_UNIT,
        fields=(
            *registers("count"),
            Field(name="count", width=32, doc="iterations", at=32),
        ),
        checks=(Fault.LOOP,),
        summary="Opens a loop.",
        semantics=_LOOP,
    ),
    Instruction(
        opcode=Opcode.END_LOOP,
        executor=Executor.SCALAR_UNIT,
        checks=(Fault.LOOP,),
        summary="Ends the body of the innermost loop.",
        semantics=_END_LOOP,
    ),
    Instruction(
        opcode=Opcode.SET_CONFIG_WINDOW,
        executor=Executor.DECODER,
        fields=(
            Field(name="height", width=12, doc="H: rows of the feature map", minimum=1),
            Field(name="width", width=12, doc="W: pixels of a row", minimum=1),
            Field(name="pitch", width=12, doc="lines from one row to the next", minimum=1),
            Field(name="kernel_height", width=8, doc="rows of the window", minimum=1),
            Field(name="kernel_width", width=8, doc="columns of the window", minimum=1),
            Field(name="stride_y", width=8, doc="rows from window to window", minimum=1),
            Field(name="stride_x", width=8, doc="columns from window to window", minimum=1),
            Field(name="dilation_y", width=4, doc="rows from tap to tap", minimum=1),
            Field(name="dilation_x", width=4, doc="columns from tap to tap", minimum=1),
            Field(name="top", width=12, signed=True, doc="row of the first window", default=0),
            Field(name="left", width=8, signed=True, doc="column of the first window", default=0),
            Field(name="out_height", width=12, doc="OH: windows along a column", minimum=1),
            Field(name="out_width", width=12, doc="OW: windows along a row", minimum=1),
        ),
        summary="Sets the window that Convolve, Depthwise and Pool move over a feature map.",
        semantics=_SET_CONFIG_WINDOW,
    ),
    Instruction(
        opcode=Opcode.SET_CONFIG_SCALE,
        executor=Executor.DECODER,
        fields=(
            Field(name="multiplier_a", width=31, doc="multiplier of operand a", default=0),
            *beside(Field(name="shift_a", width=5, doc="right shift of operand a", default=0)),
            Field(name="multiplier_b", width=31, doc="multiplier of operand b", default=0),
            *beside(Field(name="shift_b", width=5, doc="right shift of operand b", default=0)),
            Field(name="zero_a", width=8, signed=True, doc="zero point of operand a", default=0),
            Field(name="zero_b", width=8, signed=True, doc="zero point of operand b", default=0),
            CEILING,
            Field(name="limit", width=15, doc="int16 results: bound, 0 for none", default=0),
        ),
        summary="Sets the scales of the operands of Vector.",
        semantics=(
            "All values hold for every Vector until the next Set_Config_Scale or the end of the "
            "program."
        ),
    ),
)
