# SPDX-License-Identifier: Apache-2.0
"""The interlocks: who waits for whom, for each pair of instructions and under random progress.

The expectation names each older instruction that a younger one must wait for; the masks must point
at just those, wherever in their list they stand by then.
"""

import itertools

import cocotb
import pytest

from systola.arch.isa import Opcode
from systola.hdl.commands import PARAMETER_SPACE, TABLE_SPACE, Kind
from systola.hdl.scoreboard import Scoreboard
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit, small_config

CONFIG = small_config(queue_depth=3)
DEPTH, WEIGHT_DEPTH = 3, 8
READ, WRITE = Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY
PARAMETERS, TABLE, WEIGHTS = Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE, Opcode.READ_WEIGHTS
MULTIPLY, ACTIVATE = Opcode.MATRIX_MULTIPLY, Opcode.ACTIVATE
LOADS = (READ, PARAMETERS, TABLE)

QUEUE = {
    **dict.fromkeys(LOADS, "host_reads"),
    WRITE: "host_writes",
    WEIGHTS: "weights",
    MULTIPLY: "matrix",
    ACTIVATE: "activate",
}
LISTS = {
    **dict.fromkeys(LOADS, ("host_reading",)),
    WRITE: ("host_writing",),
    WEIGHTS: (),
    MULTIPLY: ("matrix_reading", "matrix_summing"),
    ACTIVATE: ("activate_reading", "activate_writing"),
}
ADVANCING = {
    "host_reading": "destination",
    "matrix_reading": "buffer",
    "matrix_summing": "accumulator",
    "activate_reading": "accumulator",
    "activate_writing": "buffer",
    "host_writing": "buffer",
}
WAITS = {
    "host_reads": {
        "matrix_reading": [("destination", "buffer")],
        "activate_writing": [
            ("destination", "buffer"),
            ("destination", "parameters"),
            ("destination", "table"),
        ],
        "host_writing": [("destination", "buffer"), ("host", "host")],
    },
    "matrix": {
        "host_reading": [("buffer", "destination")],
        "activate_writing": [("buffer", "buffer")],
        "activate_reading": [("accumulator", "accumulator")],
    },
    "activate": {
        "matrix_summing": [("accumulator", "accumulator")],
        "matrix_reading": [("buffer", "buffer")],
        "host_writing": [("buffer", "buffer")],
        "host_reading": [
            ("buffer", "destination"),
            ("parameters", "destination"),
            ("table", "destination"),
        ],
    },
    "host_writes": {
        "host_reading": [("buffer", "destination")],
        "activate_writing": [("buffer", "buffer")],
        "host_memory": [("host", "host")],
    },
}
"""For each queue and mask: the younger's region and that of the older one in the mask's list."""
WATCHED = {"host_memory": "host_reading"}
REGIONS = ("buffer", "accumulator", "parameters", "table", "destination", "host")


def unit():
    return Scoreboard(config=CONFIG)


def common(one, other):
    """Whether two regions, (base, end), share an address."""
    return bool(set(range(*one)) & set(range(*other)))


def instruction(opcode, number, **regions):
    """What the decoder would say about an instruction: its regions; those it lacks are absent."""
    return {"opcode": opcode, "pc": number, **regions}


def some(random, number):
    """A random instruction in a small space of addresses, where conflicts are common."""

    def region(size, start=0):
        base = start + random.randint(0, size)
        return base, base + random.randint(1, 3)

    opcode = random.choice((READ, PARAMETERS, TABLE, WRITE, MULTIPLY, ACTIVATE, ACTIVATE, WEIGHTS))
    if opcode == READ:
        lines = region(12)
        return instruction(opcode, number, buffer=lines, destination=lines, host=region(20))
    if opcode == WRITE:
        return instruction(opcode, number, buffer=region(12), host=region(20))
    if opcode == PARAMETERS:
        entries = region(4, PARAMETER_SPACE)
        return instruction(opcode, number, destination=entries, host=region(20))
    if opcode == TABLE:
        table = TABLE_SPACE + random.randint(0, 1)
        return instruction(opcode, number, destination=(table, table + 1), host=region(20))
    if opcode == MULTIPLY:
        return instruction(opcode, number, buffer=region(12), accumulator=region(12))
    if opcode == ACTIVATE:
        table = TABLE_SPACE + random.randint(0, 1)
        return instruction(
            opcode,
            number,
            buffer=region(12),
            accumulator=region(12),
            parameters=region(4, PARAMETER_SPACE),
            table=(table, table + random.randint(0, 1)),
        )
    return instruction(opcode, number)


class Model(Bench):
    """The scoreboard, and lists and queues as it should hold them."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.lists = {name: [] for name in ADVANCING}
        self.queues = {name: [] for name in (*WAITS, "weights")}

    def room(self, new):
        """Whether queue and lists take one more."""
        queue = QUEUE[new["opcode"]]
        depth = WEIGHT_DEPTH if queue == "weights" else DEPTH
        places = [self.lists[name] for name in LISTS[new["opcode"]]]
        return len(self.queues[queue]) < depth and all(len(place) < DEPTH for place in places)

    def decoded(self, new):
        """The ports' value for an instruction; regions that it lacks may be anything."""
        value = {"opcode": int(new["opcode"]), "pc": new["pc"], "rows": new["pc"] & 0xFFF}
        for name in REGIONS:
            base, end = new.get(name, (0, 1 << 16))
            value[name] = {"base": base, "end": end}
        return value

    async def step(self, new=None, pops=(), retires=(), advances=None):
        """One cycle: checks all outputs, then makes the same changes to the model.

        `advances` is the new base of the oldest entry of lists. Returns whether `new` was issued.
        """
        issue = new is not None and self.room(new)
        inputs = {"issue": issue}
        if new is not None:
            inputs["decoded"] = self.decoded(new)
        inputs |= {f"{name}__pop": name in pops for name in self.queues}
        for name in self.lists:
            inputs[f"{name}__retire"] = name in retires
            inputs[f"{name}__advance"] = name in (advances or {})
            inputs[f"{name}__advance_to"] = (advances or {}).get(name, 0)
        await self.cycle(**inputs)
        if new is not None:
            assert self.get("room") == self.room(new)
        self.check()

        if issue:
            queue = QUEUE[new["opcode"]]
            waits = {
                mask: {
                    older["pc"]
                    for older in self.lists[WATCHED.get(mask, mask)]
                    if any(a in new and b in older and common(new[a], older[b]) for a, b in pairs)
                }
                for mask, pairs in WAITS.get(queue, {}).items()
            }
        for name, base in (advances or {}).items():
            oldest, region = self.lists[name][0], ADVANCING[name]
            self.lists[name][0] = {**oldest, region: (base, oldest[region][1])}
        for name in retires:
            self.lists[name].pop(0)
        for name in pops:
            self.queues[name].pop(0)
        if issue:
            self.queues[queue].append((new, waits))
            for name in LISTS[new["opcode"]]:
                self.lists[name].append(self.entry(name, new))
        return issue

    @staticmethod
    def entry(name, new):
        """What a list knows of an instruction: reads from host memory have only a destination."""
        kept = dict(new)
        if name == "host_reading":
            kept.pop("buffer", None)
        return kept

    def check(self):
        """All outputs are as the model says."""
        assert self.get("idle") == (not any(self.lists.values()))
        for name, entries in self.lists.items():
            shown = self.get(f"{name}__entries")
            for position, entry in enumerate(entries):
                region = shown[position][ADVANCING[name]]
                assert (region.base, region.end) == entry[ADVANCING[name]], f"{name}[{position}]"
        for name, queue in self.queues.items():
            assert self.get(f"{name}__valid") == bool(queue), f"queue {name}"
            if queue and name != "weights":
                new, waits = queue[0]
                shown = self.get(f"{name}__masks")
                for mask, numbers in waits.items():
                    entries = self.lists[WATCHED.get(mask, mask)]
                    bits = {entries[i]["pc"] for i in range(len(entries)) if shown[mask] >> i & 1}
                    still = {entry["pc"] for entry in entries}
                    assert bits == numbers & still, f"{name}.{mask} of {new}"
                    assert shown[mask] >> len(entries) == 0, f"{name}.{mask} names nobody"


def pairs():
    """Each kind of region that two instructions can share, as (older, younger, what)."""
    lines, rows, host = (3, 6), (4, 7), (100, 132)
    entry, table = (PARAMETER_SPACE + 1, PARAMETER_SPACE + 2), (TABLE_SPACE + 1, TABLE_SPACE + 2)
    nothing = (0, 0)
    away = {"buffer": (40, 41), "accumulator": (20, 21), "host": (900, 904)}
    away |= {"parameters": (PARAMETER_SPACE + 5, PARAMETER_SPACE + 6), "table": nothing}

    def make(opcode, **shared):
        names = {
            READ: ("buffer", "host"),
            WRITE: ("buffer", "host"),
            PARAMETERS: ("host",),
            TABLE: ("host",),
            MULTIPLY: ("buffer", "accumulator"),
            ACTIVATE: ("buffer", "accumulator", "parameters", "table"),
        }[opcode]
        regions = {name: away[name] for name in names} | shared
        if opcode == READ:
            regions["destination"] = regions["buffer"]
        if opcode in (PARAMETERS, TABLE):
            space = PARAMETER_SPACE + 9 if opcode == PARAMETERS else TABLE_SPACE + 3
            regions.setdefault("destination", (space, space + 1))
        return opcode, regions

    for a, b in itertools.permutations((READ, WRITE, MULTIPLY, ACTIVATE), 2):
        yield make(a, buffer=lines), make(b, buffer=(lines[1] - 1, lines[1] + 4))
        yield make(a, buffer=lines), make(b, buffer=(lines[1], lines[1] + 4))
    for a, b in itertools.product((MULTIPLY, ACTIVATE), repeat=2):
        yield make(a, accumulator=rows), make(b, accumulator=(rows[0] - 2, rows[0] + 1))
        yield make(a, accumulator=rows), make(b, accumulator=(rows[0] - 2, rows[0]))
    for a, b in itertools.product((READ, WRITE, PARAMETERS, TABLE), repeat=2):
        yield make(a, host=host), make(b, host=(host[1] - 4, host[1]))
        yield make(a, host=host), make(b, host=(host[1], host[1] + 4))
    for a, b in ((PARAMETERS, ACTIVATE), (ACTIVATE, PARAMETERS)):
        for other in (entry, (entry[1], entry[1] + 1)):
            shared = {PARAMETERS: {"destination": entry}, ACTIVATE: {"parameters": other}}
            yield make(a, **shared[a]), make(b, **shared[b])
    for a, b in ((TABLE, ACTIVATE), (ACTIVATE, TABLE)):
        for other in (table, (table[0], table[0])):
            shared = {TABLE: {"destination": table}, ACTIVATE: {"table": other}}
            yield make(a, **shared[a]), make(b, **shared[b])


@cocotb.test
async def every_pair(dut):
    """An older and a younger instruction that share one region, or just miss each other."""
    bench = Model(dut)
    await bench.start()
    number = 0
    for older, younger in pairs():
        issued = []
        for opcode, regions in (older, younger):
            issued.append(instruction(opcode, number, **regions))
            assert await bench.step(issued[-1])
            number += 1
        if QUEUE[older[0]] == QUEUE[younger[0]]:
            await bench.step(pops=[QUEUE[older[0]]])
        await bench.step()
        while any(bench.lists.values()) or any(bench.queues.values()):
            await bench.step(
                pops=[name for name, queue in bench.queues.items() if queue],
                retires=[name for name, entries in bench.lists.items() if entries],
            )
        await bench.step()


@cocotb.test
async def commands(dut):
    """What the units get to see of an instruction."""
    bench = Model(dut)
    await bench.start()
    transfer = {"address": 0x1238, "beats": 77, "rows": 5, "stride": 400, "blocks": 3}
    common_part = {"pc": 9, "tail_line": 33, "tail": 3, "transfer": transfer}
    regions = {
        "buffer": {"base": 5, "end": 35},
        "destination": {"base": 7, "end": 9},
        "host": {"base": 80, "end": 99},
    }
    kinds = {READ: Kind.BUFFER, PARAMETERS: Kind.PARAMETERS, TABLE: Kind.TABLE}
    for opcode, kind in kinds.items():
        await bench.cycle(issue=1, decoded={"opcode": int(opcode), **common_part, **regions})
        await bench.cycle(issue=0, host_reads__pop=1, host_reading__retire=1)
        entry = bench.get("host_reading__entries")[0]
        assert (entry.pc, entry.tail_line, entry.tail) == (9, 33, 3)
        assert entry.kind == kind
        assert (entry.host.base, entry.host.end) == (80, 99)
        command = bench.get("host_reads__command")
        assert {name: command[name] for name in transfer} == transfer
        bench.set(host_reads__pop=0, host_reading__retire=0)
    await bench.cycle(issue=1, decoded={"opcode": int(WRITE), **common_part, **regions})
    await bench.cycle(issue=0)
    command = bench.get("host_writes__command")
    assert (command.pc, command.tail_line, command.tail) == (9, 33, 3)
    assert (command.buffer.base, command.buffer.end) == (5, 35)
    assert {name: command.transfer[name] for name in transfer} == transfer
    fields = {"rows": 300, "k_tiles": 7, "n_tiles": 9, "accumulate": 1}
    rows = {"accumulator": {"base": 21, "end": 30}, "buffer": regions["buffer"]}
    await bench.cycle(issue=1, decoded={"opcode": int(MULTIPLY), **fields, **rows})
    await bench.cycle(issue=0)
    command = bench.get("matrix__command")
    assert {name: command[name] for name in fields} == fields
    assert (command.buffer, command.accumulator) == (5, 21)
    fields = {"rows": 9, "n_tiles": 4, "function": 3, "rounding": 1}
    fields |= {"zero_point": -7, "ceiling": -9}
    named = {
        "parameters": {"base": PARAMETER_SPACE + 3, "end": PARAMETER_SPACE + 7},
        "table": {"base": TABLE_SPACE + 1, "end": TABLE_SPACE + 2},
    }
    await bench.cycle(issue=1, decoded={"opcode": int(ACTIVATE), **fields, **rows, **named})
    await bench.cycle(issue=0)
    command = bench.get("activate__command")
    assert {name: command[name] for name in fields} == fields
    assert (command.buffer, command.accumulator) == (5, 21)
    assert (command.parameter, command.table) == (3, 1)
    weights = {"address": 64, "beats": 99, "rows": 1, "blocks": 1}
    await bench.cycle(
        issue=1, decoded={"opcode": int(WEIGHTS), "pc": 12, "weight_transfer": weights}
    )
    await bench.cycle(issue=0)
    command = bench.get("weights__command")
    assert command.pc == 12 and {name: command.transfer[name] for name in weights} == weights


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.3])
async def random_progress(dut, rate):
    """Random instructions, issued as fast as there is room or slower; units progress at random."""
    bench = Model(dut)
    await bench.start()
    random = rng("scoreboard", rate)
    number, new = 0, None
    for _ in range(1500):
        if new is None and random.random() < rate:
            new = some(random, number)
            number += 1
        offered = new if random.random() < rate else None
        advances = {}
        for name, entries in bench.lists.items():
            if entries and random.random() < 0.3:
                base, end = entries[0][ADVANCING[name]]
                advances[name] = min(base + 1, end - 1)
        issued = await bench.step(
            offered,
            pops=[n for n, queue in bench.queues.items() if queue and random.random() < 0.3],
            retires=[n for n, entries in bench.lists.items() if entries and random.random() < 0.25],
            advances=advances,
        )
        if issued:
            new = None


@pytest.mark.parametrize("simulator", simulators())
def test_scoreboard(simulator):
    run_unit("test_scoreboard", simulator, unit())
