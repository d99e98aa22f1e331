# SPDX-License-Identifier: Apache-2.0
"""The test of link units in a ring, with transfers of any size.

Links, memories and interlocks go at any pace.
"""

from __future__ import annotations

from collections import deque

import cocotb
import pytest

from systola.arch.isa import LinkPart
from systola.hdl.link.link_unit import SIDES
from systola.verif.units.link.link_bench import FULL, OTHER, PACES, PARTS, LinkUnits, Pod
from systola.verif.units.unit import chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    # Each name has two numbers: the beats of a line, and the beats of a row of sums.
    "1 and 4": small_config(links=True),
    "1 and 3": small_config(rows=5, cols=6, columns_per_stage=3, host_bus_bytes=8, links=True),
    "4 and 2": small_config(rows=16, cols=2, columns_per_stage=2, links=True),
    "1 and 1": small_config(host_bus_bytes=16, links=True),
}
CORES = {"1 and 4": 3, "1 and 3": 2, "4 and 2": 1, "1 and 1": 2}
LINES, ROWS = 24, 8
"""The numbers of buffer lines and of accumulator rows, from 0 on, that hold data to send.

The rest of each memory has two halves: for data from the left and for data from the right.
"""


def pod_of(dut, pace, name):
    config = CONFIGS[chosen_variant()]
    random = rng("link_unit", name, pace)
    return random, Pod(dut, config, CORES[chosen_variant()], random, pace)


def region(random, first, size):
    rows = random.randint(1, random.choice((2, size)))
    return random.randint(first, first + size - rows), rows


def plan(random, pod, core, side, count):
    """Plan random Sends of a core to one side, and Receives of all this data at the neighbour.

    Returns the neighbour, and the lines and rows of sums that it must then have, by address.
    """
    mine, side_there = pod.cores[core], OTHER[side]
    there = pod.cores[pod.neighbour(core, side)]
    config = CONFIGS[chosen_variant()]
    sent = deque()
    for _ in range(count):
        sums = random.getrandbits(1)
        place, rows = region(random, 0, ROWS if sums else LINES)
        mine.commands[f"send_{side}"].append({"sums": sums, "place": place, "rows": rows})
        sent += [(sums, place + i) for i in range(rows)]
    line_size = (config.buffer_lines - LINES) // 2
    row_size = (config.accumulator_rows - ROWS) // 2
    lines, sums_there = {}, {}
    while sent:
        sums = sent[0][0]
        alike = next((i for i, (kind, _) in enumerate(sent) if kind != sums), len(sent))
        size, first = (row_size, ROWS) if sums else (line_size, LINES)
        place, rows = region(random, first + size * (side_there == "right"), size)
        rows = min(rows, alike)
        adds = random.getrandbits(1)
        command = {"sums": sums, "adds": adds, "place": place, "rows": rows}
        there.commands[f"receive_{side_there}"].append(command)
        for i in range(rows):
            _, origin = sent.popleft()
            if not sums:
                lines[place + i] = mine.lines[origin]
                continue
            old = sums_there.get(place + i, there.sums[place + i])
            new = mine.sums[origin]
            if adds:
                new = [(a + b) % 2**32 for a, b in zip(old, new, strict=True)]
            sums_there[place + i] = new
    return there, lines, sums_there


@cocotb.test
@cocotb.parametrize(pace=range(len(PACES)))
async def transfers(dut, pace):
    """Check random Sends to both sides at once, while Receives divide the data in other places.

    The unit must report each instruction as done, once.
    """
    random, pod = pod_of(dut, PACES[pace], "transfers")
    await pod.bench.start()
    expected = [
        plan(random, pod, core, side, 12) for core in range(len(pod.cores)) for side in SIDES
    ]
    given = [{part: len(core.commands[part]) for part in PARTS} for core in pod.cores]
    for _ in range(60_000):
        await pod.cycle()
        if [core.done for core in pod.cores] == given:
            break
    assert [core.done for core in pod.cores] == given
    for _ in range(20):
        await pod.cycle()
    assert [core.done for core in pod.cores] == given
    for core in pod.cores:
        assert not core.get("waits") and not core.get("mismatched")
    for there, lines, sums in expected:
        assert all(there.lines[place] == line for place, line in lines.items())
        assert all(there.sums[place] == row for place, row in sums.items())


@cocotb.test
async def full_rate(dut):
    """Check that each link carries a beat a cycle in both directions, at a latency of 2 cycles."""
    _, pod = pod_of(dut, FULL, "full rate")
    config = CONFIGS[chosen_variant()]
    await pod.bench.start()
    count = 8
    for core in pod.cores:
        for side in SIDES:
            # With one beat a row, both sides would need the accumulators' port in every cycle. So
            # only the left side sends.
            if config.link_row_beats == 1 and side == "right":
                continue
            for _ in range(count):
                rows = {"sums": 1, "rows": ROWS}
                core.commands[f"send_{side}"].append({**rows, "place": 0})
                place = ROWS if side == "left" else 2 * ROWS
                core.commands[f"receive_{OTHER[side]}"].append({**rows, "place": place})
    beats = count * ROWS * config.link_row_beats
    cycles = 0
    while sum(core.done[part] for core in pod.cores for part in PARTS) < sum(
        2 * count if config.link_row_beats == 1 else 4 * count for _ in pod.cores
    ):
        await pod.cycle()
        cycles += 1
        assert cycles < 10_000
    assert cycles <= beats + 24


@cocotb.test
async def in_turn(dut):
    """Check that the left and the right side, which share ports of the buffer, take turns."""
    _, pod = pod_of(dut, FULL, "in turn")
    await pod.bench.start()
    for core in pod.cores:
        for side in SIDES:
            core.commands[f"send_{side}"] += [{"place": 0, "rows": 16}] * 4
            core.commands[f"receive_{side}"] += [{"place": LINES, "rows": 16}] * 4
    while min(core.done[part] for core in pod.cores for part in PARTS) < 4:
        await pod.cycle()
        for core in pod.cores:
            for what in ("send", "receive"):
                left, right = (core.done[f"{what}_{side}"] for side in SIDES)
                assert abs(left - right) <= 1


@cocotb.test
async def stuck(dut):
    """Check that a link unit reports parts that wait, and data of the wrong kind.

    A Send waits without room at the neighbour, and a Receive waits without a beat.
    """
    _, pod = pod_of(dut, FULL, "stuck")
    config = CONFIGS[chosen_variant()]
    await pod.bench.start()
    core = pod.cores[0]
    core.commands["send_right"].append({"sums": 0, "place": 0, "rows": 60})
    core.commands["receive_right"].append({"sums": 1, "place": 0, "rows": 1})
    for _ in range(200):
        await pod.cycle()
    assert core.get("waits") == LinkPart.SEND_RIGHT | LinkPart.RECEIVE_RIGHT
    assert not core.get("moved") and not core.get("mismatched")
    assert pod.under_way[0, "right"] == config.link_beats // config.link_line_beats * (
        config.link_line_beats
    )
    there = pod.cores[pod.neighbour(0, "right")]
    there.commands["receive_left"].append({"sums": 1, "place": 9, "rows": 1})
    for _ in range(50):
        await pod.cycle()
    assert there.get("mismatched") == 1
    assert there.get("waits") & LinkPart.RECEIVE_LEFT and not there.written
    assert not there.get("moved")


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_link_unit(simulator, variant):
    component = LinkUnits(config=CONFIGS[variant], cores=CORES[variant])
    run_unit("test_link_unit", simulator, component, variant=variant)
