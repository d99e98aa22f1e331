# SPDX-License-Identifier: Apache-2.0
"""Tests of each instruction by itself, with corners of its operands, against the golden model.

The memory is described in instruction_bench. Instructions on feature maps and vectors are tested in
test_map_instructions.
"""

import cocotb
import pytest

from systola.arch.isa import (
    BY_OPCODE,
    LOOP_DEPTH,
    TANH_INTEGER_BITS,
    Fault,
    Function,
    Opcode,
    Rounding,
    encode,
)
from systola.arch.registers import Control, Interrupt, Register
from systola.verif.kit.launch import quick_simulators, run_machine
from systola.verif.plan.selection import thorough
from systola.verif.system.instruction_bench import (
    COUNT,
    ENTRIES,
    HALT,
    INPUT,
    LINES,
    OUTPUT,
    TILES,
    bench,
    check,
    image,
    read,
    shown_sums,
    sums,
    write,
)


@cocotb.test
async def nop(dut):
    tb = await bench(dut)
    await check(tb, *[encode(Opcode.NOP)] * 40)


@cocotb.test
async def halt(dut):
    """Check that instructions after Halt have no effect, not even a fault."""
    tb = await bench(dut)
    await tb.check_program(image(tb, HALT, write(tb), bytes(16), bytes(16)))


@cocotb.test
async def synchronize(dut):
    """Check that a copy after Synchronize waits for the copy before Synchronize.

    The later copy reads the bytes that the earlier copy writes.
    """
    tb = await bench(dut, latency=25, stall=0.2)
    sync = encode(Opcode.SYNCHRONIZE)
    await check(tb, read(tb), sync, write(tb), sync, sync, write(tb, host=INPUT))


@cocotb.test
async def interrupt_host(dut):
    """Check that Interrupt_Host raises the interrupt line, while the program runs on.

    The interrupt PROGRAM must be enabled for this. A write of 1 to the interrupt's bit in
    IRQ_STATUS lowers the line.
    """
    tb = await bench(dut, latency=20)
    code = encode(Opcode.INTERRUPT_HOST, code=0xBEEF)
    await check(tb, encode(Opcode.INTERRUPT_HOST, code=1), code)
    await tb.prepare(image(tb, read(tb), write(tb), code, read(tb), write(tb)))
    await tb.write(Register.IRQ_ENABLE, Interrupt.PROGRAM)
    await tb.write(Register.CONTROL, Control.START)
    await tb.ended()
    written = tb.host_window()[OUTPUT : OUTPUT + tb.config.cols]
    sent = tb.host_window()[INPUT : INPUT + tb.config.cols]
    common = min(tb.config.rows, tb.config.cols)
    assert (written[:common] == sent[:common]).all(), "the copy before it is not complete"
    assert await tb.read(Register.IRQ_CODE) == 0xBEEF
    await tb.write(Register.IRQ_STATUS, Interrupt.PROGRAM)
    assert not dut.irq.value
    await tb.write(Register.IRQ_ENABLE, Interrupt.DONE)
    await tb.soft_reset()


@cocotb.test
@cocotb.parametrize(
    (("rows", "blocks", "tail"), [(1, 1, 1), (5, 3, 2), (3, 2, None), (LINES, 1, None)]),
    opcode=[Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE],
)
async def read_host_memory(dut, rows, blocks, tail, opcode):
    tb = await bench(dut, latency=3, stall=0.2)
    tail = tail or tb.config.rows
    stride = (blocks + 1) * tb.config.input_pitch
    operands = {"host": INPUT + 0xF00, "rows": rows, "stride": stride, "blocks": blocks}
    copy = encode(opcode, buffer=2, tail=tail, **operands)
    await check(tb, read(tb), copy, write(tb))


@cocotb.test
@cocotb.parametrize(
    (
        ("rows", "blocks", "tail", "gap"),
        [(1, 1, 1, 0), (5, 3, 2, 1), (3, 2, None, 0), (4, 2, 1, -2), (4, 3, 2, -1)],
    ),
    opcode=[Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE],
)
async def write_host_memory(dut, rows, blocks, tail, gap, opcode):
    """Check host writes with `gap` pitches between the end of a row and the next row.

    If `gap` is negative, rows overlap.
    """
    tb = await bench(dut, latency=3, stall=0.2)
    tail = tail or tb.config.cols
    stride = (blocks + gap) * tb.config.output_pitch
    operands = {"host": OUTPUT + 0xF00, "rows": rows, "stride": stride, "blocks": blocks}
    copy = encode(opcode, buffer=2, tail=tail, **operands)
    await check(tb, read(tb), copy)


@cocotb.test
async def load_parameters(dut):
    """Check parameter entries that are replaced between two Activates of the same sums."""
    tb = await bench(dut, latency=10)
    use = encode(Opcode.ACTIVATE, accumulator=0, buffer=0, rows=4, n_tiles=2, parameter=1)
    load = encode(Opcode.LOAD_PARAMETERS, host=INPUT, parameter=2, count=1)
    output = OUTPUT + 0x1000
    await check(tb, *sums(tb), use, write(tb, 8), load, use, write(tb, 8, host=output))


@cocotb.test
async def load_table(dut):
    """Check results with every lookup table, before and after it is replaced."""
    tb = await bench(dut, latency=10)
    program = list(sums(tb))
    for step in range(2 * tb.config.tables):
        table = step % tb.config.tables
        program += [
            encode(Opcode.LOAD_TABLE, host=INPUT + 0x100 * step, table=table),
            encode(
                Opcode.ACTIVATE,
                accumulator=0,
                buffer=0,
                rows=8,
                n_tiles=1,
                parameter=0,
                function=Function.TABLE,
                table=table,
            ),
            write(tb, 8, host=OUTPUT + 0x200 * step),
        ]
    await check(tb, *program)


@cocotb.test
async def read_weights(dut):
    """Check as many Read_Weights as may be under way; some tiles are out of order or read twice."""
    tb = await bench(dut, latency=12, stall=0.2)
    program = [read(tb), encode(Opcode.LOAD_PARAMETERS, host=ENTRIES, parameter=0, count=COUNT)]
    program += [encode(Opcode.READ_WEIGHTS, tile=(5 * n) % TILES, count=1) for n in range(7)]
    program += [encode(Opcode.READ_WEIGHTS, tile=0, count=5)]
    for k_tiles in (5, 7):
        multiply = {"buffer": 0, "accumulator": 0, "rows": 2, "k_tiles": k_tiles, "n_tiles": 1}
        program += [
            encode(Opcode.MATRIX_MULTIPLY, **multiply),
            encode(Opcode.ACTIVATE, accumulator=0, buffer=20, rows=2, n_tiles=1, parameter=0),
            write(tb, 2, buffer=20, host=OUTPUT + 0x100 * k_tiles),
        ]
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(accumulate=[0, 1], rows=[1, 4], shape=[(1, 1), (3, 2), (2, 3)])
async def matrix_multiply(dut, accumulate, rows, shape):
    tb = await bench(dut, latency=2, stall=0.1)
    k_tiles, n_tiles = shape
    multiply = {"buffer": 1, "accumulator": 2, "rows": rows, "accumulate": accumulate}
    program = (
        *sums(tb),
        encode(Opcode.READ_WEIGHTS, tile=1, count=k_tiles * n_tiles),
        encode(Opcode.MATRIX_MULTIPLY, **multiply, k_tiles=k_tiles, n_tiles=n_tiles),
        encode(Opcode.ACTIVATE, accumulator=0, buffer=0, rows=LINES, n_tiles=1, parameter=0),
        write(tb),
    )
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(accumulate=[0, 1], wide_vectors=[0, 1], wide_weights=[0, 1])
async def wide_matrix_multiply(dut, accumulate, wide_vectors, wide_weights):
    """Check products of int16 vectors or weights, with two tiles in depth and two in width."""
    tb = await bench(dut, latency=2, stall=0.1)
    how = {"accumulate": accumulate, "wide_vectors": wide_vectors, "wide_weights": wide_weights}
    multiply = {"buffer": 1, "accumulator": 2, "rows": 5, "k_tiles": 2, "n_tiles": 2}
    program = (
        *sums(tb),
        encode(Opcode.READ_WEIGHTS, tile=1, count=4 << wide_weights),
        encode(Opcode.MATRIX_MULTIPLY, **multiply, **how),
        *shown_sums(tb),
    )
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(function=[f for f in Function if f <= Function.TABLE], rounding=list(Rounding))
async def activate(dut, function, rounding):
    """Check Activate with all functions and roundings, and with two zero points.

    One of the ceilings is above its zero point, and the other is below.
    """
    tb = await bench(dut)
    program = [*sums(tb), encode(Opcode.LOAD_TABLE, host=INPUT, table=0)]
    for step, (zero_point, ceiling) in enumerate(((-20, 90), (50, 7))):
        program += [
            encode(
                Opcode.ACTIVATE,
                accumulator=1,
                buffer=3,
                rows=5,
                n_tiles=3,
                parameter=1,
                function=function,
                rounding=rounding,
                zero_point=zero_point,
                ceiling=ceiling,
            ),
            write(tb, host=OUTPUT + 0x800 * step),
        ]
    await check(tb, *program)


GATES = [(Function.SIGMOID, 9), *((Function.TANH, bits) for bits in range(TANH_INTEGER_BITS + 1))]
"""Functions of int16, each with its operand `table`, which has no meaning for SIGMOID."""


@cocotb.test
@cocotb.parametrize((("function", "table"), [(Function.NONE, 15), *GATES]), accumulate=[0, 1])
async def wide_activate(dut, function, table, accumulate):
    """Check int16 results of Activate, which replace earlier results or are added to them."""
    tb = await bench(dut)
    program = [*sums(tb)]
    for step, (rows, n_tiles, rounding) in enumerate(((1, 2, 0), (3, 1, 1))):
        where = {"accumulator": 2 * step, "buffer": 1 + step, "rows": rows, "n_tiles": n_tiles}
        how = {"function": function, "table": table, "wide": 1, "accumulate": accumulate}
        program += [
            encode(Opcode.ACTIVATE, **where, **how, parameter=4, rounding=rounding, zero_point=-90),
            write(tb, host=OUTPUT + 0x800 * step),
        ]
    await check(tb, *program)


@cocotb.test
async def set_register(dut):
    """Check that sums in index registers wrap at 32 bits.

    An operand to which a register is added wraps at the operand's own width.
    """
    tb = await bench(dut)
    pitch = tb.config.output_pitch
    registers = [
        {"register": 1, "value": -1},
        {"register": 2, "value": 1 << 20, "first": 1, "second": 1},  # the register becomes 2^20 - 2
        {"register": 3, "value": -(1 << 31), "first": 1},  # the register becomes 2^31 - 1
        {"register": 3, "value": 1, "first": 3, "second": 3},  # the register becomes 2^32 - 1
        {"register": 4, "value": pitch},
        {"register": 5, "value": OUTPUT, "first": 4, "second": 4},
        {"register": 5, "value": 5 * pitch, "first": 5},
        {"register": 6, "value": -(1 << 31)},
    ]
    copy = {"rows": 3, "stride": pitch, "blocks": 1, "tail": 1}
    where = [
        {"host": 0, "host_register": 5, "buffer": 7, "buffer_register": 0},
        {"host": 0x100, "host_register": 5, "buffer": 9, "buffer_register": 1},
        {"host": 0x200, "host_register": 5, "buffer": 9, "buffer_register": 2},
        {"host": 0x300, "host_register": 5, "buffer": 11, "buffer_register": 3},
        {"host": (1 << 31) + OUTPUT, "host_register": 6, "buffer": 3, "buffer_register": 6},
    ]
    activate = {"rows": 2, "n_tiles": 2, "accumulator": 3, "parameter": 1, "buffer": 1}
    indexed = {"accumulator_register": 1, "parameter_register": 2, "buffer_register": 3}
    program = [
        *sums(tb),
        *(encode(Opcode.SET_REGISTER, **operands) for operands in registers),
        *(encode(Opcode.WRITE_HOST_MEMORY, **copy, **operands) for operands in where),
        encode(Opcode.ACTIVATE, **{**activate, "parameter": 4}, **indexed),
        write(tb, 8, host=OUTPUT + 0x1000),
    ]
    await check(tb, *program)


END = encode(Opcode.END_LOOP)


def loop(count, register=0):
    return encode(Opcode.LOOP, count=count, count_register=register)


def step(register, value):
    return encode(Opcode.SET_REGISTER, register=register, value=value, first=register)


@cocotb.test
@cocotb.parametrize(counts=[(1, 1, 1, 1), (2, 3, 2, 2), (3, 1, 2, 1)])
async def loops(dut, counts):
    """Check as many nested loops as may be open.

    Each iteration of the innermost loop writes to another host address. A loop with an empty body
    follows the innermost loop.
    """
    tb = await bench(dut, latency=3)
    assert len(counts) == LOOP_DEPTH
    pitch = tb.config.output_pitch
    copy = {"buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 2}
    indexed = {"host_register": 1, "buffer_register": 2}
    program = [*sums(tb), step(3, -2), *(loop(count) for count in counts)]
    program += [step(1, pitch), step(2, 1)]
    program += [encode(Opcode.WRITE_HOST_MEMORY, host=OUTPUT, **copy, **indexed)]
    program += [END, loop(5, 3), END, *[END] * (LOOP_DEPTH - 1)]
    await check(tb, *program)


@cocotb.test
async def long_loop(dut):
    """Check a loop body that is too long for the ring of fetched instructions on the chip.

    Each iteration fetches the body again, and queues and uses weight tiles.
    """
    tb = await bench(dut, latency=7)
    multiply = {"buffer": 0, "accumulator": 0, "rows": 4, "k_tiles": 1, "n_tiles": 2}
    body = [
        step(4, 3),
        encode(Opcode.READ_WEIGHTS, tile=0, tile_register=4, count=2),
        *[encode(Opcode.NOP)] * tb.config.instruction_buffer,
        encode(Opcode.MATRIX_MULTIPLY, **multiply, buffer_register=4, accumulator_register=4),
    ]
    await check(tb, *sums(tb), loop(4), *body, END, *shown_sums(tb))


@cocotb.test
async def debug_tag(dut):
    tb = await bench(dut, latency=7)
    program = [encode(Opcode.DEBUG_TAG, tag=0xFFFF), read(tb), encode(Opcode.SYNCHRONIZE)]
    result = await check(tb, *program, encode(Opcode.DEBUG_TAG), write(tb))
    (before, first), (after, second) = result.tags
    assert (first, second) == (0xFFFF, 0)
    assert before + LINES < after, "the vectors took a cycle each"


@cocotb.test
async def require_machine(dut):
    """Check that Require_Machine passes with this machine's sizes, and stops at other sizes.

    The sizes are the array's rows and columns, and the widths of the buses. The instruction may be
    anywhere in the program.
    """
    tb = await bench(dut, latency=7)
    config = tb.config
    own = {"rows": config.rows, "columns": config.cols}
    own |= {"host_bus": config.host_bus_bytes, "weight_bus": config.weight_bus_bytes}
    right = encode(Opcode.REQUIRE_MACHINE, **own)
    await check(tb, right, read(tb), right, right, write(tb), right)
    for name, value in own.items():
        highest = BY_OPCODE[Opcode.REQUIRE_MACHINE].field(name).width - 1
        for other in (value ^ 1, value ^ 1 << highest, 0):
            wrong = encode(Opcode.REQUIRE_MACHINE, **{**own, name: other})
            program = image(tb, right, read(tb), write(tb), wrong, write(tb, host=OUTPUT + 0x800))
            await tb.check_program(program, fault=Fault.OTHER_MACHINE)
    await check(tb, right, read(tb), write(tb))


@cocotb.test
async def synchronize_host(dut):
    """Check that a copy after Synchronize_Host reads the host's changes, after earlier copies."""
    tb = await bench(dut, latency=25, stall=0.2)
    wait = encode(Opcode.SYNCHRONIZE_HOST)
    before = image(tb, read(tb), write(tb), wait, read(tb), write(tb, host=OUTPUT + 0x800))
    seen = []

    def on_wait(host):
        seen.append(host[OUTPUT : OUTPUT + 2].tolist())
        host[INPUT : INPUT + 2] = [1, 2]

    result = await tb.run_program(before, on_wait=on_wait)
    assert seen == [before.host[INPUT : INPUT + 2].tolist()]
    assert result.host[OUTPUT + 0x800 : OUTPUT + 0x802].tolist() == [1, 2]


@pytest.mark.parametrize("config", ["tiny", thorough("7x5")])
@pytest.mark.parametrize("simulator", quick_simulators())
def test_instructions(simulator, config):
    run_machine("system.test_instructions", simulator, config=config)
