# SPDX-License-Identifier: Apache-2.0
"""The queue in front of a unit against a Python list: order, and masks that follow their lists."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.in_flight import CommandQueue
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

DEPTH = 3
LISTS = {"first": 4, "second": 2}
CYCLES = 3000


def unit():
    return CommandQueue(command=data.StructLayout({"tag": 12}), depth=DEPTH, lists=LISTS)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.4])
async def random_use(dut, rate):
    """Any mixture of push, pop and retirement, the new instruction's masks included."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("command_queue", rate)
    queue = []
    for _ in range(CYCLES):
        push = len(queue) < DEPTH and random.random() < rate
        pop = bool(queue) and random.random() < (0.5 if rate == 1 else rate)
        new = random.getrandbits(12), {name: random.getrandbits(n) for name, n in LISTS.items()}
        retired = {name: random.random() < 0.3 for name in LISTS}
        await bench.cycle(
            push=push,
            pushed={"tag": new[0]},
            pushed_masks=new[1],
            pop=pop,
            retired={name: int(value) for name, value in retired.items()},
        )
        assert bench.gets("valid", "full") == (bool(queue), len(queue) == DEPTH)
        if queue:
            masks = bench.get("masks")
            shown = bench.get("command").tag, {name: masks[name] for name in LISTS}
            assert shown == queue[0]
        if pop:
            queue.pop(0)
        if push:
            queue.append(new)
        queue = [
            (tag, {name: mask >> retired[name] for name, mask in masks.items()})
            for tag, masks in queue
        ]


@pytest.mark.parametrize("simulator", simulators())
def test_command_queue(simulator):
    run_unit("test_command_queue", simulator, unit())
