# SPDX-License-Identifier: Apache-2.0
"""The queue in front of a unit against a Python list: order, and masks that follow their lists."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.command_queue import CommandQueue
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

VARIANTS = {"three": 3, "two": 2}
LISTS = {"first": 4, "second": 2}
CYCLES = 3000


def unit(variant=None):
    depth = VARIANTS[variant or chosen_variant()]
    return CommandQueue(command=data.StructLayout({"tag": 12}), depth=depth, lists=LISTS)


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.4])
async def random_use(dut, rate):
    """Any mixture of push, pop and retirement, the new instruction's masks included."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("command_queue", rate)
    places = VARIANTS[chosen_variant()] - 1
    shown, waiting = None, []
    for _ in range(CYCLES):
        push = len(waiting) < places and random.random() < rate
        pop = shown is not None and random.random() < (0.5 if rate == 1 else rate)
        new = random.getrandbits(12), {name: random.getrandbits(n) for name, n in LISTS.items()}
        retired = {name: random.random() < 0.3 for name in LISTS}
        await bench.cycle(
            push=push,
            pushed={"tag": new[0]},
            pushed_masks=new[1],
            pop=pop,
            retired={name: int(value) for name, value in retired.items()},
        )
        assert bench.gets("valid", "full") == (shown is not None, len(waiting) == places)
        if shown is not None:
            masks = bench.get("masks")
            assert (bench.get("command").tag, {name: masks[name] for name in LISTS}) == shown
        if pop:
            shown = None
        if shown is None and waiting:
            shown = waiting.pop(0)
        if push:
            waiting.append(new)
        everyone = waiting if shown is None else [shown, *waiting]
        for _, masks in everyone:
            for name in LISTS:
                masks[name] >>= retired[name]


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_command_queue(simulator, variant):
    run_unit("test_command_queue", simulator, unit(variant), variant=variant)
