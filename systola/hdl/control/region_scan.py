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
"""Largest number of instructions between the decoder and the issue, the instruction in the decoder
included.
"""
_OWN_KIND = (1 << REGION_BITS) - 1
"""Number of the part of the region memory for regions of instructions that are not issued yet.

Each other number stands for a region that a list keeps.
"""
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
    | `mask`    | index of the mask among the masks of the instruction's queue |
    | `numbers` | the sequence number, and the number of older entries that are awaited with it |
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
    | `taken` | the decoder takes an instruction |
    | `opcode` | opcode of this instruction |
    | `takes` | the decoder may begin with the next instruction; stays high while the decoder works
                on it |
    | `judged` | the next instruction, in order, has no fault; never asserted after a fault |
    | `lists` | views of the lists of unfinished instructions |
    | `finds`, `found` | a sequence number for the scanned instruction is found |
    | `complete` | the scan is over: all numbers are found and all regions are kept; stays until
                   `issue` |
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
        # the pipeline moves: no region has to wait for a write of the decoder
        self._stages_move = Signal()
        self._scanned_half = (
            Signal()
        )  # half of the memory with the regions of the scanned instruction
        self._walk_runs = Signal()
        self._scan_row = Signal(ScanLayout(), reset_less=True)
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
        with m.If(self._stages_move):
            m.d.sync += [read.eq(addressed), compared.eq(read)]
        self._compare(m, addressed, read, compared)
        m.d.comb += [
            self.lists_in.eq(self._scan_row.lists),
            self.queue.eq(self._scan_row.queue),
            self.complete.eq(
                self._walk_runs
                & (self._scan_row.step == Step.ISSUE)
                & ~Cat(read.valid, compared.valid, self.finds).any()
            ),
        ]
        promised(m, platform, ~self.issue | self.complete, "an issue before its scan is complete")
        promised(m, platform, ~self.taken | self.takes, "an instruction too many is decoded")
        return m

    def _read_rows(self, m: Module, row_ends: Value) -> None:
        """Read the ROM: first the address of an instruction's first row, then all its rows."""
        m.submodules.rom = memory = Memory(
            shape=ScanLayout().size, depth=ROM_ROWS, init=self._rom.contents, attrs=_BLOCK
        )
        port = memory.read_port()
        opcodes = [Signal.like(self.opcode, name=f"opcode_{i}", reset_less=True) for i in (0, 1)]
        opcode_half = Signal()
        decoded_count = Signal(range(DECODED + 1))
        judged_count = Signal(range(DECODED + 1))
        scan_begins, rom_pointed, row_reads, row_loads, row_done = (
            Signal(name=name)
            for name in ("scan_begins", "rom_pointed", "row_reads", "row_loads", "row_done")
        )
        row_address = Signal(ceil_log2(ROM_ROWS), reset_less=True)
        for number, opcode in enumerate(opcodes):
            with m.If(self.taken & (opcode_half == number)):
                m.d.sync += opcode.eq(self.opcode)
        m.d.comb += [
            self.takes.eq(~decoded_count[1]),
            scan_begins.eq(
                (judged_count != 0) & ~(rom_pointed | row_reads | row_loads | self._walk_runs)
            ),
            row_done.eq(self._walk_runs & row_ends & self._stages_move),
            port.addr.eq(
                Mux(scan_begins, Mux(self._scanned_half, *reversed(opcodes)), row_address)
            ),
            port.en.eq(scan_begins | row_reads | row_loads | row_done),
        ]
        m.d.sync += [
            opcode_half.eq(opcode_half ^ self.taken),
            self._scanned_half.eq(self._scanned_half ^ self.issue),
            decoded_count.eq(decoded_count + self.taken - self.issue),
            judged_count.eq(judged_count + self.judged - self.issue),
            rom_pointed.eq(scan_begins),
            row_reads.eq(rom_pointed),
            row_loads.eq(row_reads),
            self._walk_runs.eq(row_loads | (self._walk_runs & ~self.issue)),
        ]
        with m.If(rom_pointed):
            m.d.sync += row_address.eq(port.data)
        with m.Elif(row_reads | row_loads | row_done):
            m.d.sync += row_address.eq(row_address + 1)
        with m.If(row_loads | row_done):
            m.d.sync += self._scan_row.eq(port.data)

    def _walk(self, m: Module, addressed: data.View, row_ends: Signal) -> None:
        """Step through the entries of the list that the present row of the ROM names.

        The oldest entry comes first.
        """
        row = self._scan_row
        oldest_number = Signal(NUMBER_BITS)
        youngest_place = Signal(RING_BITS)
        list_filled = Signal()
        row_starts = Signal()
        with m.Switch(row.list):
            for number, name in enumerate(LISTS):
                with m.Case(number):
                    view = self.lists[name]
                    m.d.comb += Cat(oldest_number, youngest_place, list_filled).eq(view)
        next_number = Signal(NUMBER_BITS, reset_less=True)
        entry_number = Signal(NUMBER_BITS)
        is_compare, is_keep = row.step == Step.COMPARE, row.step == Step.KEEP
        entry_valid = ~row_starts | (list_filled & ~row.never)
        m.d.comb += [
            entry_number.eq(Mux(row_starts, oldest_number, next_number)),
            addressed.valid.eq(self._walk_runs & (row.step != Step.ISSUE)),
            addressed.starts.eq(row_starts),
            addressed.there.eq(entry_valid),
            addressed.ends.eq(row_ends),
            addressed.number.eq(
                Cat(
                    Mux(is_keep, youngest_place, entry_number[:RING_BITS]), entry_number[RING_BITS:]
                )
            ),
            addressed.row.eq(row),
            row_ends.eq(
                addressed.valid
                & (~is_compare | ~entry_valid | (entry_number[:RING_BITS] == youngest_place))
            ),
        ]
        with m.If(self._stages_move):
            m.d.sync += [
                row_starts.eq(row_ends | ~self._walk_runs),
                next_number.eq(entry_number + 1),
            ]

    def _compare(
        self, m: Module, addressed: data.View, read: data.View, compared: data.View
    ) -> None:
        """Read a region of a list, and compare it with a region of the scanned instruction.

        Also write the regions of decoded instructions, and the regions that lists keep.
        """
        low = data.StructLayout({"base": HOST_OFFSET_BITS, "filled": 1, "rises": 1})
        high = data.StructLayout({"end": HOST_OFFSET_BITS, "space": 2})
        places = 1 << (REGION_BITS + RING_BITS)
        own_region = Signal(Region(HOST_OFFSET_BITS), reset_less=True)
        own_filled = Signal(reset_less=True)
        its_low = Signal(low, reset_less=True)
        its_high = Signal(high, reset_less=True)
        row = compared.row
        base_below, regions_overlap, same_space, entry_follows, entry_rises = (
            Signal(name=name)
            for name in (
                "base_below",
                "regions_overlap",
                "same_space",
                "entry_follows",
                "entry_rises",
            )
        )
        region_kept = Signal()
        region_decoded = Signal()
        risen = self.rises.bit_select(row.list, 1)
        # Lower bits of the number of a cell that holds half of a region. Bit 0 selects base or end,
        # and the bits above bit 0 are the index of the region in SCANNED.
        own_cell = self.cell[: 1 + OWN_BITS]
        # half of the memory that takes the regions of the decoded instruction
        decoding_half = Signal()
        m.d.sync += decoding_half.eq(decoding_half ^ self.judged)
        m.d.comb += [
            # The sign of a difference comes directly out of a carry chain. A comparison does not.
            base_below.eq((own_region.base - its_high.end)[-1]),
            regions_overlap.eq(base_below & (its_low.base - own_region.end)[-1] & same_space),
            # Units report addresses of all spaces as one range, in which the spaces follow one
            # another.
            entry_follows.eq((same_space & ~base_below) | (its_high.space < row.space)),
            entry_rises.eq(Mux(row.walked, entry_follows & its_low.filled, risen)),
            same_space.eq(its_high.space == row.space),
            region_kept.eq(compared.valid & (row.step == Step.KEEP)),
            region_decoded.eq(
                self.keeps & (self.cell[1 + OWN_BITS :] == REGION_CELLS >> 1 + OWN_BITS)
            ),
            self._stages_move.eq(~(region_kept & region_decoded)),
        ]
        read_address = Signal(RING_BITS + REGION_BITS)
        m.d.comb += read_address.eq(
            Mux(
                addressed.row.step == Step.OWN,
                Cat(addressed.row.own, self._scanned_half, Const(_OWN_KIND, REGION_BITS)),
                Cat(addressed.number[:RING_BITS], addressed.row.region),
            )
        )
        write_address = Signal.like(read_address)
        m.d.comb += write_address.eq(
            Mux(
                region_decoded,
                Cat(own_cell[1:], decoding_half, Const(_OWN_KIND, REGION_BITS)),
                Cat((compared.number[:RING_BITS] + 1)[:RING_BITS], row.region),
            )
        )
        kept_word = self.kept[:HOST_OFFSET_BITS]
        written_low = Signal(low)
        written_high = Signal(high)
        m.d.comb += [
            written_low.base.eq(Mux(region_decoded, kept_word, own_region.base)),
            written_low.filled.eq(own_filled),
            written_low.rises.eq(entry_rises),
            written_high.end.eq(Mux(region_decoded, kept_word, own_region.end)),
            written_high.space.eq(row.space),
        ]
        for name, written, register, half in (
            ("bases", written_low, its_low, 0),
            ("ends", written_high, its_high, 1),
        ):
            m.submodules[name] = memory = Memory(
                shape=written.shape(), depth=places, init=[], attrs=_BLOCK
            )
            write = memory.write_port()
            port = memory.read_port()
            m.d.comb += [
                write.en.eq(Mux(region_decoded, own_cell[0] == half, region_kept)),
                write.addr.eq(write_address),
                write.data.eq(written),
                port.addr.eq(read_address),
                port.en.eq(self._stages_move),
            ]
            with m.If(self._stages_move):
                m.d.sync += register.eq(port.data)
                with m.If(read.valid & (read.row.step == Step.OWN)):
                    name_of = "end" if half else "base"
                    m.d.sync += own_region[name_of].eq(port.data[name_of])
        # In step OWN a region is compared with itself. It is not empty if its base is below its
        # end.
        with m.If(compared.row.step == Step.OWN):
            m.d.sync += own_filled.eq(base_below)
        with m.If(region_kept & row.walked & self._stages_move):
            m.d.sync += risen.eq(entry_rises)
        self._find(m, compared, regions_overlap, its_low.rises)

    def _find(
        self, m: Module, compared: data.View, regions_overlap: Value, entry_rises: Value
    ) -> None:
        """Find the number for a mask: the youngest conflicting entry, and the length of its run.

        An entry conflicts if any row of the mask finds an overlap with the entry.
        """
        row, number = compared.row, compared.number
        # A bit for each place: some row of this mask has found a conflict with the entry there.
        place_hits = Signal(1 << PLACE_BITS, reset_less=True)
        # the entry before belongs to the run of conflicting entries
        run_continues = Signal(reset_less=True)
        mask_last = Signal(NUMBER_BITS, reset_less=True)
        run_first = Signal(PLACE_BITS, reset_less=True)
        place = number[:PLACE_BITS]
        entry_conflicts = Signal()
        goes_on = Signal()
        entry_taken = compared.valid & (row.step == Step.COMPARE) & self._stages_move
        m.d.comb += [
            entry_conflicts.eq(
                compared.there & (regions_overlap | (place_hits.bit_select(place, 1) & ~row.first))
            ),
            goes_on.eq(run_continues & ~compared.starts & entry_rises),
            self.found.numbers.last.eq(mask_last),
            self.found.numbers.run.eq(mask_last[:PLACE_BITS] - run_first),
        ]
        m.d.sync += self.finds.eq(entry_taken & compared.ends & row.last)
        with m.If(entry_taken):
            m.d.sync += [
                place_hits.bit_select(place, 1).eq(entry_conflicts),
                run_continues.eq(entry_conflicts | goes_on),
                self.found.mask.eq(row.mask),
            ]
            with m.If(entry_conflicts):
                m.d.sync += mask_last.eq(number)
                with m.If(~goes_on):
                    m.d.sync += run_first.eq(place)
            with m.Elif(row.first & compared.starts):
                # Without a conflict the mask gets the number of an entry that has left the list
                # long ago.
                m.d.sync += mask_last.eq(
                    Cat(place, (number[PLACE_BITS:] - 1)[: NUMBER_BITS - PLACE_BITS])
                )
