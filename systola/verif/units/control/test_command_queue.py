# SPDX-License-Identifier: Apache-2.0
"""The test of a unit's command queue against a Python list: order, and masks that follow lists."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.control.command_queue import BLOCK_BITS, CommandQueue
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

VARIANTS = {"three": (3, 12), "two": (2, 12), "wide": (4, 250)}
"""The depth of the queue and the number of bits of a command; a wide command lies in block RAM."""
MASKS = {"first": 4, "second": 9}
LIST_DEPTH = 4
CYCLES = 3000


def unit(variant=None):
    depth, width = VARIANTS[variant or chosen_variant()]
    return CommandQueue(
        command=data.StructLayout({"tag": width}), depth=depth, masks=MASKS, list_depth=LIST_DEPTH
    )


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.4])
async def random_use(dut, rate):
    """Check a random mixture of pushes, pops, and entries that leave the lists.

    The masks of a command come a cycle after its push, and follow the lists from then on. A wide
    command is at the input for a cycle before its push.
    """
    bench = Bench(dut, unit())
    depth, width = VARIANTS[chosen_variant()]
    await bench.start()
    random = rng("command_queue", rate)
    waiting = []
    shows = False  # whether the oldest command is visible at the output
    without_masks = None  # command that was pushed in the cycle before, and gets its masks now
    tag = None  # tag of the command at the input, if the command was there in the cycle before
    for _ in range(CYCLES):
        full = len(waiting) == depth
        there = tag is not None or width < BLOCK_BITS
        push = not full and there and random.random() < rate
        tag = random.getrandbits(width) if tag is None else tag
        pop = shows and random.random() < (0.5 if rate == 1 else rate)
        new = tag, {}
        masks = {
            name: {
                "pending": random.getrandbits(1),
                "place": random.randrange(LIST_DEPTH),
                "run": random.randrange(LIST_DEPTH),
            }
            for name in MASKS
        }
        progress = {
            name: {
                "retires": random.random() < 0.3,
                "place": random.randrange(LIST_DEPTH),
                "reached": random.getrandbits(width),
            }
            for name, width in MASKS.items()
        }
        await bench.cycle(
            push=push, pushed={"tag": new[0]}, pushed_masks=masks, pop=pop, progress=progress
        )
        assert bench.gets("valid", "full") == (shows, full)
        if without_masks:
            without_masks[1].update({name: dict(mask) for name, mask in masks.items()})
        if shows:
            shown_tag, wanted = waiting[0]
            shown, blocked = bench.gets("masks", "blocked")
            assert bench.get("command").tag == shown_tag
            for name, mask in wanted.items():
                assert {field: shown[name][field] for field in mask} == mask
                assert blocked[name] == mask["pending"]
        clear = shows and not any(mask["pending"] for mask in waiting[0][1].values())
        bench.expect("unblocked", clear)
        for _, wanted in waiting:
            for name, mask in wanted.items():
                now = progress[name]
                mask["pending"] &= not (now["retires"] and now["place"] == mask["place"])
        if pop:
            waiting.pop(0)
        shows = bool(waiting)
        without_masks = new if push else None
        if push:
            waiting.append(new)
            tag = None


@pytest.mark.parametrize(("simulator", "variant"), variants(*VARIANTS))
def test_command_queue(simulator, variant):
    run_unit("test_command_queue", simulator, unit(variant), variant=variant)
