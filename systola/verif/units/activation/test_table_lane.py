# SPDX-License-Identifier: Apache-2.0
"""The test of the tables of a lane against exact arithmetic: bytes, curves, and int32 numbers."""

import cocotb
import numpy as np
import pytest

from systola.arch.isa import CURVE_ENTRIES, CURVE_TABLES, LONG_TABLES, TABLE_BYTES
from systola.hdl.activation.table_lane import TableLane
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

TABLES = 7
BYTE, NUMBER = 2, 5
"""Cycles from an argument to its byte from a table, and to its number on a curve."""
COUNT = 3000


def unit():
    return TableLane(tables=TABLES)


def on_curve(curve, v):
    """Return the value of a curve at `v`, calculated by integers without bounds."""
    i, f = 256 + (v >> 7), v & 127
    return curve[i] + (((curve[i + 1] - curve[i]) * f + 64) >> 7)


async def started(dut, memory):
    """Return a bench of the unit with `memory` written into its tables."""
    bench = Bench(dut, unit())
    await bench.start()
    for row, word in enumerate(np.frombuffer(memory, "<u4").tolist()):
        await bench.cycle(write__enable=1, write__address=row, write__data=word)
    bench.set(write__enable=0)
    return bench


async def check(bench, noise, memory, steps):
    """Give the unit arguments, one a cycle, and check all results that they lead to.

    A step is an argument, the number of a table, and "byte", "curve" or "gathers" (an int32 is
    looked up). A step of None is a cycle without an argument. `noise` gives random bits.
    """
    entries = np.frombuffer(memory, "<i2").tolist()
    plains, steps = {}, [*steps, *[None] * (NUMBER + 1)]
    for now, step in enumerate(steps):
        argument, table, kind = step or (noise(16) - (1 << 15), noise(3) % TABLES, "none")
        index = argument & 0xFF if kind == "gathers" else noise(8)
        plains[now] = noise(16) - (1 << 15)
        await bench.cycle(
            argument=noise(16) - (1 << 15) if kind == "gathers" else argument,
            table=table,
            on_curve=kind == "curve",
            gathers=kind == "gathers",
            index=index,
            plain=plains[now],
        )
        earlier = steps[now - BYTE] if now >= BYTE else None
        gathered = 0
        if earlier and earlier[2] == "gathers":
            place = TABLE_BYTES * earlier[1] + 4 * (earlier[0] & 0xFF)
            gathered = int.from_bytes(memory[place : place + 4], "little")
        assert bench.get("gathered") == gathered, earlier
        if earlier and earlier[2] == "byte":
            place = TABLE_BYTES * earlier[1] + earlier[0] % TABLE_BYTES
            assert bench.get("byte") == memory[place], earlier
        expected = plains[now]
        if now >= NUMBER and (earlier := steps[now - NUMBER]) and earlier[2] == "curve":
            first = TABLE_BYTES // 2 * earlier[1]
            expected = on_curve(entries[first : first + CURVE_ENTRIES], earlier[0])
        assert bench.get("number") == expected, now


def some(random):
    """Return random steps; after an argument for a curve comes a cycle without an argument."""
    steps = []
    while len(steps) < COUNT:
        argument = random.choice((-32768, -32767, -1, 0, 32767, random.randrange(-32768, 32768)))
        kind = random.choice(("byte", "gathers", "curve"))
        tables = {"byte": 1, "gathers": LONG_TABLES, "curve": CURVE_TABLES}[kind]
        steps.append((argument, random.randrange(TABLES - tables + 1), kind))
        if kind == "curve":
            steps.append(None)
    return steps


@cocotb.test
async def bytes_and_numbers(dut):
    """Check look-ups of bytes, curves and int32 numbers, mixed, in tables of any contents."""
    random = rng("table_lane")
    memory = bytearray(random.randbytes(TABLES * TABLE_BYTES))
    # some entries leap from one end of the range to the other
    for entry in range(0, len(memory), 2):
        if random.random() < 0.2:
            memory[entry : entry + 2] = random.choice((b"\x00\x80", b"\xff\x7f"))
    bench = await started(dut, memory)
    await check(bench, random.getrandbits, memory, some(random))


@pytest.mark.parametrize("simulator", simulators())
def test_table_lane(simulator):
    run_unit("test_table_lane", simulator, unit())
