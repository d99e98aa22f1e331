# SPDX-License-Identifier: Apache-2.0
"""Proofs of the units for training: transposer, reader of tiles, exponent registers."""

from amaranth.hdl import Array, Assert, Assume, Cat, Module, Mux, Signal, Value, signed

from systola.arch.config import preset
from systola.arch.isa import EXPONENT_REGISTERS
from systola.hdl.activation.exponent_registers import MEASURED, ExponentRegisters
from systola.hdl.activation.transposer import Transposer
from systola.hdl.ports import BUFFER_LATENCY
from systola.hdl.transfers.tile_reader import TileReader
from systola.verif.formal.harness import Harness, Unit, anything, before, constant, implies
from systola.verif.formal.proof import Fault, Proof

COLUMNS = 3
"""The number of columns: no power of two, so that counters wrap around before all bits are 1."""


class TransposerHarness(Harness):
    """A proof harness for the transposer, which follows any byte of a tile.

    The lines of the tile are loaded and taken in any cycles.
    """

    def claims(self, m: Module) -> None:
        dut = Transposer(cols=COLUMNS)
        unit = Unit(m, dut)
        for port, name in ((dut.load, "load"), (dut.take, "take"), (dut.line, "line")):
            m.d.comb += port.eq(anything(m, port.shape(), name))
        row, column = (constant(m, range(COLUMNS), name) for name in ("row", "column"))
        number, takes = Signal(range(COLUMNS)), Signal()
        byte = Signal(8)
        moves = dut.load | dut.take
        with m.If(moves):
            m.d.sync += number.eq(number + 1)
            with m.If(number == COLUMNS - 1):
                m.d.sync += [number.eq(0), takes.eq(~takes)]
        with m.If(dut.load & (number == row)):
            m.d.sync += byte.eq(dut.line.word_select(column, 8))
        taken = before(m, dut.take & (number == column), "taken")
        m.d.comb += [
            Assume((row < COLUMNS) & (column < COLUMNS)),
            Assume(~(dut.load & takes) & ~(dut.take & ~takes)),
            Assert(implies(taken, dut.result.word_select(row, 8) == byte)),
            Assert(before(m, dut.take, "took") | (dut.result == 0)),
        ]
        places = 1 << len(number)
        memories = [Array(unit.rows(f"memory_{i}", places)) for i in range(places)]
        loaded = takes | (number > row)
        m.d.comb += self.lemmas(
            unit.inside("line_number") == number,
            number < COLUMNS,
            implies(loaded, Array(memory[row] for memory in memories)[row ^ column] == byte),
        )


class TileReaderHarness(Harness):
    """A proof harness for the reader of tiles from the buffer, which checks every requested line.

    The buffer is ready in any cycles; room and the number of tiles are free.
    """

    def claims(self, m: Module) -> None:
        config = preset("2x2-training")
        rows, dut = config.rows, TileReader(config=config)
        unit = Unit(m, dut)
        inputs = (dut.start, dut.line, dut.tiles, dut.wide, dut.room, dut.buffer.ready)
        for number, port in enumerate(inputs):
            m.d.comb += port.eq(anything(m, port.shape(), f"any_{number}"))
        first, tiles, wide = Signal.like(dut.line), Signal.like(dut.tiles), Signal()
        tile, row = Signal.like(dut.tiles), Signal(range(rows))
        left = Signal(len(tiles) + 1)
        line = Signal(len(first) + 1)
        # Of two tiles of wide weights, the first tile has the lines of even numbers, the second the
        # odd.
        pair = Cat(0, tile[1:])
        m.d.comb += line.eq(
            first + Mux(wide, pair * rows + tile[0] + (row << 1), tile * rows + row)
        )
        with m.If(dut.start):
            m.d.sync += [
                first.eq(dut.line),
                tiles.eq(dut.tiles),
                wide.eq(dut.wide),
                tile.eq(0),
                row.eq(0),
                left.eq(dut.tiles * rows),
            ]
        with m.Elif(dut.asks):
            m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
            with m.If(row == rows - 1):
                m.d.sync += [row.eq(0), tile.eq(tile + 1)]
        comes = dut.asks
        under_way = Signal(BUFFER_LATENCY)
        for cycle in range(BUFFER_LATENCY):
            comes = before(m, comes, f"comes_{cycle}")
            m.d.comb += under_way[cycle].eq(comes)
        m.d.comb += [
            Assume(~dut.start | (dut.idle & (dut.tiles != 0))),
            Assume(~(dut.start & dut.wide & dut.tiles[0])),
            Assume(dut.line + dut.tiles * rows <= config.buffer_lines),
            Assert(dut.asks == (dut.buffer.enable & dut.buffer.ready)),
            # A row is requested in each cycle with room, and no more.
            Assert(dut.buffer.enable == (dut.room & (left != 0))),
            Assert(implies(dut.buffer.enable, dut.buffer.address == line)),
            Assert(dut.pushes == comes),
            Assert(dut.idle == ((left == 0) & ~under_way.any())),
        ]
        inside = {
            name: unit.inside(name)
            for name in ("busy", "row_number", "tiles_remaining", "is_between", "rows_coming")
        }
        busy = inside["busy"]
        m.d.comb += self.lemmas(
            busy == (left != 0),
            inside["rows_coming"] == under_way,
            unit.inside("wide") == wide,
            implies(busy, inside["row_number"] == row),
            implies(busy, inside["is_between"] == tile[0]),
            implies(busy, inside["tiles_remaining"] + tile == tiles),
            implies(busy, left + row == inside["tiles_remaining"] * rows),
            implies(busy, unit.inside("line") == line),
            implies(busy, first + tiles * rows <= config.buffer_lines),
            implies(busy, ~(wide & tiles[0])),
            row < rows,
        )


class ExponentHarness(Harness):
    """A proof harness for the exponent registers, which execute one Measure after the other.

    The measured magnitudes are free, and so is the register that is read after each Measure.
    """

    def claims(self, m: Module) -> None:
        dut = ExponentRegisters()
        unit = Unit(m, dut)
        for name in dut.signature.members:
            if name != "shifts":
                port = Value.cast(getattr(dut, name))
                m.d.comb += port.eq(anything(m, len(port), f"any_{name}"))
        registers = Array(
            Signal(signed(8), name=f"register_{number}") for number in range(EXPONENT_REGISTERS)
        )
        about = Signal(dut.about.shape())
        measures = Signal()
        seen = Signal.like(dut.magnitude)
        largest = Signal.like(dut.magnitude)
        bits = Signal(range(len(seen) + 1))
        total, excess, result = (Signal(signed(8), name=n) for n in ("total", "excess", "result"))
        for bit in range(len(seen)):
            with m.If(largest[bit]):
                m.d.comb += bits.eq(bit + 1)
        m.d.comb += [
            largest.eq(seen | Mux(dut.counts, dut.magnitude, 0)),
            total.eq(
                registers[about.first]
                + registers[about.second]
                - registers[about.third]
                + about.value
            ),
            excess.eq(bits - about.bits),
            result.eq(Mux(dut.magnitudes & (excess > total), excess, total)),
        ]
        with m.If(dut.take):
            m.d.sync += [about.eq(dut.about), measures.eq(1), seen.eq(0)]
        with m.If(dut.counts):
            m.d.sync += seen.eq(largest)
        with m.If(dut.last):
            m.d.sync += [measures.eq(0), registers[about.exponent].eq(result)]
        # the register's value before the last Measure, and the sum that the unit has not yet
        # written
        old, old_sum, by_magnitude = Signal(signed(8)), Signal(signed(8)), Signal()
        partial = [Signal(signed(8), name=f"partial_{number}") for number in range(2)]
        with m.If(dut.last):
            m.d.sync += [
                old.eq(registers[about.exponent]),
                old_sum.eq(total),
                by_magnitude.eq(dut.magnitudes),
                partial[0].eq(about.value + registers[about.first]),
                partial[1].eq(about.value + registers[about.first] + registers[about.second]),
            ]
        # The unit's docstring requires that a Measure waits for the end of the Measure before.
        busy = dut.last
        later = Signal(MEASURED - 1)
        for cycle in range(MEASURED - 1):
            busy = before(m, busy, f"busy_{cycle}")
            m.d.comb += later[cycle].eq(busy)
        settled = ~dut.last & ~later.any()
        value = registers[dut.select]
        right, left = Signal(8), Signal(8)
        m.d.comb += [
            Assume(dut.about.exponent != 0),
            Assume(~dut.take | (~measures & settled)),
            Assume(measures | ~(dut.counts | dut.last)),
            right.eq(Mux(value < 0, 0, Mux(value > 31, 31, value))),
            left.eq(Mux(value < 0, Mux(value < -7, 7, -value), 0)),
            Assert(dut.shifts.replaces == (dut.select != 0)),
            Assert(implies(settled, (dut.shifts.right == right) & (dut.shifts.left == left))),
        ]
        # The unit's registers follow from the magnitudes and sums of the Measure up to now.
        row_or, held, sum_so_far = (
            unit.inside(name) for name in ("row_magnitude", "held_magnitude", "exponent_total")
        )
        is_set = unit.inside("registers_set")
        rows = unit.rows("memory", EXPONENT_REGISTERS)
        stored = [Mux(is_set[n], row.as_signed(), 0) for n, row in enumerate(rows)]
        writing = later.any()
        seen_bits = Signal(range(len(seen) + 1))
        for bit in range(len(seen)):
            with m.If(seen[bit]):
                m.d.comb += seen_bits.eq(bit + 1)
        late_excess = Signal(signed(8))
        result_written = Signal(signed(8))
        m.d.comb += [
            late_excess.eq(seen_bits - about.bits),
            result_written.eq(Mux(by_magnitude & (late_excess > old_sum), late_excess, old_sum)),
        ]
        m.d.comb += self.lemmas(
            unit.inside("measure_fields") == about.as_value(),
            unit.inside("sum_stage") == later,
            (later & (later - 1))[: len(later)] == 0,
            ~(measures & writing),
            implies(measures | writing, (held | row_or) == seen),
            implies(~measures & ~writing, (held | row_or) == 0),
            implies(later[1:].any(), row_or == 0),
            implies(later[-1], unit.inside("bits_excess") == seen_bits - about.bits),
            implies(writing, unit.inside("by_magnitude") == by_magnitude),
            implies(writing, registers[about.exponent] == result_written),
            implies(later[0], sum_so_far == partial[0]),
            implies(later[1], sum_so_far == partial[1]),
            implies(later[2], sum_so_far == old_sum),
            *(
                value == Mux(writing & (about.exponent == n), old, registers[n])
                for n, value in enumerate(stored)
            ),
        )


PROOFS = (
    Proof(
        unit="transposer",
        claim="byte i of line j becomes byte j of line i, however slowly they come",
        harness=TransposerHarness,
        depth=2,
        faults=(
            Fault(unit="transposer", old="line_number ^ column", new="line_number"),
            Fault(unit="transposer", old="Mux(ends, 0, line_number + 1)", new="line_number + 1"),
        ),
        fault_depth=16,
    ),
    Proof(
        unit="tile_reader",
        claim="each line of each tile once, in order, as soon as there is room; idle when all came",
        harness=TileReaderHarness,
        depth=2,
        faults=(
            Fault(unit="tile_reader", old="3 - 2 * rows", new="1 - 2 * rows"),
            Fault(unit="tile_reader", old="| rows_coming[:-1].any()", new=""),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="exponent_registers",
        claim="a register is what its Measure says, and shifts are its number's; others stay",
        harness=ExponentHarness,
        depth=4,
        faults=(
            Fault(
                unit="exponent_registers",
                old="Mux(writes, 0, held_magnitude | row_magnitude)",
                new="held_magnitude | row_magnitude",
            ),
            Fault(
                unit="exponent_registers",
                old="sum_term.eq(~register_value)",
                new="sum_term.eq(register_value)",
            ),
            Fault(
                unit="exponent_registers",
                old="(bits_excess > exponent_total)",
                new="(bits_excess < exponent_total)",
            ),
        ),
        fault_depth=11,
    ),
)
