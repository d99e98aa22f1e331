# SPDX-License-Identifier: Apache-2.0
"""The interlocks: who waits for whom, for each pair of instructions and under random progress.

The expectation names each older instruction that a younger one must wait for; the masks must
point at the youngest of those in each list, as long as it is there.
"""

import itertools

import cocotb
import pytest

from systola.arch.isa import Opcode
from systola.hdl.commands import (
    ActivateCommand,
    Kind,
    MatrixCommand,
    parameter_space,
    table_space,
)
from systola.hdl.control.hazards import SCANS
from systola.hdl.control.scoreboard import Scoreboard
from systola.verif.units.list_model import Entries, Entry
from systola.verif.units.scalar_model import kind
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

DEPTHS = {"3": 3, "4": 4}
WEIGHT_DEPTH, TAGS = 8, 8
READ, WRITE = Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY
PARAMETERS, TABLE, WEIGHTS = Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE, Opcode.READ_WEIGHTS
MULTIPLY, CONVOLVE, ACTIVATE = Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.ACTIVATE
DEPTHWISE, POOL, VECTOR = Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR
TAG = Opcode.DEBUG_TAG
READS = (READ, Opcode.READ_HOST_MEMORY_ALTERNATE)
WRITES = (WRITE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
PRODUCTS = (MULTIPLY, CONVOLVE)
LINE_READERS = (DEPTHWISE, POOL, VECTOR)
RESULTS = (ACTIVATE, *LINE_READERS)
LOADS = (*READS, PARAMETERS, TABLE)

QUEUE = {
    **dict.fromkeys(LOADS, "host_reads"),
    **dict.fromkeys(WRITES, "host_writes"),
    WEIGHTS: "weights",
    **dict.fromkeys(PRODUCTS, "matrix"),
    **dict.fromkeys(RESULTS, "activate"),
    TAG: "tags",
}
LISTS = {
    **dict.fromkeys(READS, ("host_reading",)),
    **dict.fromkeys((PARAMETERS, TABLE), ("host_reading", "loading")),
    **dict.fromkeys(WRITES, ("host_writing",)),
    WEIGHTS: (),
    **dict.fromkeys(PRODUCTS, ("matrix_reading", "matrix_summing")),
    ACTIVATE: ("activate_reading", "activate_writing"),
    **dict.fromkeys(LINE_READERS, ("activate_operands", "activate_writing")),
    TAG: (),
}
COMPLETES = ("host_reading", "matrix_summing", "activate_writing", "host_writing")
"""For each bit of a tag's units the list that an instruction leaves when it is complete."""
USES = {
    **dict.fromkeys(READS, ("buffer", "host")),
    **dict.fromkeys(WRITES, ("buffer", "host")),
    PARAMETERS: ("host",),
    TABLE: ("host",),
    WEIGHTS: (),
    **dict.fromkeys(PRODUCTS, ("buffer", "accumulator")),
    ACTIVATE: ("buffer", "accumulator", "parameters", "table"),
    DEPTHWISE: ("buffer", "source", "operand", "parameters", "table"),
    POOL: ("buffer", "source", "parameters", "table"),
    VECTOR: ("buffer", "source", "operand", "parameters", "table"),
    TAG: (),
}
"""Regions of an instruction; Load_* have their parameters or table as `buffer`, too."""
ADVANCING = {
    "host_reading": "buffer",
    "loading": "buffer",
    "matrix_reading": "buffer",
    "matrix_summing": "accumulator",
    "activate_reading": "accumulator",
    "activate_operands": "source",
    "activate_writing": "buffer",
    "host_writing": "buffer",
}
WAITS = {
    "host_reads": {
        "matrix_reading": [("buffer", "buffer")],
        "activate_operands": [("buffer", "source"), ("buffer", "operand")],
        "activate_writing": [
            ("buffer", "buffer"),
            ("buffer", "parameters"),
            ("buffer", "table"),
        ],
        "host_writing": [("buffer", "buffer"), ("host", "host")],
    },
    "matrix": {
        "host_reading": [("buffer", "buffer")],
        "activate_writing": [("buffer", "buffer")],
        "activate_reading": [("accumulator", "accumulator")],
    },
    "activate": {
        "matrix_summing": [("accumulator", "accumulator")],
        "matrix_reading": [("buffer", "buffer")],
        "activate_writing": [("buffer", "buffer"), ("source", "buffer")],
        "operand_writing": [("operand", "buffer")],
        "host_writing": [("buffer", "buffer")],
        "host_reading": [("buffer", "buffer"), ("source", "buffer"), ("operand", "buffer")],
        "loading": [("parameters", "buffer"), ("table", "buffer")],
    },
    "host_writes": {
        "host_reading": [("buffer", "buffer")],
        "activate_writing": [("buffer", "buffer")],
        "host_memory": [("host", "host")],
    },
}
"""For each queue and mask: the younger's region and that of the older one in the mask's list."""
WATCHED = {"host_memory": "host_reading", "operand_writing": "activate_writing"}
FOLLOWS = ("loading",)
"""Lists whose instructions leave with those of `host_reading`."""
REGIONS = (
    "buffer",
    "accumulator",
    "parameters",
    "table",
    "host",
    "source",
    "operand",
)
CONFIG = small_config()
ENTRIES, TABLES = parameter_space(CONFIG), table_space(CONFIG)


def unit(variant=None):
    return Scoreboard(config=small_config(queue_depth=DEPTHS[variant or chosen_variant()]))


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


class Model(Bench):
    """The scoreboard, and lists and queues as it should hold them."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.depth = DEPTHS[chosen_variant()]
        self.lists = {name: Entries(self.depth) for name in ADVANCING}
        self.oldest = dict.fromkeys((*WAITS, "weights"))
        """What each queue shows: an instruction, and for each mask the numbers that it waits for"""
        self.queues = {name: [] for name in self.oldest}
        """What waits behind."""
        self.tags = []
        self.asks = False
        self.offered = False
        self.fitted = False
        """The instruction `fits` in the cycle before."""
        self.passes = False
        """`passable` and `room` came together in the cycle before."""
        self.idle = None
        """What `idle` must show, None where it means nothing."""
        self.todo = {name: [] for name in SCANS}
        """Lists that the next instruction is still to be compared with, in their order."""
        self.places = dict.fromkeys(SCANS)
        """In the first of them the number of the next entry, None for the oldest."""
        self.found = {}

    def fits(self, new):
        """Whether queue and lists take one more."""
        queue = QUEUE[new["opcode"]]
        if queue == "tags":
            return len(self.tags) < TAGS
        depth = WEIGHT_DEPTH if queue == "weights" else self.depth
        places = [self.lists[name] for name in LISTS[new["opcode"]]]
        return len(self.queues[queue]) + (self.oldest[queue] is not None) < depth and all(
            len(place) < self.depth for place in places
        )

    def room(self):
        """Whether there was a place in the cycle before, and the comparison is through."""
        return self.fitted and all(
            not todo or (len(todo) == 1 and self.at(scan)[1]) for scan, todo in self.todo.items()
        )

    def at(self, scan):
        """The entry of a scan that is compared in this cycle, if it is there, and whether it is
        the last one of its list."""
        entries = self.lists[self.todo[scan][0]]
        number = self.places[scan]
        number = entries.left if number is None else number
        ends = (number + 1 - entries.left - len(entries)) % (1 << entries.bits) == 0
        there = entries.left <= number < entries.left + len(entries)
        return number, ends, entries[number - entries.left] if there else None

    def decoded(self, new):
        """The ports' value for an instruction; regions that it lacks are empty."""
        value = {"kind": kind(new["opcode"]), "pc": new["pc"], "code": new["pc"] & 0xFFFF}
        value["units"] = new.get("units", (1 << len(COMPLETES)) - 1)
        for name in REGIONS:
            base, end = new.get(name, (0, 0))
            value[name] = {"base": base, "end": end}
        return value

    async def issue(self, new):
        """As many cycles as it takes to issue an instruction."""
        for _ in range(3 * self.depth + 3):
            if await self.step(new):
                return
        raise AssertionError("too slow")

    async def step(self, new=None, pops=(), retires=(), advances=None, hold=False, passable=True):
        """One cycle: checks all outputs, then makes the same changes to the model.

        `advances` is the new base of the oldest entry of lists, `hold` holds tags back. Returns
        whether `new` was issued.
        """
        issue = self.passes
        passable = passable and self.offered and not issue
        self.passes = passable and self.room()
        fits = new is not None and self.fits(new)
        inputs = {"offered": new is not None, "passable": passable, "issue": issue}
        inputs["hold_tags"] = hold
        if new is not None:
            inputs["decoded"] = self.decoded(new)
        inputs |= {f"{name}__pop": name in pops for name in self.queues}
        # The host reader asks for what it reads long before that is complete.
        self.asks = self.get("host_read__valid") and not self.asks
        inputs["host_read__pop"] = self.asks
        for name in set(self.lists).difference(FOLLOWS):
            inputs[f"{name}__retire"] = name in retires
            inputs[f"{name}__advance"] = name in (advances or {})
            inputs[f"{name}__advance_to"] = (advances or {}).get(name, 0)
        await self.cycle(**inputs)
        if self.offered and not issue:
            assert self.get("room") == self.room()
        leaves = {name: name in retires for name in self.lists}
        leaves["loading"] = self.leaves_loading(retires)
        self.check(leaves)
        self.fitted = fits
        few_tags = len(self.tags) < 2
        self.check_tags(new if issue and new["opcode"] == TAG else None, hold)

        waits, self.found = self.found, {} if issue or new is None else self.compare(new)
        self.offered = new is not None and not issue
        for name in [*retires, *(["loading"] if self.leaves_loading(retires) else [])]:
            self.advance(name, advances)
            self.lists[name].retire()
        for name in advances or {}:
            if name not in retires:
                self.advance(name, advances)
        for name in pops:
            self.oldest[name] = None
        self.idle = None if issue else few_tags and not any(self.lists[name] for name in COMPLETES)
        for name, queue in self.queues.items():
            if queue and self.oldest[name] is None:
                self.oldest[name] = queue.pop(0)
        if issue:
            queue = QUEUE[new["opcode"]]
            if queue != "tags":
                self.queues[queue].append((new, waits))
            for name in LISTS[new["opcode"]]:
                base, end = new.get(ADVANCING[name], (0, 0))
                entry = Entry(new["pc"], base, end)
                entry.instruction = new
                self.lists[name].take(entry)
        return issue

    def leaves_loading(self, retires):
        """Whether host_reading is one of these lists, and its oldest is a load."""
        oldest = self.lists["host_reading"][0] if "host_reading" in retires else None
        return oldest is not None and "loading" in LISTS[oldest.instruction["opcode"]]

    def advance(self, name, advances):
        """The oldest entry of a list goes on, if it does; a load does in both of its lists."""
        if name in (advances or {}):
            self.lists[name].advance(advances[name])
            if self.leaves_loading([name]):
                self.lists["loading"].advance(advances[name])

    def compare(self, new):
        """Goes on to the next entries; who must be waited for as far as is known, all whether or
        not they are still there."""
        masks = WAITS.get(QUEUE[new["opcode"]], {})
        if not self.offered:
            watched = {WATCHED.get(mask, mask) for mask in masks}
            for scan, (names, _) in SCANS.items():
                self.todo[scan] = [n for n in names if n in watched and self.lists[n]]
                self.places[scan] = None
            return {mask: [] for mask in masks}
        found = {mask: list(entries) for mask, entries in self.found.items()}
        for scan, todo in self.todo.items():
            if not todo:
                continue
            number, ends, entry = self.at(scan)
            older = {} if entry is None else entry.instruction
            for mask, pairs in masks.items():
                if WATCHED.get(mask, mask) == todo[0] and any(
                    a in new and b in older and common(new[a], older[b]) for a, b in pairs
                ):
                    found[mask].append(entry)
            self.places[scan] = None if ends else number + 1
            if ends:
                todo.pop(0)
        return found

    def check(self, retires):
        """All outputs are as the model says."""
        if self.idle is not None:
            assert self.get("idle") == self.idle
        for name, entries in self.lists.items():
            progress = self.get(f"{name}__progress")
            wanted = entries.progress(retires=retires.get(name, False))
            assert {part: progress[part] for part in wanted} == wanted, name
        for name, oldest in self.oldest.items():
            assert self.get(f"{name}__valid") == (oldest is not None), f"queue {name}"
            if oldest is not None and name != "weights":
                _, waits = oldest
                shown = self.get(f"{name}__masks")
                for mask, found in waits.items():
                    self.check_mask(shown[mask], self.lists[WATCHED.get(mask, mask)], found)

    def check_mask(self, mask, entries, found):
        """A mask names the last of those found, if that is still there. Of its run those that have
        left do not matter."""
        there = [entry for entry in entries if entry in found]
        assert mask.pending == bool(there)
        if not there:
            return
        position = entries.index(there[-1])
        assert mask.place == (entries.left + position) % (1 << entries.bits)
        run = min(mask.run, position)
        first = position - run
        assert all(entry.rises for entry in entries[first + 1 : position + 1])
        assert run >= entries.mask({entry.number for entry in there})["run"]
        # Before its first entry nobody is waited for, unless addresses fall there.
        gone = any(entry not in entries for entry in found)
        assert gone or entries[first] in found

    def check_tags(self, new, hold):
        """The oldest tag enters when nothing that it waits for is left in its list."""
        left = {entry.number for name in COMPLETES for entry in self.lists[name]}
        enters = bool(self.tags) and not hold and not self.tags[0][1] & left
        assert self.get("tagged") == enters
        if enters:
            assert self.get("tag") == self.tags.pop(0)[0]
        if new is not None:
            units = [name for bit, name in enumerate(COMPLETES) if new["units"] >> bit & 1]
            awaited = {entry.number for name in units for entry in self.lists[name]}
            self.tags.append((new["pc"] & 0xFFFF, awaited))


def pairs():
    """Each kind of region that two instructions can share, as (older, younger, what)."""
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
    """An older and a younger instruction that share one region, or just miss each other."""
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
                retires=[n for n, entries in bench.lists.items() if entries and n not in FOLLOWS],
            )
        await bench.step()


@cocotb.test
async def commands(dut):
    """What the units get to see of an instruction."""
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

    for opcode in LOADS:
        await pass_through({"kind": kind(opcode), **common_part, **regions})
        await bench.cycle(host_reads__pop=1, host_read__pop=1, host_reading__retire=1)
        entry = bench.get("host_read__command")
        assert entry.pc == 9 and {name: entry.tail[name] for name in tail} == tail
        assert entry.kind == kinds.get(opcode, Kind.BUFFER)
        command = bench.get("host_reads__command")
        assert {name: command[name] for name in transfer} == transfer
        assert (entry.destination, entry.last) == (5, 34)
        bench.set(host_reads__pop=0, host_read__pop=0, host_reading__retire=0)
    for opcode in WRITES:
        await pass_through({"kind": kind(opcode), **common_part, **regions})
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
            decoded = {"kind": kind(opcode), queue: layout.from_bits(bits)}
            await pass_through(decoded)
            await bench.cycle(
                **{f"{name}__retire": 1 for name in LISTS[opcode]},
                **{f"{queue}__pop": 1},
            )
            assert bench.get(f"{queue}__command").bits == bits
            bench.set(**{f"{name}__retire": 0 for name in LISTS[opcode]}, **{f"{queue}__pop": 0})
    weights = {"address": 64, "beats": 99}
    await pass_through({"kind": kind(WEIGHTS), "pc": 12, "weight_transfer": weights})
    await bench.cycle()
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
        offered = new if random.random() < rate or bench.offered else None
        advances = {}
        for name, entries in bench.lists.items():
            if entries and name not in FOLLOWS and random.random() < 0.3:
                base = max(entries[0].base, entries[0].reached)
                advances[name] = min(base + 1, entries[0].end)
        issued = await bench.step(
            offered,
            pops=[n for n, oldest in bench.oldest.items() if oldest and random.random() < 0.3],
            retires=[
                name
                for name, entries in bench.lists.items()
                if entries and name not in FOLLOWS and random.random() < 0.25
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
