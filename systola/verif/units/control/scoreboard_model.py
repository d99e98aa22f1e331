# SPDX-License-Identifier: Apache-2.0
"""A plain Python model of the scoreboard: its lists, its queues, and the waits of instructions.

Before an instruction is issued, several scans compare it with older instructions. A scan compares
one entry of a list in a cycle, list after list. Tags of Debug_Tag wait in a queue of their own, and
enter the trace when older instructions are complete.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from systola.arch.isa import Opcode
from systola.hdl.control.hazards import SCANS, groups_of
from systola.hdl.control.scoreboard import Scoreboard
from systola.verif.kit.expect import expect
from systola.verif.units.control.scalar_model import kind
from systola.verif.units.parts.list_model import Entries, Entry
from systola.verif.units.unit import Bench, chosen_variant, small_config

Instruction = dict[str, Any]
Region = tuple[int, int]

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
"""A list for each bit of Debug_Tag's field `units`, which names the units that the tag waits for.

An instruction of a unit is complete when it leaves this list.
"""
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
"""The names of the regions that each opcode uses.

Load_Parameters and Load_Table have their destination as `buffer`, too.
"""
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
"""For each queue and mask, pairs of regions that may conflict.

The first is a region of the younger instruction, the second of an older one in the mask's list.
"""
WATCHED = {"host_memory": "host_reading", "operand_writing": "activate_writing"}
FOLLOWS = ("loading",)
"""The lists without an own `retire`: an instruction leaves when it leaves `host_reading`."""
REGIONS = (
    "buffer",
    "accumulator",
    "parameters",
    "table",
    "host",
    "source",
    "operand",
)


def unit(variant: str | None = None) -> Scoreboard:
    return Scoreboard(config=small_config(queue_depth=DEPTHS[variant or chosen_variant()]))


def common(one: Region, other: Region) -> bool:
    """Return whether two regions, each a pair (base, end), share an address."""
    return bool(set(range(*one)) & set(range(*other)))


def named(opcode: Opcode) -> dict[str, Any]:
    """Return the decoder's output for an opcode, in a configuration without links and training."""
    groups = groups_of(small_config())
    ways = sum(1 << i for i, group in enumerate(groups) if opcode in group.opcodes)
    return {"kind": kind(opcode), "ways": ways}


def described(instruction: Instruction) -> str:
    """Describe an instruction for messages: opcode, number, and its regions."""
    regions = [
        f"{name} {base} to {end - 1}"
        for name, (base, end) in ((n, instruction[n]) for n in REGIONS if n in instruction)
    ]
    return " ".join([f"{instruction['opcode'].name} {instruction['pc']}", *regions])


class Model(Bench):
    """A bench of the scoreboard, with the expected content of its lists and queues."""

    def __init__(self, dut: Any):
        super().__init__(dut, unit())
        self.depth = DEPTHS[chosen_variant()]
        self.lists = {name: Entries(self.depth) for name in ADVANCING}
        self.oldest = dict.fromkeys((*WAITS, "weights"))
        """Each queue's head: an instruction, and for each mask the entries it waits for."""
        self.queues = {name: [] for name in self.oldest}
        """The instructions of each queue that wait after the head."""
        self.tags = []
        self.asks = False
        self.offered = False
        self.fitted = False
        """Whether there was room for the offered instruction in the cycle before."""
        self.passes = False
        """Whether an instruction issues, as `passable` and `room` were high in the cycle before."""
        self.idle = None
        """The expected value of output `idle`; None if it has no meaning."""
        self.todo = {name: [] for name in SCANS}
        """For each scan, the lists that are still to be compared with the next instruction, in
        their order.
        """
        self.places = dict.fromkeys(SCANS)
        """For each scan, the number of the entry to compare next, in the first list of `todo`.

        None stands for the list's oldest entry.
        """
        self.found = {}

    def fits(self, new: Instruction) -> bool:
        """Return whether queue and lists have room for one more instruction like `new`."""
        queue = QUEUE[new["opcode"]]
        if queue == "tags":
            return len(self.tags) < TAGS
        depth = WEIGHT_DEPTH if queue == "weights" else self.depth
        places = [self.lists[name] for name in LISTS[new["opcode"]]]
        return len(self.queues[queue]) + (self.oldest[queue] is not None) < depth and all(
            len(place) < self.depth for place in places
        )

    def room(self) -> bool:
        """Return whether queue and lists had room in the cycle before, and all scans end now."""
        return self.fitted and all(
            not todo or (len(todo) == 1 and self.at(scan)[1]) for scan, todo in self.todo.items()
        )

    def at(self, scan: str) -> tuple[int, bool, Entry | None]:
        """Return the number of the entry that a scan compares in this cycle, and two other results.

        These are whether the entry is the youngest of its list, and the entry itself, or None if
        the entry has left the list.
        """
        entries = self.lists[self.todo[scan][0]]
        number = self.places[scan]
        number = entries.left if number is None else number
        ends = (number + 1 - entries.left - len(entries)) % (1 << entries.bits) == 0
        there = entries.left <= number < entries.left + len(entries)
        return number, ends, entries[number - entries.left] if there else None

    def decoded(self, new: Instruction) -> dict[str, Any]:
        """Return the value of port `decoded` for an instruction; regions it lacks are empty."""
        value: dict[str, Any] = named(new["opcode"])
        value |= {"pc": new["pc"], "code": new["pc"] & 0xFFFF}
        value["units"] = new.get("units", (1 << len(COMPLETES)) - 1)
        for name in REGIONS:
            base, end = new.get(name, (0, 0))
            value[name] = {"base": base, "end": end}
        return value

    async def issue(self, new: Instruction) -> None:
        """Run as many cycles as it takes to issue an instruction; fail if there are too many."""
        for _ in range(3 * self.depth + 3):
            if await self.step(new):
                return
        raise AssertionError("too slow")

    async def step(
        self,
        new: Instruction | None = None,
        pops: Collection[str] = (),
        retires: Collection[str] = (),
        advances: dict[str, int] | None = None,
        hold: bool = False,
        passable: bool = True,
    ) -> bool:
        """Run one cycle: check all outputs, then make the same changes to the model.

        `pops` names queues that lose their head, `retires` names lists that lose their oldest
        entry. `advances` has new bases of oldest entries, by list. With `hold` no tag enters the
        trace. The result is whether `new` was issued.
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
        # The host reader takes a command from its queue to request data, long before the read is
        # complete.
        self.asks = self.get("host_read__valid") and not self.asks
        inputs["host_read__pop"] = self.asks
        for name in set(self.lists).difference(FOLLOWS):
            inputs[f"{name}__retire"] = name in retires
            inputs[f"{name}__advance"] = name in (advances or {})
            inputs[f"{name}__advance_to"] = (advances or {}).get(name, 0)
        await self.cycle(**inputs)
        if self.offered and not issue:
            self.expect("room", self.room())
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

    def leaves_loading(self, retires: Collection[str]) -> bool:
        """Return whether a load leaves: host_reading is one of the lists, and its oldest entry is a
        load.
        """
        oldest = self.lists["host_reading"][0] if "host_reading" in retires else None
        return oldest is not None and "loading" in LISTS[oldest.instruction["opcode"]]

    def advance(self, name: str, advances: dict[str, int] | None) -> None:
        """Advance the oldest entry of a list, if it moves; a load moves in both of its lists."""
        if name in (advances or {}):
            self.lists[name].advance(advances[name])
            if self.leaves_loading([name]):
                self.lists["loading"].advance(advances[name])

    def compare(self, new: Instruction) -> dict[str, list[Entry]]:
        """Let each scan compare its next entry; return all entries found that `new` waits for.

        Entries that have left are included.
        """
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

    def check(self, retires: dict[str, bool]) -> None:
        """Check that all outputs of the scoreboard agree with the model."""
        if self.idle is not None:
            self.expect("idle", self.idle)
        wanted = {
            name: entries.shown(retires=retires.get(name, False))
            for name, entries in self.lists.items()
        }
        for queue, masks in WAITS.items():
            shown = self.get(f"{queue}__progress")
            for mask in masks:
                name = WATCHED.get(mask, mask)
                progress = {part: shown[mask][part] for part in wanted[name]}
                expect(f"list {name}, which {queue} await", progress, wanted[name])
        for name, oldest in self.oldest.items():
            self.expect(f"{name}__valid", oldest is not None, f"queue {name}")
            if oldest is not None and name != "weights":
                younger, waits = oldest
                shown = self.get(f"{name}__masks")
                for mask, found in waits.items():
                    what = f"mask {mask} of {described(younger)}"
                    entries = self.lists[WATCHED.get(mask, mask)]
                    self.check_mask(what, shown[mask], entries, found)

    def check_mask(self, what: str, mask: Any, entries: Entries, found: list[Entry]) -> None:
        """Check that a mask names the youngest entry of `found` that is still in the list.

        The mask's run is the older entries, with rising addresses, that it names as well. Entries
        of the run that have left the list do not matter.
        """
        there = [entry for entry in entries if entry in found]
        older = ", ".join(described(entry.instruction) for entry in found) or "nothing"
        expect(f"{what}: pending", mask.pending, bool(there), f"it must wait for {older}")
        if not there:
            return
        position = entries.index(there[-1])
        place = (entries.left + position) % (1 << entries.bits)
        expect(f"{what}: place", mask.place, place, f"it must wait for {older}")
        run = min(mask.run, position)
        first = position - run
        flat = [entry for entry in entries[first + 1 : position + 1] if not entry.rises]
        assert not flat, (
            f"{what}: its run has {described(flat[0].instruction)}, which does not rise"
        )
        least = entries.mask({entry.number for entry in there})["run"]
        assert run >= least, f"{what}: run is {run}, expected {least} or more; it waits for {older}"
        # The run begins with an entry to wait for, unless some entries of `found` have left.
        gone = any(entry not in entries for entry in found)
        begins = described(entries[first].instruction)
        assert gone or entries[first] in found, f"{what}: its run begins with {begins}, not {older}"

    def check_tags(self, new: Instruction | None, hold: bool) -> None:
        """Check that the oldest tag enters the trace when all entries it waits for have left.

        With `hold` no tag enters. `new` is a Debug_Tag that is issued in this cycle, or None.
        """
        left = {entry.number for name in COMPLETES for entry in self.lists[name]}
        enters = bool(self.tags) and not hold and not self.tags[0][1] & left
        self.expect("tagged", enters)
        if enters:
            self.expect("tag", self.tags.pop(0)[0])
        if new is not None:
            units = [name for bit, name in enumerate(COMPLETES) if new["units"] >> bit & 1]
            awaited = {entry.number for name in units for entry in self.lists[name]}
            self.tags.append((new["pc"] & 0xFFFF, awaited))
