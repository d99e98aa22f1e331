# SPDX-License-Identifier: Apache-2.0
"""Every instruction by itself: corners of its operands, against the golden model.

Memory of all tests: the program in page 0; random bytes from INPUT on; parameter entries from
ENTRIES on; results from OUTPUT on.
"""

import cocotb
import numpy as np
import pytest

from systola.arch.isa import Function, Opcode, Rounding, encode
from systola.arch.registers import Control, Interrupt, Register
from systola.verif.kit.bench import TB
from systola.verif.kit.images import make_image, random_memory, random_parameter_entry, random_tiles
from systola.verif.kit.launch import run_machine, simulators
from systola.verif.kit.seeds import random_seed

INPUT, ENTRIES, OUTPUT, PAGES = 0x1000, 0x3000, 0x5000, 8
TILES, LINES = 8, 24
HALT = encode(Opcode.HALT)


async def bench(dut, **memory):
    tb = TB(dut, **memory)
    await tb.start()
    return tb


def image(tb, *program):
    """The program, with random data that is the same in every run with the same seed."""
    rng = np.random.default_rng(random_seed())
    host = random_memory(rng, PAGES)
    entries = np.concatenate([random_parameter_entry(rng, tb.config) for _ in range(4)])
    host[ENTRIES : ENTRIES + entries.size] = entries
    return make_image([*program, HALT], host=host, weights=random_tiles(rng, tb.config, TILES))


def read(tb, lines=LINES, buffer=0):
    """Fills buffer lines, one block a row, from INPUT."""
    return encode(
        Opcode.READ_HOST_MEMORY,
        host=INPUT,
        buffer=buffer,
        rows=lines,
        stride=tb.config.input_pitch,
        blocks=1,
        tail=tb.config.rows,
    )


def write(tb, lines=LINES, buffer=0, host=OUTPUT):
    """Shows buffer lines, one block a row, at OUTPUT."""
    return encode(
        Opcode.WRITE_HOST_MEMORY,
        host=host,
        buffer=buffer,
        rows=lines,
        stride=tb.config.output_pitch,
        blocks=1,
        tail=tb.config.cols,
    )


def sums(tb, rows=LINES):
    """Fills accumulator rows 0 to `rows` - 1 and parameter entries 0 to 3."""
    return (
        read(tb),
        encode(Opcode.LOAD_PARAMETERS, host=ENTRIES, parameter=0, count=4),
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=rows, k_tiles=1, n_tiles=1),
    )


@cocotb.test
async def nop(dut):
    tb = await bench(dut)
    await tb.check_program(image(tb, *[encode(Opcode.NOP)] * 40))


@cocotb.test
async def halt(dut):
    """What stands behind it has no effect, not even a fault."""
    tb = await bench(dut)
    await tb.check_program(image(tb, HALT, write(tb), bytes(16), bytes(16)))


@cocotb.test
async def synchronize(dut):
    """The copy that follows sees the one before, and takes place after it."""
    tb = await bench(dut, latency=25, stall=0.2)
    sync = encode(Opcode.SYNCHRONIZE)
    await tb.check_program(image(tb, read(tb), sync, write(tb), sync, sync, write(tb, host=INPUT)))


@cocotb.test
async def interrupt_host(dut):
    """With PROGRAM enabled the line rises while the program runs on; W1C makes it fall."""
    tb = await bench(dut, latency=20)
    code = encode(Opcode.INTERRUPT_HOST, code=0xBEEF)
    await tb.check_program(image(tb, encode(Opcode.INTERRUPT_HOST, code=1), code))
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
    (("rows", "blocks", "tail"), [(1, 1, 1), (5, 3, 2), (3, 2, None), (LINES, 1, None)])
)
async def read_host_memory(dut, rows, blocks, tail):
    tb = await bench(dut, latency=3, stall=0.2)
    tail = tail or tb.config.rows
    stride = (blocks + 1) * tb.config.input_pitch
    operands = {"host": INPUT + 0xF00, "rows": rows, "stride": stride, "blocks": blocks}
    copy = encode(Opcode.READ_HOST_MEMORY, buffer=2, tail=tail, **operands)
    await tb.check_program(image(tb, read(tb), copy, write(tb)))


@cocotb.test
@cocotb.parametrize(
    (
        ("rows", "blocks", "tail", "gap"),
        [(1, 1, 1, 0), (5, 3, 2, 1), (3, 2, None, 0), (4, 2, 1, -2), (7, 1, None, -1)],
    )
)
async def write_host_memory(dut, rows, blocks, tail, gap):
    """`gap` pitches between rows; where it is negative they overlap."""
    tb = await bench(dut, latency=3, stall=0.2)
    tail = tail or tb.config.cols
    stride = (blocks + gap) * tb.config.output_pitch
    operands = {"host": OUTPUT + 0xF00, "rows": rows, "stride": stride, "blocks": blocks}
    copy = encode(Opcode.WRITE_HOST_MEMORY, buffer=2, tail=tail, **operands)
    await tb.check_program(image(tb, read(tb), copy))


@cocotb.test
async def load_parameters(dut):
    """Entries replaced between two Activates of the same sums."""
    tb = await bench(dut, latency=10)
    use = encode(Opcode.ACTIVATE, accumulator=0, buffer=0, rows=4, n_tiles=2, parameter=1)
    load = encode(Opcode.LOAD_PARAMETERS, host=INPUT, parameter=2, count=1)
    output = OUTPUT + 0x1000
    await tb.check_program(
        image(tb, *sums(tb), use, write(tb, 8), load, use, write(tb, 8, host=output))
    )


@cocotb.test
async def load_table(dut):
    """Every table, before and after it is replaced."""
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
    await tb.check_program(image(tb, *program))


@cocotb.test
async def read_weights(dut):
    """As many reads as may be under way, tiles out of order and twice."""
    tb = await bench(dut, latency=12, stall=0.2)
    program = [read(tb), encode(Opcode.LOAD_PARAMETERS, host=ENTRIES, parameter=0, count=4)]
    program += [encode(Opcode.READ_WEIGHTS, tile=(5 * n) % TILES, count=1) for n in range(7)]
    program += [encode(Opcode.READ_WEIGHTS, tile=0, count=5)]
    for k_tiles in (5, 7):
        multiply = {"buffer": 0, "accumulator": 0, "rows": 2, "k_tiles": k_tiles, "n_tiles": 1}
        program += [
            encode(Opcode.MATRIX_MULTIPLY, **multiply),
            encode(Opcode.ACTIVATE, accumulator=0, buffer=20, rows=2, n_tiles=1, parameter=0),
            write(tb, 2, buffer=20, host=OUTPUT + 0x100 * k_tiles),
        ]
    await tb.check_program(image(tb, *program))


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
    await tb.check_program(image(tb, *program))


@cocotb.test
@cocotb.parametrize(function=list(Function), rounding=list(Rounding))
async def activate(dut, function, rounding):
    """Every function and rounding, two zero points, a ceiling below and above the zero point."""
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
    await tb.check_program(image(tb, *program))


@pytest.mark.parametrize("simulator", simulators())
def test_instructions(simulator):
    run_machine("system.test_instructions", simulator)
