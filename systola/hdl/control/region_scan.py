# SPDX-License-Identifier: Apache-2.0
"""The unit that compares the next instruction with the entries of all lists, one a cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.commands import HOST_OFFSET_BITS
from systola.hdl.control.numbered_list import RING_BITS
from systola.hdl.control.scan_rom import (
    LISTS,
    MASK_BITS,
    OWN_BITS,
    QUEUE_BITS,
    REGION_BITS,
    ROM_ROWS,
    STARTS,
    ScanLayout,
    ScanRom,
    Step,
)
from systola.hdl.control.step_row import CELL_BITS, CELLS, REGION_CELLS
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.promise import promised
from systola.hdl.parts.sequence_number import NUMBER_BITS, PLACE_BITS, Numbered

DECODED = 2
"""Largest number of instructions in the decoder, or out of it and not yet issued."""
_OWN_KIND = (1 << REGION_BITS) - 1
"""The kind of region under which the memory holds regions of instructions not yet issued."""
_BLOCK = {"ram_style": "block", "no_rw_check": 1}
"""Attributes of a block RAM. Without `no_rw_check` Yosys adds logic for read-write collisions."""


class ListView(data.StructLayout):
    """A view of a list of instructions.

    | field      | meaning |
    |---|---|
    | `oldest`   | number of the oldest entry |
    | `youngest` | place of the youngest entry |
    | `some`     | there is an entry |
    """

    def __init__(self) -> None:
        super().__init__({"oldest": NUMBER_BITS, "youngest": RING_BITS, "some": 1})


class Found(data.StructLayout):
    """A sequence number that the scan has found.

    | field     | meaning |
    |---|---|
    | `mask`    | index of its mask among the masks of the instruction's queue |
    | `numbers` | the number, and the run it belongs to |
    """

    def __init__(self) -> None:
        super().__init__({"mask": MASK_BITS, "numbers": Numbered()})


class RegionScan(wiring.Component):
    """A unit that takes each instruction through its rows of the scan ROM (`ScanRom`), in order.

    It keeps the regions of unfinished instructions in block RAM.

    | port | meaning |
    |---|---|
    | `keeps`, `cell`, `kept` | the sequenced decoder writes a cell of its scratch memory; some
                                cells are regions |
    | `taken` | the decoder has taken an instruction |
    | `opcode` | opcode of this instruction |
    | `takes` | the decoder may begin with the next instruction; stays high while it is in the
                decoder |
    | `judged` | the next instruction, in order, has no fault; never asserted after a fault |
    | `lists` | views of the lists of unfinished instructions |
    | `finds`, `found` | a sequence number for the scanned instruction is found |
    | `complete` | all numbers are found and all regions are kept; stays until `issue` |
    | `lists_in` | while `complete`: a bit for each list that the instruction enters |
    | `queue` | while `complete`: the queue that it enters |
    | `rises` | while `complete`, a bit for each list: its entry rises, as in `NumberedList` |
    | `issue` | the instruction enters its lists; only while `complete` |

    Cycles of an instruction: 8, and one for each of its own regions, each entry of a list, each
    empty list, and each region that is kept. Keeping a region takes one cycle more if the decoder
    writes a cell in the same cycle. Lists change only with `issue`.
    """

    def __init__(self, *, config: Config):
        self._rom = ScanRom(config)
        super().__init__(
            {
                "keeps": In(1),
                "cell": In(ceil_log2(CELLS)),
                "kept": In(CELL_BITS),
                "taken": In(1),
                "opcode": In(ceil_log2(STARTS)),
                "takes": Out(1),
                "judged": In(1),
                "lists": In(data.StructLayout(dict.fromkeys(LISTS, ListView()))),
                "finds": Out(1),
                "found": Out(Found()),
                "complete": Out(1),
                "lists_in": Out(len(LISTS)),
                "queue": Out(QUEUE_BITS),
                "rises": Out(len(LISTS)),
                "issue": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._moves = Signal()  # no region has to wait for a write of the decoder
        self._bank = Signal()  # half of the memory with the regions of the scanned instruction
        self._walks, self._row = Signal(), Signal(ScanLayout(), reset_less=True)
        row_ends = Signal()
        self._read_rows(m, row_ends)
        stage = data.StructLayout(
            {
                "valid": 1,
                "starts": 1,
                "there": 1,
                "ends": 1,
                "number": NUMBER_BITS,
                "row": ScanLayout(),
            }
        )
        addressed, read, compared = (
            Signal(stage, name=name) for name in ("addressed", "read", "compared")
        )
        self._walk(m, addressed, row_ends)
        with m.If(self._moves):
            m.d.sync += [read.eq(addressed), compared.eq(read)]
        self._compare(m, addressed, read, compared)
        m.d.comb += [
            self.lists_in.eq(self._row.lists),
            self.queue.eq(self._row.queue),
            self.complete.eq(
                self._walks
                & (self._row.step == Step.ISSUE)
                & ~Cat(read.valid, compared.valid, self.finds).any()
            ),
        ]
        promised(m, platform, ~self.issue | self.complete, "an issue before its scan is complete")
        promised(m, platform, ~self.taken | self.takes, "an instruction too many is decoded")
        return m

    def _read_rows(self, m: Module, row_ends: Value) -> None:
        """Read the rows of the next judged instruction; the ROM also holds the place of its first
        row.
        """
        m.submodules.rom = memory = Memory(
            shape=ScanLayout().size, depth=ROM_ROWS, init=self._rom.contents, attrs=_BLOCK
        )
        port = memory.read_port()
        opcodes = [Signal.like(self.opcode, name=f"opcode_{i}", reset_less=True) for i in (0, 1)]
        into = Signal()
        decoded, judged = Signal(range(DECODED + 1)), Signal(range(DECODED + 1))
        begins, pointed, reads, loads, done = (
            Signal(name=name) for name in ("begins", "pointed", "reads", "loads", "done")
        )
        at = Signal(ceil_log2(ROM_ROWS), reset_less=True)
        for number, opcode in enumerate(opcodes):
            with m.If(self.taken & (into == number)):
                m.d.sync += opcode.eq(self.opcode)
        m.d.comb += [
            self.takes.eq(~decoded[1]),
            begins.eq((judged != 0) & ~(pointed | reads | loads | self._walks)),
            done.eq(self._walks & row_ends & self._moves),
            port.addr.eq(Mux(begins, Mux(self._bank, *reversed(opcodes)), at)),
            port.en.eq(begins | reads | loads | done),
        ]
        m.d.sync += [
            into.eq(into ^ self.taken),
            self._bank.eq(self._bank ^ self.issue),
            decoded.eq(decoded + self.taken - self.issue),
            judged.eq(judged + self.judged - self.issue),
            pointed.eq(begins),
            reads.eq(pointed),
            loads.eq(reads),
            self._walks.eq(loads | (self._walks & ~self.issue)),
        ]
        with m.If(pointed):
            m.d.sync += at.eq(port.data)
        with m.Elif(reads | loads | done):
            m.d.sync += at.eq(at + 1)
        with m.If(loads | done):
            m.d.sync += self._row.eq(port.data)

    def _walk(self, m: Module, addressed: data.View, row_ends: Signal) -> None:
        """Step through the entries of the list that a row names, oldest entry first."""
        row = self._row
        oldest, youngest = Signal(NUMBER_BITS), Signal(RING_BITS)
        some, starts = Signal(), Signal()
        with m.Switch(row.list):
            for number, name in enumerate(LISTS):
                with m.Case(number):
                    view = self.lists[name]
                    m.d.comb += Cat(oldest, youngest, some).eq(view)
        next_number = Signal(NUMBER_BITS, reset_less=True)
        position = Signal(NUMBER_BITS)
        is_compare, is_keep = row.step == Step.COMPARE, row.step == Step.KEEP
        there = ~starts | (some & ~row.never)
        m.d.comb += [
            position.eq(Mux(starts, oldest, next_number)),
            addressed.valid.eq(self._walks & (row.step != Step.ISSUE)),
            addressed.starts.eq(starts),
            addressed.there.eq(there),
            addressed.ends.eq(row_ends),
            addressed.number.eq(
                Cat(Mux(is_keep, youngest, position[:RING_BITS]), position[RING_BITS:])
            ),
            addressed.row.eq(row),
            row_ends.eq(
                addressed.valid & (~is_compare | ~there | (position[:RING_BITS] == youngest))
            ),
        ]
        with m.If(self._moves):
            m.d.sync += [starts.eq(row_ends | ~self._walks), next_number.eq(position + 1)]

    def _compare(
        self, m: Module, addressed: data.View, read: data.View, compared: data.View
    ) -> None:
        """Read a region, compare it with the instruction's region, and write the instruction's
        regions.
        """
        low = data.StructLayout({"base": HOST_OFFSET_BITS, "filled": 1, "rises": 1})
        high = data.StructLayout({"end": HOST_OFFSET_BITS, "space": 2})
        places = 1 << (REGION_BITS + RING_BITS)
        own = Signal(Region(HOST_OFFSET_BITS), reset_less=True)
        filled = Signal(reset_less=True)
        its_low, its_high = Signal(low, reset_less=True), Signal(high, reset_less=True)
        row = compared.row
        below, overlaps, same_space, follows, rises = (
            Signal(name=name) for name in ("below", "overlaps", "same_space", "follows", "rises")
        )
        keeps, decodes = Signal(), Signal()
        risen = self.rises.bit_select(row.list, 1)
        # The number of a region's cell has one bit for base or end, then the region's number in
        # SCANNED.
        own_cell = self.cell[: 1 + OWN_BITS]
        decoding = Signal()  # half of the memory for the instruction that is being decoded
        m.d.sync += decoding.eq(decoding ^ self.judged)
        m.d.comb += [
            # The signs of differences come out of the carry chains as they are.
            below.eq((own.base - its_high.end)[-1]),
            overlaps.eq(below & (its_low.base - own.end)[-1] & same_space),
            # Units report addresses of all spaces as one range, in the order of the spaces.
            follows.eq((same_space & ~below) | (its_high.space < row.space)),
            rises.eq(Mux(row.walked, follows & its_low.filled, risen)),
            same_space.eq(its_high.space == row.space),
            keeps.eq(compared.valid & (row.step == Step.KEEP)),
            decodes.eq(self.keeps & (self.cell[1 + OWN_BITS :] == REGION_CELLS >> 1 + OWN_BITS)),
            self._moves.eq(~(keeps & decodes)),
        ]
        address = Signal(RING_BITS + REGION_BITS)
        m.d.comb += address.eq(
            Mux(
                addressed.row.step == Step.OWN,
                Cat(addressed.row.own, self._bank, Const(_OWN_KIND, REGION_BITS)),
                Cat(addressed.number[:RING_BITS], addressed.row.region),
            )
        )
        into = Signal.like(address)
        m.d.comb += into.eq(
            Mux(
                decodes,
                Cat(own_cell[1:], decoding, Const(_OWN_KIND, REGION_BITS)),
                Cat((compared.number[:RING_BITS] + 1)[:RING_BITS], row.region),
            )
        )
        kept = self.kept[:HOST_OFFSET_BITS]
        lows, highs = Signal(low), Signal(high)
        m.d.comb += [
            lows.base.eq(Mux(decodes, kept, own.base)),
            lows.filled.eq(filled),
            lows.rises.eq(rises),
            highs.end.eq(Mux(decodes, kept, own.end)),
            highs.space.eq(row.space),
        ]
        for name, written, register, half in (
            ("bases", lows, its_low, 0),
            ("ends", highs, its_high, 1),
        ):
            m.submodules[name] = memory = Memory(
                shape=written.shape(), depth=places, init=[], attrs=_BLOCK
            )
            write, port = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(Mux(decodes, own_cell[0] == half, keeps)),
                write.addr.eq(into),
                write.data.eq(written),
                port.addr.eq(address),
                port.en.eq(self._moves),
            ]
            with m.If(self._moves):
                m.d.sync += register.eq(port.data)
                with m.If(read.valid & (read.row.step == Step.OWN)):
                    name_of = "end" if half else "base"
                    m.d.sync += own[name_of].eq(port.data[name_of])
        # With OWN, both compared regions are the same: it is not empty if its base is below its
        # end.
        with m.If(compared.row.step == Step.OWN):
            m.d.sync += filled.eq(below)
        with m.If(keeps & row.walked & self._moves):
            m.d.sync += risen.eq(rises)
        self._find(m, compared, overlaps, its_low.rises)

    def _find(self, m: Module, compared: data.View, overlaps: Value, rises: Value) -> None:
        """Find the number for a mask: the youngest conflicting entry, and the length of its run.

        An entry conflicts if any row of the mask finds it to overlap.
        """
        row, number = compared.row, compared.number
        # A bit for each place: a row of the mask has found a conflict there.
        hits = Signal(1 << PLACE_BITS, reset_less=True)
        running = Signal(reset_less=True)  # the entry before belongs to the run
        last = Signal(NUMBER_BITS, reset_less=True)
        run_first = Signal(PLACE_BITS, reset_less=True)
        place = number[:PLACE_BITS]
        hit, goes_on = Signal(), Signal()
        takes = compared.valid & (row.step == Step.COMPARE) & self._moves
        m.d.comb += [
            hit.eq(compared.there & (overlaps | (hits.bit_select(place, 1) & ~row.first))),
            goes_on.eq(running & ~compared.starts & rises),
            self.found.numbers.last.eq(last),
            self.found.numbers.run.eq(last[:PLACE_BITS] - run_first),
        ]
        m.d.sync += self.finds.eq(takes & compared.ends & row.last)
        with m.If(takes):
            m.d.sync += [
                hits.bit_select(place, 1).eq(hit),
                running.eq(hit | goes_on),
                self.found.mask.eq(row.mask),
            ]
            with m.If(hit):
                m.d.sync += last.eq(number)
                with m.If(~goes_on):
                    m.d.sync += run_first.eq(place)
            with m.Elif(row.first & compared.starts):
                # Without a conflict the number names an entry that has left the list long ago.
                m.d.sync += last.eq(
                    Cat(place, (number[PLACE_BITS:] - 1)[: NUMBER_BITS - PLACE_BITS])
                )
