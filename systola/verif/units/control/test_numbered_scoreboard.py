# SPDX-License-Identifier: Apache-2.0
"""The test of the numbered scoreboard, in lockstep with the scoreboard.

Each scoreboard has a decoder. Both get the same random programs, issue at the same time, and see
units that progress at random. Where the scoreboard has a mask, the numbered scoreboard has a
sequence number; mask and number must name the same instruction.

A scan compares the regions of an instruction with older instructions, in one cycle for each row of
its program. A span is SPAN issued instructions. The last instruction of a span waits for all
unfinished instructions of earlier spans.
"""

from collections import Counter, deque

import cocotb
import pytest

from systola.arch.isa import BY_OPCODE, Fault, Opcode, Operation, way_of
from systola.hdl.control.numbered_scoreboard import COMPLETES_IN, RINGS
from systola.hdl.control.scalar_unit import EffectiveInstruction
from systola.hdl.control.scan_rom import LISTS, QUEUES, ScanRom, Step, list_of, masks_of
from systola.hdl.parts.sequence_number import NUMBER_BITS, PLACE_BITS, SPAN
from systola.verif.kit.expect import expect
from systola.verif.kit.stream import StreamSource, never
from systola.verif.units.control.both_decoders import WORD
from systola.verif.units.control.both_scoreboards import BothScoreboards
from systola.verif.units.control.decoder_words import Writer, payload
from systola.verif.units.control.instruction_reader import SETTINGS, Reader, word
from systola.verif.units.control.scalar_model import kind
from systola.verif.units.control.test_sequenced_decoder import Registers
from systola.verif.units.packing import to_bits
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    long_variants,
    rng,
    run_unit,
    small_config,
)

SIZES = {"rows": 5, "cols": 6, "columns_per_stage": 2, "host_bus_bytes": 8, "weight_bus_bytes": 4}
MEMORIES = {"buffer_lines": 112, "accumulator_rows": 70, "parameter_entries": 24, "tables": 3}
CONFIGS = {
    "tiny": small_config(**SIZES, **MEMORIES, wide=False, depthwise=False),
    "complete": small_config(**SIZES, **MEMORIES, queue_depth=8),
    "shallow": small_config(**SIZES, **MEMORIES, queue_depth=3),
}
RARE = ("complete", "shallow")
LIMIT, TILES = 4096, 70
"""The size of the host window in bytes, and of the weight window in tiles."""
OPCODES = (
    *(Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.LOAD_PARAMETERS),
    *(Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE, Opcode.LOAD_TABLE),
    *(Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.ACTIVATE, Opcode.VECTOR, Opcode.VECTOR),
    *(Opcode.POOL, Opcode.ACTIVATE, Opcode.DEBUG_TAG, Opcode.READ_WEIGHTS),
    *(Opcode.SET_CONFIG_WINDOW, Opcode.SET_CONFIG_SCALE, Opcode.SET_REGISTER, Opcode.NOP),
)
BUSY = (
    *(Opcode.ACTIVATE, Opcode.VECTOR, Opcode.VECTOR, Opcode.POOL, Opcode.READ_HOST_MEMORY),
    *(Opcode.LOAD_PARAMETERS, Opcode.MATRIX_MULTIPLY),
)
NUMBERS, PLACES = 1 << NUMBER_BITS, 1 << PLACE_BITS
SETTLED = 2
"""Cycles after the push of an entry in which the scoreboard does not show the entry yet."""
QUIET = 120
"""Cycles without a move of any unit after which both scoreboards have nothing left to do."""
SCAN_CYCLES = 8
"""Cycles from the end of an instruction's checks to its issue, less a cycle for each scan row."""
DELAYED = 16
"""The largest number of cycles for which a scan waits while the decoder writes the regions.

An instruction has two or three regions.
"""
STOPS = 1500
"""Cycles from one stop of all units to the next.

A stop lasts until all queues are full.
"""
COUNT = {"tiny": 450, "complete": 1500, "shallow": 1500}
"""The number of instructions of a program, by variant."""


def config():
    return CONFIGS[chosen_variant()]


def program(random, count, choose, runs):
    """Return a random program of legal words, many of which touch the same addresses.

    With `runs` the program also has pairs of reads to neighbouring lines. `choose` returns the
    opcode of an instruction, given the instruction's number in the program.
    """
    text = Reader(config(), limit=LIMIT, tiles=TILES)
    writer = Writer(random, text)
    found = []
    while len(found) < count:
        opcode = choose(len(found)) if text.window else Opcode.SET_CONFIG_WINDOW
        if opcode is Opcode.READ_HOST_MEMORY and runs:
            found += (payload(random, bits) for bits in run_of_reads(random))
        operands = writer.legal(opcode)
        if opcode is Opcode.VECTOR and operands["operation"] == Operation.COPY:
            operands["operand"] = 0
        bits = word(opcode, operands)
        if text.fault(bits)[0] == Fault.NONE:
            found.append(payload(random, bits))
            if opcode in SETTINGS:
                text.execute(bits)
    return [{**each, "loop_fault": 0} for each in found]


def run_of_reads(random):
    """Return two reads with lines that follow one another, and a write of all these lines."""
    line, bus = random.randrange(100), config().host_bus_bytes
    host = [random.randrange(LIMIT // 2 // bus) * bus for _ in range(3)]
    shared = {"stride": 2 * bus, "blocks": 1, "tail": 1}
    copies = (
        (Opcode.READ_HOST_MEMORY, {"buffer": line, "rows": 5}),
        (Opcode.READ_HOST_MEMORY, {"buffer": line + 5, "rows": 7}),
        (Opcode.WRITE_HOST_MEMORY, {"buffer": line, "rows": 12}),
    )
    return [
        word(opcode, {**shared, **fields, "host": place})
        for (opcode, fields), place in zip(copies, host, strict=True)
    ]


class Instruction:
    """A record of an instruction under way.

    It has the rings and lists that the instruction is in, and the numbers that its scan has found.
    """

    def __init__(self, number, opcode):
        way = way_of(BY_OPCODE[opcode])
        self.number = number
        self.opcode = opcode
        self.queue = way.queue if way else None
        self.lists = list(way.lists) if way else []
        self.numbers = {}
        self.rings = [name for name in RINGS if name == self.queue]
        self.rings += ["host_read"] * (self.queue == "host_reads")

    def __repr__(self):
        return f"{self.number} {self.opcode.name}"


class Entries:
    """A list of instructions, oldest first; `left` is the number of those that have left it."""

    def __init__(self):
        self.found = deque()
        self.left = 0
        self.age = SETTLED

    def named(self, number):
        """Return how many entries are older than the instruction with a sequence number.

        The result is None if the instruction has left.
        """
        ahead = (number - self.left) % NUMBERS
        return ahead if ahead < PLACES else None


class Units:
    """A model of units that take commands and leave lists at random, and the checks of each cycle.

    `asleep` are lists that no instruction leaves.
    """

    def __init__(self, bench, words, random):
        self.bench, self.random = bench, random
        self.masks = masks_of(config())
        self.waiting = deque(
            Instruction(number, Opcode(bits & 0xFF)) for number, bits in enumerate(words)
        )
        self.lists = {name: Entries() for name in LISTS}
        self.queues = {name: deque() for name in RINGS}
        self.fresh = dict.fromkeys(RINGS, 0)
        self.asleep, self.popped = set(), []
        self.quiet, self.rate, self.steps = 0, 0.1, 0
        # number of instructions issued in the present span; unfinished ones of earlier spans
        self.position, self.earlier = 0, set()
        self.seen = Counter()

    async def step(self):
        """Run a cycle: let units move, then check the outputs of both scoreboards."""
        self.steps += 1
        pops, advances, retires, to = self._moves()
        bench = self.bench
        await bench.cycle(
            pop=sum(1 << RINGS.index(name) for name in pops),
            advance=sum(1 << LISTS.index(name) for name in advances),
            retire=sum(1 << LISTS.index(name) for name in retires),
            advance_to=to,
            hold_tags=self.random.random() < 0.1,
        )
        self._compare()
        self._take_numbers()
        for name in pops:
            self.queues[name].popleft().rings.remove(name)
        for name in retires:
            self._retire(name)
        for entries in self.lists.values():
            entries.age += 1
        self.quiet = 0 if pops or retires else self.quiet + 1
        if bench.get("issues"):
            self._issue()
            self.quiet = 0

    def _moves(self):
        random = self.random
        moving = random.random() < 0.9 and self.rate > 0
        # A queue shows its state of the cycle before, so its unit takes a command in every other
        # cycle.
        self.popped = [
            name
            for name in RINGS
            if moving
            and name not in self.popped
            and self.bench.get(f"old_{name}_valid")
            and random.random() < 2 * self.rate
        ]
        able = [name for name in LISTS if moving and self._may_move(name)]
        retires = [name for name in able if random.random() < self.rate]
        advances = [name for name in able if random.random() < self.rate]
        return self.popped, advances, retires, random.randrange(64)

    def _may_move(self, name):
        """Return whether the oldest instruction of list `name` may leave it, or advance."""
        entries = self.lists[name]
        if name == "loading" or name in self.asleep or not entries.found:
            return False
        oldest = entries.found[0]
        fresh = len(entries.found) == 1 and entries.age < SETTLED + 1
        own = [each for each in oldest.lists if each != "loading"]
        return not oldest.rings and not fresh and own[0] == name

    def _retire(self, name):
        """Let the oldest instruction of list `name` leave it; a load leaves both of its lists."""
        entries = self.lists[name]
        oldest = entries.found.popleft()
        entries.left += 1
        oldest.lists.remove(name)
        if "loading" in oldest.lists:
            oldest.lists.remove("loading")
            assert self.lists["loading"].found.popleft() is oldest
            self.lists["loading"].left += 1
        if not oldest.lists:
            self.earlier.discard(oldest)

    def _issue(self):
        new = self.waiting.popleft()
        if new.queue is None:
            return
        if new.lists:
            for name in new.lists:
                self.lists[name].found.append(new)
                self.lists[name].age = 0
                assert len(self.lists[name].found) <= config().queue_depth
            self.position += 1
            if self.position == SPAN:
                assert not self.earlier, f"{new} ends a span before {self.earlier}"
                self.position = 0
                self.earlier = {each for name in LISTS for each in self.lists[name].found}
                self.seen["spans"] += 1
        for name in new.rings:
            self.queues[name].append(new)
        expected = set(self.masks[new.queue])
        assert set(new.numbers) == expected, f"{new} has found {new.numbers}"

    def _take_numbers(self):
        """Note a number that the scan has found in this cycle, for the instruction that is issued
        next.
        """
        if self.bench.get("finds"):
            found = self.bench.get("found")
            new = self.waiting[0]
            mask = self.masks[new.queue][found.mask]
            new.numbers[mask] = (found.numbers.last, found.numbers.run)

    def _compare(self):
        bench = self.bench
        assert not bench.get("failed"), f"{self.waiting[0]} has a fault"
        expect("tagged", bench.get("new_tagged"), bench.get("old_tagged"))
        if bench.get("old_tagged"):
            expect("tag", bench.get("new_tag"), bench.get("old_tag"))
            self.seen["tags"] += 1
        for name, entries in self.lists.items():
            progress = bench.get(f"new_{name}")
            expect(f"oldest of {name}", progress.oldest, entries.left % NUMBERS)
            if entries.found and entries.age >= SETTLED:
                old = bench.get(f"old_{name}")
                expect(f"reach of {name}", progress.reached, old.reached)
        for queue in QUEUES:
            if queue in COMPLETES_IN and bench.get(f"old_{queue}_valid"):
                self._compare_masks(queue)
        if self.quiet > QUIET and self.waiting:
            holds = self.position == SPAN - 1 and self.earlier and bool(self.waiting[0].lists)
            self.seen["held" if holds else "quiet"] += 1
            expect("ready", bench.get("ready"), bench.get("has_room") and not holds)

    def _compare_masks(self, queue):
        """Compare the masks of the oldest command in a queue with the numbers for it."""
        oldest = self.queues[queue][0]
        shown = self.bench.get(f"old_{queue}_masks")
        for mask in self.masks[queue]:
            entries = self.lists[list_of(mask)]
            about = f"{mask} of {oldest}, {entries.found}"
            last, run = oldest.numbers[mask]
            kept = self.bench.get(f"new_{queue}_masks")[mask]
            expect("number in memory", (kept.last, kept.run), (last, run), about)
            named = entries.named(last)
            old = shown[mask]
            expect("awaits", named is not None, bool(old.pending), about)
            if named is None:
                continue
            assert named < len(entries.found), about
            assert entries.found[named].number < oldest.number, about
            places = 1 << (config().queue_depth - 1).bit_length()
            expect("place", last % places, old.place, about)
            # Entries of the run that have left the list do not matter.
            expect("run", min(run, named), min(old.run, named), about)
            self.seen["runs" if min(run, named) else "masks"] += 1


async def run(dut, name, choose, phases, count=None, runs=False):
    """Run a random program on both scoreboards; `phases` sets in each cycle how units move."""
    count = count or COUNT[chosen_variant()]
    bench = Bench(dut, BothScoreboards(config=config()))
    await bench.start()
    bench.set(host_limit=LIMIT, weight_tiles=TILES, allowed=1)
    random = rng("numbered", name, chosen_variant())
    registers = Registers(random)
    old = StreamSource(dut, "instruction", dut.clk, never())
    new = StreamSource(dut, "given", dut.clk, never())
    words = []
    for each in program(random, count, choose, runs):
        bits, sums = registers.taken(each["word"], 0)
        words.append(bits)
        given = {"error": 0, "pc": each["pc"], "word": bits, "sums": sums, "kind": kind(bits)}
        old.put([to_bits(EffectiveInstruction(), given)])
        new.put([to_bits(WORD, {"word": bits, "error": 0})])
    units = Units(bench, words, random)
    for _ in range(200 * count):
        phases(units)
        bench.set(allowed=random.random() < 0.9)
        await units.step()
        if not units.waiting:
            break
    assert not units.waiting, f"{units.waiting[0]} is not issued"
    dut._log.info("%s", dict(units.seen))
    return units


@cocotb.test
async def random_programs(dut):
    """Check both scoreboards with units of changing speed.

    Now and then all units stop until all queues are full.
    """

    def phases(units):
        if units.steps % STOPS == 0:
            units.rate = 0
        elif units.rate == 0 and units.quiet > QUIET + 5:
            units.rate = units.random.choice((0.02, 0.1, 0.4))

    opcodes = OPCODES + (Opcode.DEPTHWISE,) * config().depthwise
    random = rng("numbered random", chosen_variant())
    units = await run(dut, "random", lambda _: random.choice(opcodes), phases, runs=True)
    assert min(units.seen[what] for what in ("masks", "runs", "tags", "quiet")) > 0


@cocotb.test
async def one_sleeps(dut):
    """Check both scoreboards while the host writer sleeps.

    Issue stops only at the end of the span after the span with the unfinished write.
    """

    def phases(units):
        writing = units.lists["host_writing"].found
        if units.quiet > QUIET + 5:
            units.asleep = set()
        elif not units.asleep and writing:
            units.asleep = {"host_writing"}
        units.rate = 0.4

    random = rng("numbered sleep", chosen_variant())

    def choose(number):
        # There is a write every 120 instructions, more than two spans after the write before.
        return Opcode.WRITE_HOST_MEMORY if number % 120 == 20 else random.choice(BUSY)

    units = await run(dut, "sleep", choose, phases)
    assert units.seen["held"] and units.seen["spans"] > 3
    assert units.lists["activate_writing"].left > NUMBERS


@cocotb.test
async def cycles_of_a_scan(dut):
    """Check the cycles from the end of an instruction's checks to its issue, with empty lists."""
    programs = ScanRom(config()).programs
    now, issued, judged, found = 0, 0, deque(), set[tuple[Opcode, int]]()
    empty_since = 0

    def phases(units):
        nonlocal now, issued, empty_since
        now += 1
        units.rate = 1
        if units.bench.get("judges"):
            judged.append(now)
        if any(entries.found for entries in units.lists.values()):
            empty_since = now + 1
        if units.bench.get("issues"):
            issued = now
            judged.popleft()
        elif units.bench.get("ready") and judged and judged[0]:
            # The scan begins after the checks, but not before the issue of the older instruction.
            begins, judged[0] = max(judged[0], issued), 0
            opcode = units.waiting[0].opcode
            rows = programs[opcode][:-1]
            if rows and begins >= empty_since:
                # A last row that compares takes a cycle more, to hand on the number that it finds.
                # A last row that stores a region does not.
                more = rows[-1].step == Step.COMPARE
                late = now - begins - SCAN_CYCLES - len(rows) - more
                # The scan stores regions later if the decoder is still writing their cells.
                assert 0 <= late <= DELAYED, f"{opcode.name} takes {now - begins} cycles"
                found.add((opcode, late))

    random = rng("numbered cycles", chosen_variant())
    await run(dut, "cycles", lambda _: random.choice(OPCODES), phases, 120)
    assert len({opcode for opcode, late in found if not late}) > 5


def unit(variant=None):
    return BothScoreboards(config=CONFIGS[variant or chosen_variant()])


@pytest.mark.thorough
@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_numbered_scoreboard(simulator, variant):
    run_unit("test_numbered_scoreboard", simulator, unit(variant), variant=variant)
