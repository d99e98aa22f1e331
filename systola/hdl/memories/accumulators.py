# SPDX-License-Identifier: Apache-2.0
"""The accumulators, which hold the 32-bit sums that the array makes."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.memories.parity_sram import ParitySram
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.promise import promised
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.ports import AccumulatorReadSignature

BANKS = 2
COLUMNS_PER_SHIFT = 2
"""Number of columns that share one register for the distance by which sums are shifted."""
READ_LATENCY = 3
"""Cycles from `enable` & `ready` of a read to its row: memory, output register, choice of bank."""
SUMS_LATENCY = 1
"""Cycles from `update.enable` to the sums of the update."""
UPDATE_LATENCY = SUMS_LATENCY + 1
"""Cycles from `update.enable` to the write of the row: memory, output register of the memory.

The sums come, and are shifted, while the memory reads. They are added in the cycle of the write.
"""


class RowUpdateSignature(wiring.Signature):
    """A signature that updates rows of the accumulators, one a cycle, seen from its user.

    | member    | meaning |
    |---|---|
    | `enable`  | updates a row |
    | `address` | the row |
    | `adds`    | adds to the old row; else the sums replace it |
    | `reads`   | the bank that is read, a bit for each bank; 0 without `adds` |
    | `shift`   | shifts the sums left by 8 * `shift` bits; 0 without 16-bit modes |
    | `sums`    | the sums of the columns, SUMS_LATENCY cycles after `enable` |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(ceil_log2(config.accumulator_rows)),
                "adds": Out(1),
                "reads": Out(BANKS),
                "shift": Out(2),
                "sums": Out(32 * config.cols),
            }
        )


def accumulator_ports(config: Config) -> dict[str, wiring.Member]:
    """Return the ports of Accumulators."""
    return {
        "update": In(RowUpdateSignature(config=config)),
        "read": In(AccumulatorReadSignature(config=config)),
        "flawed": Out(1),
    }


class Accumulators(wiring.Component):
    """A memory of `accumulator_rows` rows of `cols` x 32 bits, which adds sums to its rows.

    It has two banks, one for even and one for odd rows.

    | port     | meaning |
    |---|---|
    | `update` | updates of rows, one a cycle; never refused |
    | `read`   | reads of rows; `ready` is low while an update reads the bank; `data` is a
                 register |
    | `flawed` | a row that was read or added to has changed since it was written; only with
                 parity |

    Update (from the array): in each column the row becomes old + sums * 2^(8 * shift) modulo 2^32.
    Without `adds` it becomes sums * 2^(8 * shift). The row is written UPDATE_LATENCY cycles after
    `update.enable`, and may be read from the next cycle on. Updates of one row may follow one
    another at any distance: the next instruction may begin at the row at which this instruction
    ends.

    Read (to the activation unit): `data` comes READ_LATENCY cycles after `enable` & `ready`. An
    update that reads a bank wins over a read of this bank. Two sequential streams of rows collide
    once, and then alternate between the banks.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(accumulator_ports(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, cols, update = self._config, self._config.cols, self.update
        m.d.comb += self.read.ready.eq(~update.reads.bit_select(self.read.address[0], 1))

        # Updates on their way, the youngest first: read of the memory, its output register,
        # addition and write. `found` has two bits for each stage. They compare the row's address in
        # the stage with `update.address`: the even address bits, and the odd address bits.
        row = [update.address]
        valid = [update.enable]
        halves = range(min(2, len(update.address)))
        found: list[Value] = []
        for stage in range(UPDATE_LATENCY):
            row.append(Signal.like(update.address, name=f"row_{stage}", reset_less=True))
            valid.append(Signal(name=f"valid_{stage}"))
            m.d.sync += [row[-1].eq(row[-2]), valid[-1].eq(valid[-2])]
            found.append(Cat(valid[-1] & (row[-1][n::2] == update.address[n::2]) for n in halves))

        totals = [SelectingAdder(width=32) for _ in range(cols)]
        for c, total in enumerate(totals):
            m.submodules[f"total_{c}"] = total
        written = Cat(total.total for total in totals)
        outputs: list[list[Value]] = []
        flaws: list[Value] = []
        word_used = Signal(BANKS)  # for each bank: the word at its output is used
        width, depth = 32 * cols, config.accumulator_rows // BANKS
        for index in range(BANKS):
            if config.parity:
                bank = ParitySram(width=width, depth=depth)
                m.d.comb += bank.counts.eq(word_used[index])
                flaws.append(bank.flawed)
            else:
                bank = Sram(width=width, depth=depth, output_register=True)
            m.submodules[f"bank_{index}"] = bank
            by_update = update.reads[index]
            address = Mux(by_update, update.address, self.read.address)
            m.d.comb += [
                bank.read_enable.eq(
                    by_update | (self.read.enable & (self.read.address[0] == index))
                ),
                bank.read_address.eq(address[1:]),
                bank.write_enable.eq(valid[-1] & (row[-1][0] == index)),
                bank.write_address.eq(row[-1][1:]),
                bank.write_data.eq(written),
            ]
            outputs.append([bank.read_data.word_select(c, 32) for c in range(cols)])
        even, odd = outputs

        shifted_sums = Signal(32 * cols, reset_less=True)
        m.d.sync += shifted_sums.eq(update.sums)
        if config.wide:
            for first in range(0, cols, COLUMNS_PER_SHIFT):
                shift = m.submodules[f"shift_{first}"] = Replica(width=len(update.shift))
                m.d.comb += shift.input.eq(update.shift)
                for amount in (1, 2):
                    with m.If(shift.output == amount):
                        for c in range(first, min(first + COLUMNS_PER_SHIFT, cols)):
                            unshifted = update.sums.word_select(c, 32)
                            m.d.sync += shifted_sums.word_select(c, 32).eq(unshifted << 8 * amount)

        # The old row comes from its bank. If an update of the same row came one or two cycles
        # before, the word of the bank is too old. Then the new row is forwarded. Without `adds_old`
        # the old row counts as 0.
        adds_old = Signal()
        forward_missing = Signal()
        same = [Signal(len(halves), name=f"same_{distance}") for distance in (1, 2)]
        m.d.sync += [adds_old.eq(update.adds), *map(Signal.eq, same, found)]
        m.d.comb += forward_missing.eq(~adds_old | same[0].all() | same[1].all())
        # a copy of `same[0]` for each column
        youngest = m.submodules.youngest = Replica(width=len(halves) * cols)
        none = m.submodules.none = Replica(width=cols)  # a copy of ~`update.adds` for each column
        aside = m.submodules.aside = Replica(width=cols)
        from_odd = m.submodules.from_odd = Replica(width=cols)
        m.d.comb += [
            youngest.input.eq(found[0].replicate(cols)),
            none.input.eq((~update.adds).replicate(cols)),
            aside.input.eq(forward_missing.replicate(cols)),
            from_odd.input.eq(row[1][0].replicate(cols)),
        ]
        for c, total in enumerate(totals):
            written_before = Signal(32, name=f"written_before_{c}", reset_less=True)
            forwarded = Signal(32, name=f"forwarded_{c}", reset_less=True)
            takes_youngest = youngest.output.word_select(c, len(halves)).all()
            m.d.sync += [
                written_before.eq(total.total),
                forwarded.eq(Mux(takes_youngest, total.total, written_before)),
            ]
            with m.If(none.output[c]):
                m.d.sync += forwarded.eq(0)
            m.d.comb += [
                total.a.eq(shifted_sums.word_select(c, 32)),
                total.b.eq(forwarded),
                total.c.eq(Mux(from_odd.output[c], odd[c], even[c])),
                total.choose_b.eq(aside.output[c].replicate(32)),
            ]

        if config.parity:
            read_taken = Signal(BANKS)
            for index in range(BANKS):
                m.d.sync += [
                    read_taken[index].eq(
                        self.read.enable & self.read.ready & (self.read.address[0] == index)
                    ),
                    word_used[index].eq(
                        read_taken[index] | (valid[1] & ~forward_missing & (row[1][0] == index))
                    ),
                ]
        m.d.comb += self.flawed.eq(Cat(flaws).any())

        read_bank = Signal()
        m.d.sync += read_bank.eq(self.read.address[0])
        sources = m.submodules.sources = Replica(width=cols)
        read_row = Signal.like(self.read.data, reset_less=True)
        m.d.comb += [sources.input.eq(read_bank.replicate(cols)), self.read.data.eq(read_row)]
        for c in range(cols):
            m.d.sync += read_row.word_select(c, 32).eq(Mux(sources.output[c], odd[c], even[c]))
        its_bank = Mux(update.enable & update.adds, 1 << update.address[0], 0)
        promised(m, platform, update.reads == its_bank, "another bank is read than the row's")
        most = 2 if config.wide else 0
        promised(m, platform, ~update.enable | (update.shift <= most), "sums are shifted too far")
        return m
