# SPDX-License-Identifier: Apache-2.0
"""Programs one after the other without reset: what stays, what does not, and in what time."""

import cocotb
import numpy as np
import pytest

from systola.arch.isa import Opcode, encode
from systola.verif.kit.bench import TB
from systola.verif.kit.images import DATA_OFFSET, make_image, random_memory, random_tiles
from systola.verif.kit.launch import run_machine, simulators
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

HALT = encode(Opcode.HALT)


@cocotb.test
async def same_program_takes_the_same_cycles(dut):
    tb = TB(dut, latency=9, stall=0.2, seed=1)
    await tb.start()
    image = random_program(tb.config, f"{random_seed()} again")
    first = await tb.check_program(image)
    for _ in range(3):
        result = await tb.check_program(image)
        assert (result.cycles, result.counters) == (first.cycles, first.counters)


@cocotb.test
async def buffer_persists(dut):
    """The second program writes back what the first has read."""
    tb = TB(dut)
    await tb.start()
    config, rng = tb.config, np.random.default_rng(random_seed())
    copy = {"host": DATA_OFFSET, "buffer": 3, "rows": 5, "blocks": 1, "tail": 2}
    for opcode, pitch in (
        (Opcode.READ_HOST_MEMORY, config.input_pitch),
        (Opcode.WRITE_HOST_MEMORY, config.output_pitch),
    ):
        host = random_memory(rng, 2)
        await tb.check_program(make_image([encode(opcode, **copy, stride=pitch), HALT], host=host))


@cocotb.test
async def halt_drops_weights(dut):
    """Tiles that a program queues and does not use are not there for the next one."""
    tb = TB(dut, latency=20)
    await tb.start()
    config, rng = tb.config, np.random.default_rng(random_seed())
    multiply = {"buffer": 0, "accumulator": 0, "rows": 1, "n_tiles": 1}
    host, weights = random_memory(rng, 2), random_tiles(rng, config, 8)
    leftover = [encode(Opcode.READ_WEIGHTS, tile=0, count=8), HALT]
    await tb.check_program(make_image(leftover, host=host, weights=weights))
    underflow = [encode(Opcode.MATRIX_MULTIPLY, **multiply, k_tiles=1), HALT]
    result = await tb.check_program(make_image(underflow, host=host, weights=weights))
    assert result.fault_address == 0, "tiles were still queued"
    await tb.check_program(random_program(config, f"{random_seed()} after"))


@cocotb.test
async def shortest_programs(dut):
    tb = TB(dut)
    await tb.start()
    host = random_memory(np.random.default_rng(random_seed()), 1)
    for program in ([HALT], [encode(Opcode.NOP), HALT], [HALT]):
        for offset in (0, 128, 4096 - 128):
            await tb.check_program(make_image(program, host=host, program_offset=offset))


@pytest.mark.parametrize("simulator", simulators())
def test_back_to_back(simulator):
    run_machine("system.test_back_to_back", simulator)
