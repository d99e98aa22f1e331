# SPDX-License-Identifier: Apache-2.0
"""Tests of each instruction on feature maps and vectors by itself, at corners of its operands.

The memory is described in instruction_bench.
"""

import cocotb
import pytest

from systola.arch.isa import Function, Opcode, Operation, Reduction, encode
from systola.verif.kit.launch import quick_simulators, run_machine
from systola.verif.system.instruction_bench import (
    INPUT,
    OUTPUT,
    RESULTS,
    WINDOWS,
    bench,
    check,
    shown_sums,
    sums,
    window,
    write,
)


@cocotb.test
@cocotb.parametrize(shape=range(len(WINDOWS)))
async def convolve(dut, shape):
    """Check Convolve with a buffer line for each pixel.

    The first Convolve has one weight tile for each tap. The second adds two blocks of channels,
    which overlap in the buffer, to old sums.
    """
    tb = await bench(dut, latency=2, stall=0.1)
    changes = {"kernel_height": 2, **WINDOWS[shape]}
    taps = changes["kernel_height"] * changes.get("kernel_width", 3)
    where = {"buffer": 2, "plane": 20 + 5 * shape, "fill": -77}
    program = [
        *sums(tb, 64),
        window(**changes),
        encode(Opcode.READ_WEIGHTS, tile=3, count=taps),
        encode(Opcode.CONVOLVE, **where, accumulator=1, k_tiles=1, n_tiles=1),
        encode(Opcode.READ_WEIGHTS, tile=0, count=4 * taps),
        encode(Opcode.CONVOLVE, **where, accumulator=3, k_tiles=2, n_tiles=2, accumulate=1),
        *shown_sums(tb, 64),
    ]
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(channels=[1, 2, 3, None], place=["left", "inside", "right"])
async def packed_convolve(dut, channels, place):
    """Check Convolve with packed channels, and as many adjacent taps as the array takes.

    If `channels` is None, a line holds one pixel, and the kernel has a single tap.
    """
    tb = await bench(dut, latency=2, stall=0.1)
    size = tb.config.rows
    channels = channels or size
    most = size // channels
    changes = {
        **{"pitch": -(-6 * channels // size), "kernel_height": 2, "kernel_width": most},
        "left": {"left": -most, "inside": 1 - most, "right": (size - 1) // channels}[place],
        **{"stride_x": most, "out_height": 4, "out_width": 4},
    }
    where = {"buffer": 2, "plane": 12345, "k_tiles": 1, "channels": channels, "fill": 99}
    program = [
        *sums(tb, 40),
        window(**changes),
        encode(Opcode.READ_WEIGHTS, tile=3, count=6),
        encode(Opcode.CONVOLVE, **where, accumulator=1, n_tiles=1),
        window(**{**changes, "stride_x": 1}),
        encode(Opcode.CONVOLVE, **where, accumulator=2, n_tiles=2, accumulate=1),
        *shown_sums(tb, 40),
    ]
    await check(tb, *program)


@cocotb.test
async def set_config_window(dut):
    """Check that a window is valid for all instructions until the next Set_Config_Window."""
    tb = await bench(dut, latency=20)
    pool = {"buffer": 0, "blocks": 1, "parameter": 0, "reduction": Reduction.SUM}
    convolve = {"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1}
    small = {"kernel_height": 1, "kernel_width": 2, "out_height": 2, "out_width": 3}
    program = [
        *sums(tb),
        window(),
        encode(Opcode.READ_WEIGHTS, tile=0, count=9),
        encode(Opcode.POOL, **pool, destination=RESULTS),
        encode(Opcode.CONVOLVE, **convolve),
        window(**WINDOWS[2]),
        window(**small),
        encode(Opcode.POOL, **pool, destination=RESULTS + 30),
        encode(Opcode.POOL, **pool, destination=RESULTS + 36),
        write(tb, 42, buffer=RESULTS, host=OUTPUT + 0x2000),
        *shown_sums(tb, 30),
    ]
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(shape=range(len(WINDOWS)))
async def depthwise(dut, shape):
    """Check Depthwise with all its functions, on one block of channels and on two."""
    tb = await bench(dut)
    program = [*sums(tb), window(**{"out_height": 3, "out_width": 4, **WINDOWS[shape]})]
    for step, function in enumerate((Function.NONE, Function.RELU, Function.RELU6)):
        where = {"buffer": 3 + step, "taps": 70, "destination": RESULTS, "blocks": 1 + step % 2}
        how = {"zero_point": 11, "ceiling": 99, "rounding": (step + shape) % 2, "fill": 30 * step}
        program += [
            encode(Opcode.DEPTHWISE, **where, **how, parameter=step, function=function),
            write(tb, 60, buffer=RESULTS, host=OUTPUT + 0x800 * step),
        ]
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(kernel=[(8, 8), (64, 1), (1, 64)])
async def depthwise_with_most_taps(dut, kernel):
    tb = await bench(dut)
    where = {"buffer": 0, "taps": 30, "destination": RESULTS, "blocks": 1, "parameter": 2}
    changes = {"kernel_height": kernel[0], "kernel_width": kernel[1], "out_height": 1}
    program = [
        *sums(tb),
        window(**changes, out_width=2),
        encode(Opcode.DEPTHWISE, **where, fill=-3),
        write(tb, 2, buffer=RESULTS),
    ]
    await check(tb, *program)


@cocotb.test
@cocotb.parametrize(shape=range(len(WINDOWS)))
async def pool(dut, shape):
    """Check Pool with all reductions and all counts of taps inside the map.

    With the last of WINDOWS, the floor of the results is above their ceiling.
    """
    tb = await bench(dut)
    program = [*sums(tb), window(**{"out_height": 3, "out_width": 4, **WINDOWS[shape]})]
    for step, reduction in enumerate(Reduction):
        where = {"buffer": 3, "destination": RESULTS, "blocks": 1 + step % 2, "parameter": 0}
        how = {"zero_point": -5, "floor": -100, "ceiling": 80 - 27 * shape, "rounding": step % 2}
        program += [
            encode(Opcode.POOL, **where, **how, reduction=reduction),
            write(tb, 60, buffer=RESULTS, host=OUTPUT + 0x800 * step),
        ]
    await check(tb, *program)


def scale(**changes):
    factors = {"multiplier_a": 0x5678_9ABC, "multiplier_b": 0x4321_0FED, "shift_a": 2, "shift_b": 1}
    zeros = {"zero_a": 17, "zero_b": -90, "ceiling": 77}
    return encode(Opcode.SET_CONFIG_SCALE, **{**factors, **zeros, **changes})


VECTOR_FUNCTIONS = {
    0: [{"function": function, "table": 1} for function in (0, 1, 2, 3)],
    1: [
        {"function": Function.NONE, "table": 15},
        {"function": Function.NONE, "accumulate": 1},
        {"function": Function.SIGMOID},
        {"function": Function.TANH, "table": 3, "accumulate": 1},
    ],
}
"""Functions of Vector: for int8 results under key 0, and for int16 results under key 1."""


@cocotb.test
@cocotb.parametrize(operation=list(Operation), wide_operands=[0, 1], wide=[0, 1])
async def vector(dut, operation, wide_operands, wide):
    """Check Vector with results in lines of their own, and with results that replace an operand.

    Results can replace an operand only if they take as many lines.
    """
    tb = await bench(dut)
    a, b = 1, 30
    program = [*sums(tb), encode(Opcode.LOAD_TABLE, host=INPUT, table=1)]
    for step, how in enumerate(VECTOR_FUNCTIONS[wide]):
        result = (RESULTS, a, b, RESULTS)[step] if wide == wide_operands else RESULTS
        where = {"buffer": a, "operand": b, "destination": result, "rows": 2 + step // 2}
        what = {"operation": operation, "wide_operands": wide_operands, "wide": wide, **how}
        rest = {"parameter": 2 * step, "rounding": step % 2, "zero_point": -8}
        program += [
            scale(shift_a=3 * step, limit=5000 * (step % 2)),
            encode(Opcode.VECTOR, **where, **what, **rest),
            write(tb, 8, buffer=result, host=OUTPUT + 0x800 * step),
        ]
    await check(tb, *program)


@cocotb.test
async def set_config_scale(dut):
    """Check that all operands of Set_Config_Scale, also the ceiling, are 0 when a program starts.

    A Vector uses the last Set_Config_Scale before it.
    """
    tb = await bench(dut, latency=20)
    add = {"operation": Operation.ADD, "buffer": 0, "operand": 40, "rows": 3, "parameter": 0}
    for _ in range(2):
        program = [*sums(tb)]
        for step in range(4):
            function = Function.RELU6 if step < 2 else Function.NONE
            where = {"destination": RESULTS + 3 * step, "zero_point": -50}
            program.append(encode(Opcode.VECTOR, **add, **where, function=function))
            program += [scale(ceiling=30 + step, shift_b=step), scale(ceiling=-20, zero_a=step)]
        await check(tb, *program, write(tb, 12, buffer=RESULTS))


@pytest.mark.parametrize("simulator", quick_simulators())
def test_map_instructions(simulator):
    run_machine("system.test_map_instructions", simulator, config="7x5")
