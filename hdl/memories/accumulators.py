# SPDX-License-Identifier: Apache-2.0
"""The accumulators: 32-bit sums below the array."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.memories.parity_sram import ParitySram
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.replica import Replica

BANKS = 2
CHOICES_PER_COLUMN = 4
"""Registers that say where a column's old sum is: each one for its share of the bits."""
COLUMNS_PER_SHIFT = 2
"""Columns that share the register that says how far they are shifted."""
READ_LATENCY = 3
"""Cycles from `enable` & `ready` to the row: memory, its output register, choice of the bank."""
SUMS_LATENCY = 2
"""Cycles from `update` to its sums."""
UPDATE_LATENCY = SUMS_LATENCY + 2
"""Cycles from `update` to the write of the row: memory, its register, choice of the old sums, new
ones; the sums come and are shifted beside."""


class Old(enum.IntEnum):
    """Where the old sums are, a cycle before they are added to: one of the banks, or a register."""

    EVEN = 0
    ODD = 1
    NEW = 2
    YOUNGER = 3


class Accumulators(wiring.Component):
    """`accumulator_rows` rows of `cols` x 32 bits, in two banks by the parity of the row.

    Update (from the MXU), one a cycle: `update` with `row`, `accumulate` and `shift`, and `sums`
    SUMS_LATENCY cycles later. With `accumulate` the row becomes old + sums * 2^(8 * shift) modulo
    2^32 per column, else without old, and `reads` has a bit for the bank that is read; `shift` is 0
    where there are no 16-bit modes. Updates of a row may follow one another at any distance: the
    next instruction may begin at the row at which this one ends. The row is written UPDATE_LATENCY
    cycles after `update`, and may be read from the next cycle on.

    Read (to Activate): `data` is there for one cycle, READ_LATENCY cycles after `enable` & `ready`,
    from a register. The reads for updates win; two sequential streams collide once and then
    alternate between the banks.

    `flawed`, where there is parity: a row that was read or added to was not what had been written.
    """

    def __init__(self, *, config: Config):
        self._config = config
        address = ceil_log2(config.accumulator_rows)
        super().__init__(
            {
                "update": In(1),
                "reads": In(BANKS),
                "row": In(address),
                "accumulate": In(1),
                "shift": In(2),
                "sums": In(32 * config.cols),
                "enable": In(1),
                "ready": Out(1),
                "address": In(address),
                "data": Out(32 * config.cols),
                "flawed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, cols = self._config, self._config.cols
        m.d.comb += self.ready.eq(~self.reads.bit_select(self.address[0], 1))

        # Updates on their way, the youngest first: read, memory's register, choice, addition,
        # write; and which of them have the row of the one behind its read, in every other bit each.
        distances = range(1, UPDATE_LATENCY + 1)
        row = [self.row]
        valid = [self.update]
        halves = range(min(2, len(self.row)))
        same = {distance: Signal(len(halves), name=f"same_{distance}") for distance in distances}
        meets = {distance: Signal(name=f"meets_{distance}") for distance in distances}
        same_again = m.submodules.same_again = Replica(width=len(halves))  # as `same[3]`, for rows
        for stage in range(1 + UPDATE_LATENCY):
            row.append(Signal.like(self.row, name=f"row_{stage}", reset_less=True))
            valid.append(Signal(name=f"valid_{stage}"))
            m.d.sync += [row[-1].eq(row[-2]), valid[-1].eq(valid[-2])]
        for distance in distances:
            now, before = row[0], row[distance]
            found = Cat(valid[distance] & (before[n::2] == now[n::2]) for n in halves)
            m.d.sync += same[distance].eq(found)
            m.d.comb += meets[distance].eq(same[distance].all())
            if distance == 3:
                m.d.comb += same_again.input.eq(found)
        accumulate = Signal()
        m.d.sync += accumulate.eq(self.accumulate)

        new = Signal(32 * cols, reset_less=True)
        outputs = []
        flaws = []
        counts = Signal(BANKS)  # of what is shown, somebody takes this
        size = {"width": 32 * cols, "depth": config.accumulator_rows // BANKS}
        for index in range(BANKS):
            if config.parity:
                bank = ParitySram(**size)
                m.d.comb += bank.counts.eq(counts[index])
                flaws.append(bank.flawed)
            else:
                bank = Sram(**size, output_register=True)
            m.submodules[f"bank_{index}"] = bank
            by_update = self.reads[index]
            address = Mux(by_update, self.row, self.address)
            m.d.comb += [
                bank.read_enable.eq(by_update | (self.enable & (self.address[0] == index))),
                bank.read_address.eq(address[1:]),
                bank.write_enable.eq(valid[UPDATE_LATENCY] & (row[UPDATE_LATENCY][0] == index)),
                bank.write_address.eq(row[UPDATE_LATENCY][1:]),
                bank.write_data.eq(new),
            ]
            outputs.append(bank.read_data)

        sums = Signal(32 * cols, reset_less=True)
        m.d.sync += sums.eq(self.sums)
        if config.wide:
            coming = Signal.like(self.shift, reset_less=True)
            m.d.sync += coming.eq(self.shift)
            for first in range(0, cols, COLUMNS_PER_SHIFT):
                shift = m.submodules[f"shift_{first}"] = Replica(width=len(self.shift))
                m.d.comb += shift.input.eq(coming)
                for amount in (1, 2):
                    with m.If(shift.output == amount):
                        for c in range(first, min(first + COLUMNS_PER_SHIFT, cols)):
                            unshifted = self.sums.word_select(c, 32)
                            m.d.sync += sums.word_select(c, 32).eq(unshifted << 8 * amount)

        # The old row is the one made in the cycle before; else it was chosen in that cycle: the one
        # made just then, a younger one than the banks have, or none, or the one of a bank.
        behind = Signal.like(new, reset_less=True)
        younger = Signal.like(new, reset_less=True)
        elsewhere = Signal()
        m.d.comb += elsewhere.eq(~accumulate | meets[1] | meets[3] | meets[4])
        m.d.sync += [behind.eq(new), younger.eq(Mux(same_again.output.all(), new, behind))]
        with m.If(~accumulate):
            m.d.sync += younger.eq(0)
        chosen = Signal(2)
        m.d.comb += chosen.eq(Mux(elsewhere, Old.YOUNGER, row[1][0]))
        with m.If(accumulate & meets[2]):
            m.d.comb += chosen.eq(Old.NEW)
        follows = Signal(reset_less=True)  # the update a cycle before has the same row
        m.d.sync += follows.eq(accumulate & meets[1])

        old = Signal.like(new, reset_less=True)
        shares = CHOICES_PER_COLUMN * cols
        choices = m.submodules.choices = Replica(width=2 * shares)
        again = m.submodules.again = Replica(width=shares)
        m.d.comb += [
            choices.input.eq(chosen.replicate(shares)),
            again.input.eq(follows.replicate(shares)),
        ]
        share = 32 // CHOICES_PER_COLUMN
        present = Signal.like(new)
        for place in range(shares):
            with m.Switch(choices.output.word_select(place, 2)):
                for number, origin in enumerate((*outputs, new, younger)):
                    with m.Case(number):
                        part = origin.word_select(place, share)
                        m.d.sync += old.word_select(place, share).eq(part)
            m.d.comb += present.word_select(place, share).eq(
                Mux(
                    again.output[place],
                    new.word_select(place, share),
                    old.word_select(place, share),
                )
            )
        for c in range(cols):
            total = sums.word_select(c, 32) + present.word_select(c, 32)
            m.d.sync += new.word_select(c, 32).eq(total)

        if config.parity:
            taken = Signal(BANKS)
            for index, place in enumerate((Old.EVEN, Old.ODD)):
                m.d.sync += [
                    taken[index].eq(self.enable & self.ready & (self.address[0] == index)),
                    counts[index].eq(taken[index] | (valid[1] & (chosen == place))),
                ]
        m.d.comb += self.flawed.eq(Cat(flaws).any())

        source = Signal()
        m.d.sync += source.eq(self.address[0])
        sources = m.submodules.sources = Replica(width=cols)
        read = Signal.like(self.data, reset_less=True)
        m.d.comb += [sources.input.eq(source.replicate(cols)), self.data.eq(read)]
        for c in range(cols):
            odd, even = (outputs[bank].word_select(c, 32) for bank in (1, 0))
            m.d.sync += read.word_select(c, 32).eq(Mux(sources.output[c], odd, even))
        return m
