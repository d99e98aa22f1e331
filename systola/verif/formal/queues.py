# SPDX-License-Identifier: Apache-2.0
"""Proofs that queues neither lose nor double nor reorder words, for any pushes and pops."""

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.hdl.control.command_queue import CommandQueue
from systola.hdl.memories.block_ring import BlockRing
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.in_flight import Awaited, Progress
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.transfers.weight_fifo import LATENCY, WeightFifo
from systola.verif.formal.harness import Harness, Tracked, Unit, anything, before, implies
from systola.verif.formal.proof import Fault, Proof

WORD = data.StructLayout({"word": 4})
"""The layout of a word: queues do not read their words, so a proof for this width holds for any."""


def place_behind(first: Signal, steps: Value, depth: int) -> Value:
    """Return the place `steps` after `first` in a ring of `depth` places.

    `steps` is `depth` at most.
    """
    sum = first + steps
    return Mux(sum >= depth, sum - depth, sum)


class CommandQueueHarness(Harness):
    """A proof harness for the command queue, which follows word and mask of one instruction.

    The mask names the entry of a list that the instruction awaits, until this entry leaves the
    list.
    """

    DEPTH = 4
    LIST = 4

    def claims(self, m: Module) -> None:
        dut = CommandQueue(command=WORD, depth=self.DEPTH, masks={"list": 2}, list_depth=self.LIST)
        unit = Unit(m, dut)
        # mask of the instruction that was pushed a cycle before
        mask = anything(m, Awaited(self.LIST), "mask")
        progress = anything(m, Progress(2, self.LIST), "progress")
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            Assume(~(dut.push & dut.full)),
            dut.pushed.eq(anything(m, 4, "word")),
            dut.pushed_masks["list"].eq(mask),
            dut.progress["list"].eq(progress),
            dut.pop.eq(anything(m, 1, "pop")),
            Assume(implies(dut.pop, dut.valid)),
        ]
        exits = dut.pop & dut.valid
        item = Tracked(m, enters=dut.push, word=dut.pushed, exits=exits, most=self.DEPTH)
        fresh = before(m, item.chosen, "fresh")
        wanted, now = (Signal(Awaited(self.LIST), name=name) for name in ("wanted", "now"))
        leaves = progress.retires & (now.place == progress.place)
        m.d.comb += now.eq(Mux(fresh, mask, wanted))
        m.d.sync += wanted.eq(Cat(now.pending & ~leaves, now.place, now.run))
        oldest = item.follows & (item.ahead == 0) & dut.valid
        filled = before(m, item.count != exits, "filled")
        m.d.comb += [
            Assert(implies(oldest, dut.command.word == item.word)),
            Assert(implies(oldest, dut.masks["list"] == wanted)),
            Assert(implies(oldest, dut.unblocked == ~wanted.pending)),
            Assert(dut.full == (item.count == self.DEPTH)),
            Assert(dut.valid == filled),
        ]

        waiting, first, free = (
            unit.inside(name) for name in ("commands_waiting", "oldest_place", "push_place")
        )
        comes, to = unit.inside("masks_come"), unit.inside("masks_place")
        rows = Array(unit.rows("commands.memory", self.DEPTH))
        masks = Array([unit.inside(f"masks_{i}") for i in range(self.DEPTH)])
        place = Signal.like(first)
        m.d.comb += place.eq(first + item.ahead)
        m.d.comb += self.lemmas(
            waiting == Cat(item.count > i for i in range(self.DEPTH)),
            implies(dut.valid, item.count != 0),
            free == (first + item.count)[: len(free)],
            (unit.inside("commands.write_place") == free)
            & (unit.inside("commands.read_place") == first),
            implies(item.follows, rows[place] == item.word),
            implies(item.follows & ~fresh, Value.cast(masks[place]) == wanted.as_value()),
            implies(item.follows & fresh, comes & (to == place)),
            implies(item.follows & ~fresh & comes, to != place),
            implies(fresh & (item.ahead == 0), ~dut.valid),
            implies(comes, to == (free - 1)[: len(free)]),
        )


class PayloadRingHarness(Harness):
    """A proof harness for a ring of words in a memory.

    Its user pushes at most `depth` words and pops only words that are inside.
    """

    DEPTH = 5

    def claims(self, m: Module) -> None:
        dut = PayloadRing(payload=WORD, depth=self.DEPTH)
        unit = Unit(m, dut)
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            dut.pushed.eq(anything(m, 4, "word")),
            dut.pop.eq(anything(m, 1, "pop")),
        ]
        item = Tracked(m, enters=dut.push, word=dut.pushed, exits=dut.pop, most=self.DEPTH)
        m.d.comb += [
            Assume(implies(dut.pop, item.count != 0)),
            Assume(implies(dut.push, item.count != self.DEPTH)),
            Assert(implies(item.follows & (item.ahead == 0), dut.oldest.word == item.word)),
        ]
        first, free = unit.inside("read_place"), unit.inside("write_place")
        rows = Array(unit.rows("memory", self.DEPTH))
        m.d.comb += self.lemmas(
            (first < self.DEPTH) & (free < self.DEPTH),
            place_behind(first, item.count, self.DEPTH) == free,
            implies(item.follows, rows[place_behind(first, item.ahead, self.DEPTH)] == item.word),
        )


class BlockRingHarness(Harness):
    """A proof harness for a ring of words in block RAM.

    A word must stand at the input for a cycle before it is pushed. At most `depth` words are
    inside, and the user pops only words that are shown.
    """

    DEPTH = 4

    def claims(self, m: Module) -> None:
        dut = BlockRing(payload=WORD, depth=self.DEPTH)
        unit = Unit(m, dut)
        earlier, pushed = before(m, dut.pushed, "earlier"), before(m, dut.push, "pushed", init=1)
        m.d.comb += [
            dut.push.eq(anything(m, 1, "push")),
            dut.pushed.eq(anything(m, 4, "word")),
            dut.pop.eq(anything(m, 1, "pop")),
            Assume(implies(dut.push, ~pushed & (Value.cast(dut.pushed) == earlier))),
        ]
        item = Tracked(m, enters=dut.push, word=dut.pushed, exits=dut.pop, most=self.DEPTH)
        filled = before(m, item.count != dut.pop, "filled")
        m.d.comb += [
            Assume(implies(dut.pop, filled)),
            Assume(implies(dut.push, item.count != self.DEPTH)),
            Assert(
                implies(filled & item.follows & (item.ahead == 0), dut.oldest.word == item.word)
            ),
        ]
        read, shown = unit.inside("has_read"), unit.inside("has_shown")
        free, following = unit.inside("write_place"), unit.inside("read_place")
        rows = Array(unit.rows("memory.memory", self.DEPTH))
        unread = Signal.like(free)
        # number of words in the output stages, which come out before the words in the memory
        before_it = Signal(range(self.DEPTH + 1))
        m.d.comb += [unread.eq(free - following), before_it.eq(read + shown)]
        latched = unit.inside("memory.memory.read__data")
        m.d.comb += self.lemmas(
            shown == filled,
            item.count == unread + before_it,
            implies(unread != 0, read),
            implies(~pushed, rows[free] == earlier),
            implies(item.follows & read & (item.ahead == shown), latched == item.word),
            implies(
                item.follows & (item.ahead >= before_it),
                rows[(following + item.ahead - before_it)[: len(free)]] == item.word,
            ),
        )


class WeightFifoHarness(Harness):
    """A proof harness for the weight FIFO, in a memory that gives any value for a word being
    written.
    """

    DEPTH = 6

    def claims(self, m: Module) -> None:
        dut = WeightFifo(width=4, depth=self.DEPTH)
        unit = Unit(m, dut)
        # number of rows that are still to come, for which room is reserved
        reserved = Signal(range(self.DEPTH + 1))
        m.d.sync += reserved.eq(reserved + dut.reserve - dut.push)
        m.d.comb += [
            dut.reserve.eq(anything(m, 1, "reserve")),
            Assume(~(dut.reserve & dut.full)),
            dut.push.eq(anything(m, 1, "push")),
            Assume(~dut.push | dut.reserve | (reserved != 0)),
            dut.pushed.eq(anything(m, 4, "row")),
            dut.rows.pop.eq(anything(m, 1, "take")),
            Assume(~(dut.rows.pop & ~dut.rows.valid)),
        ]
        item = Tracked(m, enters=dut.push, word=dut.pushed, exits=dut.rows.pop, most=self.DEPTH)
        # whether a row left a cycle ago: its room is reported a cycle later
        taken = before(m, dut.rows.pop, "taken")
        is_oldest = item.follows & (item.ahead == 0) & dut.rows.valid
        shown = before(m, is_oldest, "was_oldest")
        m.d.comb += [
            Assert(implies(shown, dut.rows.row == before(m, item.word, "oldest_word"))),
            Assert(dut.full == (item.count + taken + reserved == self.DEPTH)),
        ]
        filled = item.count != 0
        for cycle in range(LATENCY - 1):
            filled = before(m, filled & (item.count != 0) & ~dut.rows.pop, f"filled_{cycle}")
        m.d.comb += Assert(implies(filled, dut.rows.valid))

        stored, held = unit.inside("rows_stored"), unit.inside("rows_reserved")
        some_stored = unit.inside("has_row")
        newest, oldest = unit.inside("write_address"), unit.inside("read_address")
        rows = Array(unit.rows("memory.memory", self.DEPTH))
        behind = item.follows & (item.ahead >= dut.rows.valid)
        place = place_behind(oldest, item.ahead - dut.rows.valid, self.DEPTH)
        m.d.comb += self.lemmas(
            unit.inside("row_taken") == taken,
            item.count + taken + reserved <= self.DEPTH,
            held == item.count + taken + reserved,
            stored + dut.rows.valid == item.count,
            some_stored == (stored != 0),
            (newest < self.DEPTH) & (oldest < self.DEPTH),
            place_behind(oldest, stored, self.DEPTH) == newest,
            implies(behind, rows[place] == item.word),
            implies(is_oldest, unit.inside("memory.memory.read__data") == item.word),
        )


class SkidBufferHarness(Harness):
    """A proof harness for the skid buffer: each word comes out in turn.

    `valid` must be high exactly if a word is inside, and `ready` low exactly if two words are.
    """

    def claims(self, m: Module) -> None:
        dut = SkidBuffer(payload=WORD)
        unit = Unit(m, dut)
        entry, out = dut.input, dut.output
        m.d.comb += [
            entry.valid.eq(anything(m, 1, "valid")),
            entry.payload.eq(anything(m, 4, "word")),
            out.ready.eq(anything(m, 1, "ready")),
        ]
        item = Tracked(
            m,
            enters=entry.valid & entry.ready,
            word=entry.payload,
            exits=out.valid & out.ready,
            most=2,
        )
        waits = unit.inside("spare_valid")
        m.d.comb += [
            Assert(out.valid == (item.count != 0)),
            Assert(entry.ready == (item.count != 2)),
            Assert(implies(item.follows & (item.ahead == 0), out.payload.word == item.word)),
        ]
        m.d.comb += self.lemmas(
            waits == ~entry.ready,
            implies(item.follows & (item.ahead == 1), unit.inside("spare") == item.word),
        )


class DelayLineHarness(Harness):
    """A proof harness for the delay line: words and valid bits come out after one move for each
    stage.
    """

    CYCLES = 4

    def claims(self, m: Module) -> None:
        dut = DelayLine(layout=WORD, cycles=self.CYCLES)
        unit = Unit(m, dut)
        m.d.comb += [
            dut.input.eq(anything(m, 4, "word")),
            dut.input_valid.eq(anything(m, 1, "valid")),
            dut.hold.eq(anything(m, 1, "hold")),
        ]
        follows = Signal()
        moves = Signal(range(self.CYCLES + 1))  # number of moves since the chosen word went in
        word, valid = Signal(4), Signal()
        moving = ~dut.hold
        with m.If(moving & ~follows & anything(m, 1, "choose")):
            m.d.sync += [
                follows.eq(1),
                moves.eq(1),
                word.eq(dut.input),
                valid.eq(dut.input_valid),
            ]
        with m.Elif(moving & follows):
            m.d.sync += [follows.eq(moves != self.CYCLES), moves.eq(moves + 1)]
        out = follows & (moves == self.CYCLES)
        m.d.comb += [
            Assert(implies(out, dut.output.word == word)),
            Assert(implies(out, dut.output_valid == valid)),
        ]
        place = moves - 1
        m.d.comb += self.lemmas(
            implies(follows, (moves != 0) & (moves <= self.CYCLES)),
            implies(follows, unit.inside("payload").word_select(place[:3], 4) == word),
            implies(follows, unit.inside("valid").bit_select(place[:3], 1) == valid),
        )


PROOFS = (
    Proof(
        unit="command_queue",
        claim="commands and masks come out once, in order, and as soon as promised",
        harness=CommandQueueHarness,
        depth=3,
        faults=(
            Fault(
                unit="command_queue",
                old="eq(commands_waiting[-1])",
                new="eq(commands_waiting[-1] & ~self.pop)",
            ),
            Fault(
                unit="command_queue",
                old="masks.eq(kept(masks_now, self.progress))",
                new="masks.eq(Mux(masks_come, masks_now, kept(masks_now, self.progress)))",
            ),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="payload_ring",
        claim="payloads come out once and in order",
        harness=PayloadRingHarness,
        depth=3,
        faults=(
            Fault(
                unit="payload_ring",
                old="read_place.eq(stepped(read_place, self._depth))",
                new="read_place.eq(read_place + 1)",
            ),
        ),
        fault_depth=16,
    ),
    Proof(
        unit="block_ring",
        claim="payloads come out once and in order, as soon as promised",
        harness=BlockRingHarness,
        depth=3,
        faults=(
            Fault(
                unit="block_ring",
                old="memory.write_enable.eq(~self.push)",
                new="memory.write_enable.eq(1)",
            ),
            Fault(
                unit="block_ring",
                old="memory_reads.eq(~has_read | memory.output_enable)",
                new="memory_reads.eq(~has_read | ~has_shown)",
            ),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="weight_fifo",
        claim="rows come out once and in order, also full and empty; none waits without need",
        harness=WeightFifoHarness,
        depth=4,
        faults=(
            Fault(
                unit="weight_fifo",
                old="row_read.eq(has_row & (~self.rows.valid | self.rows.pop))",
                new="row_read.eq((has_row | self.push) & (~self.rows.valid | self.rows.pop))",
            ),
            Fault(
                unit="weight_fifo",
                old="self.full.eq(rows_reserved == depth - 1)",
                new="self.full.eq(rows_reserved == depth)",
            ),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="skid_buffer",
        claim="payloads come out once and in order, a cycle later; room for two",
        harness=SkidBufferHarness,
        depth=3,
        faults=(
            Fault(unit="skid_buffer", old="m.If(~spare_valid)", new="m.If(output_free)"),
            Fault(
                unit="skid_buffer",
                old="spare_fills.eq(~output_free & (~spare_free | self.input.valid))",
                new="spare_fills.eq(~output_free & self.input.valid)",
            ),
        ),
        fault_depth=8,
    ),
    Proof(
        unit="delay_line",
        claim="words come out once, in order, after as many moves as it is long",
        harness=DelayLineHarness,
        depth=3,
        faults=(
            Fault(
                unit="delay_line",
                old="m.If(~self.hold)",
                new="m.If(~self.hold | self.input_valid)",
            ),
        ),
        fault_depth=10,
    ),
)
