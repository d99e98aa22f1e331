# SPDX-License-Identifier: Apache-2.0
"""The test of the matrix unit: MatrixMultiply and Convolve through its ports, against numpy.

It covers sums, order, 16-bit modes, windows, progress and cycles.
"""

import cocotb
import pytest

from systola.hdl.matrix import matrix_unit
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.verif.units.matrix.feature_map import Convolution, Window
from systola.verif.units.matrix.matrix_bench import (
    BETWEEN_COMMANDS,
    CONFIGS,
    FEED_LATENCY,
    FRONT_LATENCY,
    LINE_LISTS,
    Machine,
    unit,
)
from systola.verif.units.unit import run_unit, variants


def shape_of_a_map(**changes):
    """Return a window of 3x3 taps in 2x5 places on a padded map of 4x5; `changes` are of fields."""
    plain = {"height": 4, "width": 5, "pitch": 5, "kernel_height": 3, "kernel_width": 3}
    plain |= {"stride_y": 2, "stride_x": 1, "dilation_y": 1, "dilation_x": 1}
    plain |= {"top": -1, "left": -1, "out_height": 2, "out_width": 5}
    return Window(**{**plain, **changes})


@cocotb.test
@cocotb.parametrize(kind=["multiply", "convolve", "any"])
async def random_waits(dut, kind):
    """Check random commands while weights arrive at random, and older instructions block addresses.

    The test runs until the array had to wait for a row of a tile that was already swapped in.
    """
    bench = Machine(dut, f"waits {kind}")
    await bench.start()
    random = bench.random
    makers = {"multiply": bench.some_multiply, "convolve": bench.some_convolve, "any": bench.some}
    instructions = []
    while len(instructions) < 20 or not bench.holds:
        assert len(instructions) < 200, "never held"
        instructions.append(makers[kind]())
        slow = random.choice((0.2, 0.5, 1.0))

        def arrive(slow=slow):
            return random.random() < slow

        older = [name for name in bench.older_names if random.random() < 0.3]
        # The lists have entries for one command at a time, so they are filled when no vector of
        # another command waits for its issue.
        if older:
            await bench.drain(arrive, 0.8)
        await bench.run(instructions[-1], arrive, 0.8, older)
        if older:
            await bench.drain(arrive, 0.8)
        if random.random() < 0.5:
            await bench.step()
    await bench.finish(instructions)


def at_full_rate(bench, kind):
    """Make two commands with as many vectors for a tile as the next tile needs cycles to load."""
    period = max(bench.config.rows, bench.config.stages + 1)
    shape = {"rows": period, "k_tiles": 3, "n_tiles": 2}
    if "wide" in kind:
        shape |= {"wide_vectors": "vectors" in kind, "wide_weights": "weights" in kind}
        shape["k_tiles"] = 2
    if kind == "multiply" or "wide" in kind:
        return [bench.multiply(**shape, buffer=b, accumulator=a) for b, a in ((0, 0), (7, 3))]
    if kind == "convolve":
        convolution = Convolution(
            window=shape_of_a_map(),
            rows=bench.config.rows,
            buffer=9,
            plane=21,
            k_tiles=2,
            channels=0,
            fill=5,
        )
    else:
        # Rows of windows begin inside the map ("packed"), or a pixel to its left ("padded").
        rows = bench.config.rows
        channels = rows // 2
        window = shape_of_a_map(
            kernel_width=2, left=0 if kind == "packed" else -1, pitch=-(-5 * channels // rows)
        )
        convolution = Convolution(
            window=window,
            rows=rows,
            buffer=9,
            plane=0,
            k_tiles=1,
            channels=channels,
            fill=-5,
        )
    return [bench.convolve(convolution, accumulator=a, n_tiles=2) for a in (0, 7)]


@cocotb.test
@cocotb.parametrize(
    kind=["multiply", "wide vectors", "wide weights", "wide both", "convolve", "packed", "padded"]
)
async def full_rate(dut, kind):
    """Check that vectors follow each other without a gap at full rate.

    Only packed rows that begin inside the map have a gap, of one cycle.
    """
    bench = Machine(dut, kind)
    await bench.start()
    if "wide" in kind and not bench.config.wide:
        return
    instructions = at_full_rate(bench, kind)
    bench.fill()
    for instruction in instructions:
        await bench.run(instruction)
    expected, cycle = [], 0
    for issue in (issue for i in instructions for issue in i.issues):
        cycle += issue.missing is not None
        expected.append(cycle)
        cycle += 1
    assert (kind == "packed") == (cycle > len(expected))
    await bench.finish(instructions)
    second = len(instructions[0].issues)
    expected[second:] = [cycle + BETWEEN_COMMANDS for cycle in expected[second:]]
    assert bench.active == [bench.active[0] + cycle for cycle in expected], "a bubble"
    assert bench.active[0] == FRONT_LATENCY
    assert bench.holds == 0


@cocotb.test
async def one_vector_a_tile(dut):
    """Check that with one vector for each tile, the time to load a tile sets the pace.

    One vector is then issued every max(rows, stages + 1) cycles.
    """
    bench = Machine(dut, "one")
    await bench.start()
    period = max(bench.config.rows, bench.config.stages + 1)
    instruction = bench.multiply(
        buffer=3, accumulator=9, rows=1, k_tiles=7, n_tiles=2, accumulate=1
    )
    bench.fill()
    moving = 0
    bench.issues += instruction.issues
    bench.set(queue__command=instruction.command, queue__valid=1)
    while bench.issues:
        await bench.step()
        if bench.get("queue__pop"):
            bench.set(queue__valid=0)
        moving += bench.get("weights_moving")
        assert not bench.get("awaiting_weights")
    # The first tile was loaded early, so the second vector may come sooner than all later ones.
    first, second = bench.active[:2]
    assert first == FRONT_LATENCY and second - first <= period
    assert bench.active[1:] == list(range(second, second + period * 13, period))
    assert moving == 12 * (period - 1) + second - first - 1
    await bench.finish([instruction])


@cocotb.test
async def reasons(dut):
    """Check that the unit shows why it waits: for weights, or for an older instruction."""
    bench = Machine(dut, "reasons")
    await bench.start()
    instruction = bench.multiply(buffer=0, accumulator=0, rows=2, k_tiles=1, n_tiles=1)
    bench.issues += instruction.issues
    bench.set(queue__command=instruction.command, queue__valid=1)
    names = ("active", "awaiting_weights", "weights_moving")

    async def see(*expected, arrive=0, waits=()):
        await bench.step(arrive)
        if bench.get("queue__pop"):
            bench.set(queue__valid=0)
        assert bench.gets(*names) == expected
        assert {name for name in bench.older_names if bench.get("waits")[name]} == set(waits)

    bench.older = {"host_reading": {"base": 0, "end": 2}, "activate_reading": {"base": 0, "end": 2}}
    for _ in range(FRONT_LATENCY + 1):
        await see(0, 0, 0)
    for _ in range(4):
        await see(0, 1, 0, waits=bench.older)
    bench.older["host_reading"]["base"] = 2
    for _ in range(3):
        await bench.step(0)
    for _ in range(4):
        await see(0, 1, 0, waits={"activate_reading"})
    bench.older["activate_reading"]["base"] = 2
    for _ in range(4):
        await bench.step(0)
    await see(0, 1, 0, arrive=1)
    await see(0, 1, 0)
    await see(1, 0, 0)
    await see(0, 1, 0, arrive=1)
    await see(0, 1, 0, arrive=1)
    await see(1, 0, 0, arrive=1)
    await bench.finish([instruction])
    assert bench.holds == 2


@cocotb.test
@cocotb.parametrize(channels=[0, 1])
async def nothing_of_the_map(dut, channels):
    """Check that vectors above and below the map wait for no line, and have the value `fill`."""
    bench = Machine(dut, f"nothing {channels}")
    await bench.start()
    convolution = Convolution(
        window=shape_of_a_map(kernel_height=1, kernel_width=1, top=-3, stride_y=7),
        rows=bench.config.rows,
        buffer=9,
        plane=0,
        k_tiles=1,
        channels=channels,
        fill=-128,
    )
    instruction = bench.convolve(convolution, accumulator=2, n_tiles=1)
    assert {issue.line for issue in instruction.issues} == {None}
    await bench.run(instruction, advance=0.0, older=LINE_LISTS)
    await bench.finish([instruction])


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_matrix_unit(simulator, variant):
    assert matrix_unit.FRONT_LATENCY == FRONT_LATENCY + 1
    assert matrix_unit.COMMAND_GAP == BETWEEN_COMMANDS
    config = CONFIGS[variant]
    assert MatrixUnit.latency(config) == FEED_LATENCY + config.rows + config.stages + 2
    run_unit("test_matrix_unit", simulator, unit(variant), variant=variant)
