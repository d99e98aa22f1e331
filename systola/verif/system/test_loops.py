# SPDX-License-Identifier: Apache-2.0
"""The test that loops cost the array no cycle, and that a host can stop an endless loop."""

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import LOOP_DEPTH, Opcode, encode
from systola.arch.registers import Register
from systola.golden.machine import Machine
from systola.hdl.control.sequencer import ISSUE_INTERVAL
from systola.sim.library import Simulator
from systola.timing.fetch import ENDS
from systola.verif.kit import scoreboard
from systola.verif.kit.images import make_image, random_memory, random_parameter_entry, random_tiles
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed

ROWS = 24
PARTS = 4
"""Number of parts of the operand and of the accumulators; a part has ROWS lines or rows."""
INPUT, ENTRY, OUTPUT, PAGES = 0x1000, 0x6000, 0x8000, 16
PROLOGUE = 8 * ISSUE_INTERVAL + 2 * ENDS
"""Cycles that loops may cost for their first and last instructions, eight in total.

Two of these are End_Loops, which wait. The host bus may be narrow, so instructions may come late.
The memory's latency is not included.
"""


def multiply(part, **registers):
    """Return instructions that multiply one part of the operand by a tile, and add to old sums."""
    at = {"buffer": part * ROWS, "accumulator": part * ROWS, "rows": ROWS}
    return [
        encode(Opcode.READ_WEIGHTS, tile=1, count=1),
        encode(Opcode.MATRIX_MULTIPLY, **at, k_tiles=1, n_tiles=1, accumulate=1, **registers),
    ]


def unrolled(times):
    return [word for _ in range(times**2) for part in range(PARTS) for word in multiply(part)]


def looped(times):
    """Return the unrolled products as three nested loops; register 1 moves from part to part."""
    inner = [
        encode(Opcode.SET_REGISTER, register=1),
        encode(Opcode.LOOP, count=PARTS),
        *multiply(0, buffer_register=1, accumulator_register=1),
        encode(Opcode.SET_REGISTER, register=1, first=1, value=ROWS),
        encode(Opcode.END_LOOP),
    ]
    begin, end = encode(Opcode.LOOP, count=times), encode(Opcode.END_LOOP)
    return [begin, begin, *inner, end, end]


def image_of(config, products):
    """Return an image that loads an operand and sums, runs `products` and writes the results."""
    data = np.random.default_rng(random_seed())
    host = random_memory(data, PAGES)
    entry = random_parameter_entry(data, config)
    host[ENTRY : ENTRY + entry.size] = entry
    all_rows = {"rows": PARTS * ROWS}
    copy = {**all_rows, "buffer": 0, "blocks": 1}
    reads = {"stride": config.input_pitch, "tail": config.rows}
    writes = {"stride": config.output_pitch, "tail": config.cols}
    whole = {"buffer": 0, "accumulator": 0, **all_rows, "n_tiles": 1}
    words = [
        encode(Opcode.READ_HOST_MEMORY, host=INPUT, **copy, **reads),
        encode(Opcode.LOAD_PARAMETERS, host=ENTRY, parameter=0, count=1),
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, **whole, k_tiles=1),
        # Wait until the operand is loaded: it shares the port of the instructions.
        encode(Opcode.SYNCHRONIZE),
        *products,
        encode(Opcode.ACTIVATE, **whole, parameter=0),
        encode(Opcode.WRITE_HOST_MEMORY, host=OUTPUT, **copy, **writes),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host, weights=random_tiles(data, config, 2), program_offset=0)


def measured(config, image, latency):
    """Run an image on the RTL, compare it with the golden model, and return the result."""
    expected = image.host.copy()
    outcome = Machine(config).run(expected, image.weights, image.program_offset)
    scoreboard.check_end(outcome.fault)
    simulator = Simulator(config, latency=latency, stall=0.0, seed=0)
    try:
        result = simulator.run(image, limit=100_000)
    finally:
        simulator.close()
    scoreboard.check_result(result, expected, outcome)
    return result


@pytest.mark.parametrize("latency", [0, 30])
def test_nested_loops_lose_no_cycle(latency):
    """Check that a loop never costs more than the same instructions in a row."""
    config = preset(preset_name())
    extra = []
    for times in (2, 4):
        plain = measured(config, image_of(config, unrolled(times)), latency)
        loops = measured(config, image_of(config, looped(times)), latency)
        vectors = (1 + times**2) * PARTS * ROWS
        assert loops.counters["array_active"] == plain.counters["array_active"] == vectors
        extra.append(loops.cycles - plain.cycles)
    # The last instruction may wait for its turn in a lane.
    turn = config.columns_per_lane - 1
    assert extra[0] == extra[1] <= PROLOGUE + turn + latency


def test_a_runaway_loop_can_be_stopped():
    config = preset(preset_name())
    endless = [encode(Opcode.LOOP, count=(1 << 32) - 1)] * LOOP_DEPTH
    endless += [*multiply(1), *[encode(Opcode.END_LOOP)] * LOOP_DEPTH]
    simulator = Simulator(config, latency=5, stall=0.1, seed=random_seed())
    try:
        simulator.run(image_of(config, endless), limit=100_000, abandon_after=5_000)
        assert simulator.read(Register.STATUS) == 0, "neither busy nor done"
        # The machine then runs another program with the right results.
        image = image_of(config, looped(2))
        expected = image.host.copy()
        outcome = Machine(config).run(expected, image.weights, image.program_offset)
        scoreboard.check_end(outcome.fault)
        scoreboard.check_result(simulator.run(image, limit=100_000), expected, outcome)
    finally:
        simulator.close()
