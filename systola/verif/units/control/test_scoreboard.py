# SPDX-License-Identifier: Apache-2.0
"""The test of the scoreboard: its masks for pairs of instructions, and in random programs.

A mask of an instruction points at the youngest older instruction in a list to wait for. The model
finds all older instructions to wait for, by their regions. A mask must point at the youngest of
them in its list, until that instruction leaves the list.
"""

import itertools

import cocotb
import pytest

from systola.hdl.commands import ActivateCommand, Kind, MatrixCommand, parameter_space, table_space
from systola.verif.units.control.scoreboard_model import (
    ACTIVATE,
    COMPLETES,
    DEPTHS,
    FOLLOWS,
    LINE_READERS,
    LISTS,
    LOADS,
    PARAMETERS,
    PRODUCTS,
    QUEUE,
    READS,
    RESULTS,
    TABLE,
    TAG,
    USES,
    WEIGHTS,
    WRITES,
    Model,
    named,
    unit,
)
from systola.verif.units.unit import rng, run_unit, small_config, variants

CONFIG = small_config()
ENTRIES, TABLES = parameter_space(CONFIG), table_space(CONFIG)


def instruction(opcode, number, **regions):
    """Return an instruction in the form that the model takes.

    `regions` has only the regions that the instruction uses, by name.
    """
    return {"opcode": opcode, "pc": number, **regions}


def some(random, number):
    """Return a random instruction in a small space of addresses, where conflicts are common."""

    def region(size, start=0):
        base = start + random.randint(0, size)
        return base, base + random.randint(1, 3)

    opcode = random.choice((*QUEUE, ACTIVATE, TAG, TAG))
    table = TABLES + random.randint(0, 1)
    regions = {
        "buffer": region(12),
        "accumulator": region(12),
        "host": region(20),
        "source": region(12),
        "operand": region(12),
        "parameters": region(4, ENTRIES),
        "table": (table, table + random.randint(0, 1)),
    }
    used = {name: regions[name] for name in USES[opcode]}
    if opcode == PARAMETERS:
        used["buffer"] = regions["parameters"]
    if opcode == TABLE:
        used["buffer"] = table, table + 1
    if opcode == TAG:
        used = {"units": random.getrandbits(len(COMPLETES))}
    return instruction(opcode, number, **used)


def pairs():
    """Yield pairs of an older and a younger instruction with regions that overlap or just touch.

    The pairs cover each kind of region that two instructions can share.
    """
    lines, rows, host = (3, 6), (4, 7), (100, 132)
    entry, table = (ENTRIES + 1, ENTRIES + 2), (TABLES + 1, TABLES + 2)
    nothing = (0, 0)
    away = {"buffer": (40, 41), "accumulator": (20, 21), "host": (900, 904)}
    away |= {"parameters": (ENTRIES + 5, ENTRIES + 6), "table": nothing}
    away |= {"source": (50, 52), "operand": (54, 55)}

    def make(opcode, **shared):
        regions = {name: away[name] for name in USES[opcode]} | shared
        if opcode in (PARAMETERS, TABLE):
            space = ENTRIES + 9 if opcode == PARAMETERS else TABLES + 3
            regions.setdefault("buffer", (space, space + 1))
        return opcode, regions

    users = (*READS, *WRITES, *PRODUCTS, *RESULTS)
    for a, b in itertools.product(users, repeat=2):
        yield make(a, buffer=lines), make(b, buffer=(lines[1] - 1, lines[1] + 4))
        yield make(a, buffer=lines), make(b, buffer=(lines[1], lines[1] + 4))
    for a, b, operand in itertools.product(users, LINE_READERS, ("source", "operand")):
        if operand in USES[b]:
            for other in ((lines[0] - 1, lines[0] + 1), (lines[0] - 1, lines[0])):
                yield make(a, buffer=lines), make(b, **{operand: other})
                yield make(b, **{operand: lines}), make(a, buffer=other)
    for a, b in itertools.product(LINE_READERS, repeat=2):
        yield make(a, source=lines), make(b, source=lines)
    for a, b in itertools.product((*PRODUCTS, ACTIVATE), repeat=2):
        yield make(a, accumulator=rows), make(b, accumulator=(rows[0] - 2, rows[0] + 1))
        yield make(a, accumulator=rows), make(b, accumulator=(rows[0] - 2, rows[0]))
    for a, b in itertools.product((*LOADS, *WRITES), repeat=2):
        yield make(a, host=host), make(b, host=(host[1] - 4, host[1]))
        yield make(a, host=host), make(b, host=(host[1], host[1] + 4))
    for result in RESULTS:
        for other in (entry, (entry[1], entry[1] + 1)):
            load, use = make(PARAMETERS, buffer=entry), make(result, parameters=other)
            yield load, use
            yield use, load
        for other in (table, (table[0], table[0])):
            load, use = make(TABLE, buffer=table), make(result, table=other)
            yield load, use
            yield use, load


@cocotb.test
async def every_pair(dut):
    """Check the masks for all pairs of instructions with regions that overlap or just touch."""
    bench = Model(dut)
    await bench.start()
    number = 0
    for older, younger in pairs():
        issued = []
        for opcode, regions in (older, younger):
            issued.append(instruction(opcode, number, **regions))
            await bench.issue(issued[-1])
            number += 1
        await bench.step()
        if QUEUE[older[0]] == QUEUE[younger[0]]:
            await bench.step(pops=[QUEUE[older[0]]])
        await bench.step()
        while any(bench.lists.values()) or any(bench.oldest.values()):
            await bench.step(
                pops=[name for name, oldest in bench.oldest.items() if oldest],
                retires=[
                    n for n, each in bench.lists.items() if each.under_way and n not in FOLLOWS
                ],
            )
        await bench.step()


@cocotb.test
async def commands(dut):
    """Check that an issued instruction gives its unit a command with the decoded fields."""
    bench = Model(dut)
    await bench.start()
    random = rng("scoreboard", "commands")
    transfer = {"address": 0x1238, "beats": 77, "rows": 5, "stride": 400, "blocks": 3}
    tail = {"line": 33, "every": 7, "bytes": 3}
    common_part = {"pc": 9, "tail": tail, "transfer": transfer}
    regions = {
        "buffer": {"base": 5, "end": 35},
        "host": {"base": 80, "end": 99},
    }
    kinds = {PARAMETERS: Kind.PARAMETERS, TABLE: Kind.TABLE}

    async def pass_through(decoded):
        await bench.cycle(offered=1, decoded=decoded)
        await bench.cycle(passable=1)
        await bench.cycle(passable=0, issue=1)
        await bench.cycle(offered=0, issue=0)
        await bench.cycle()

    for opcode in LOADS:
        await pass_through({**named(opcode), **common_part, **regions})
        await bench.cycle(host_reads__pop=1, host_read__pop=1, host_reading__retire=1)
        entry = bench.get("host_read__command")
        assert entry.pc == 9 and {name: entry.tail[name] for name in tail} == tail
        assert entry.kind == kinds.get(opcode, Kind.BUFFER)
        command = bench.get("host_reads__command")
        assert {name: command[name] for name in transfer} == transfer
        assert (entry.destination, entry.last) == (5, 34)
        bench.set(host_reads__pop=0, host_read__pop=0, host_reading__retire=0)
    for opcode in WRITES:
        await pass_through({**named(opcode), **common_part, **regions})
        await bench.cycle(host_writes__pop=1, host_writing__retire=1)
        command = bench.get("host_writes__command")
        assert command.pc == 9 and {name: command.tail[name] for name in tail} == tail
        assert (command.buffer.base, command.buffer.end) == (5, 35)
        assert {name: command.transfer[name] for name in transfer} == transfer
        bench.set(host_writes__pop=0, host_writing__retire=0)
    for queue, layout, opcodes in (
        ("matrix", MatrixCommand(config=CONFIG), PRODUCTS),
        ("activate", ActivateCommand(config=CONFIG), RESULTS),
    ):
        for opcode in opcodes:
            bits = random.getrandbits(layout.size)
            decoded = {**named(opcode), queue: layout.from_bits(bits)}
            await pass_through(decoded)
            await bench.cycle(
                **{f"{name}__retire": 1 for name in LISTS[opcode]},
                **{f"{queue}__pop": 1},
            )
            assert bench.get(f"{queue}__command").bits == bits
            bench.set(**{f"{name}__retire": 0 for name in LISTS[opcode]}, **{f"{queue}__pop": 0})
    weights = {"address": 64, "beats": 99}
    await pass_through({**named(WEIGHTS), "pc": 12, "weight_transfer": weights})
    await bench.cycle()
    command = bench.get("weights__command")
    assert command.pc == 12 and {name: command.transfer[name] for name in weights} == weights


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.3])
async def random_progress(dut, rate):
    """Check random instructions, issued at once or later, while units progress at random."""
    bench = Model(dut)
    await bench.start()
    random = rng("scoreboard", rate)
    number, new = 0, None
    for _ in range(1500):
        if new is None and random.random() < rate:
            new = some(random, number)
            number += 1
        offered = new if random.random() < rate or bench.offered else None
        advances = {}
        for name, entries in bench.lists.items():
            if entries.under_way and name not in FOLLOWS and random.random() < 0.3:
                base = max(entries[0].base, entries[0].reached)
                advances[name] = min(base + 1, entries[0].end)
        issued = await bench.step(
            offered,
            pops=[n for n, oldest in bench.oldest.items() if oldest and random.random() < 0.3],
            retires=[
                name
                for name, entries in bench.lists.items()
                if entries.under_way and name not in FOLLOWS and random.random() < 0.25
            ],
            advances=advances,
            hold=random.random() < 0.1,
            passable=random.random() < 0.8,
        )
        if issued:
            new = None


@pytest.mark.parametrize(("simulator", "variant"), variants(*DEPTHS))
def test_scoreboard(simulator, variant):
    run_unit("test_scoreboard", simulator, unit(variant), variant=variant)
