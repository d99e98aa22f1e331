# SPDX-License-Identifier: Apache-2.0
"""The queue in front of a unit against a Python list: order, and masks that follow their lists."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.control.command_queue import CommandQueue
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
    just_shown = False  # the oldest shows since this cycle, and was one of those that wait before
    without_masks = None  # what was pushed in the cycle before
    for _ in range(CYCLES):
        full = len(waiting) + just_shown == places
        push = not full and random.random() < rate
        pop = shown is not None and random.random() < (0.5 if rate == 1 else rate)
        new = random.getrandbits(12), {}, {}
        masks_now = {name: random.getrandbits(n) for name, n in LISTS.items()}
        retired = {name: random.random() < 0.3 for name in LISTS}
        await bench.cycle(
            push=push,
            pushed={"tag": new[0]},
            pushed_masks=masks_now,
            pop=pop,
            retired={name: int(value) for name, value in retired.items()},
        )
        assert bench.gets("valid", "full") == (shown is not None, full)
        if without_masks:
            without_masks[1].update(masks_now)
        if shown is not None:
            masks = bench.get("masks")
            blocked = bench.get("blocked")
            assert bench.get("command").tag == shown[0]
            assert {name: masks[name] for name in LISTS} == shown[1]
            assert {name: blocked[name] for name in LISTS} == shown[2]
        clear = shown is not None and not any(shown[2].values())
        assert bench.get("unblocked") == clear
        if pop:
            shown = None
        just_shown = shown is None and bool(waiting) and not just_shown
        if just_shown:
            shown = waiting.pop(0)
        everyone = waiting if shown is None else [shown, *waiting]
        for _, masks, blocked in everyone:
            for name in LISTS:
                blocked[name] = masks[name] != 0
                masks[name] >>= retired[name]
        without_masks = new if push else None
        if push:
            waiting.append(new)


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_command_queue(simulator, variant):
    run_unit("test_command_queue", simulator, unit(variant), variant=variant)
