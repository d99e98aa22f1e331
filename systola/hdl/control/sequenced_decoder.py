# SPDX-License-Identifier: Apache-2.0
"""The decoder that turns an instruction into regions, command words and faults, a step a cycle."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.arch.isa import OPCODE_BITS, PLACE_BITS, REGISTERS, Fault
from systola.hdl.commands import HOST_OFFSET_BITS, TILE_BITS
from systola.hdl.control.field_port import PART_BITS, FieldPort
from systola.hdl.control.step_conditions import Conditions, conditions, loaded
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import (
    CELL_BITS,
    CELLS,
    HOST_LIMIT,
    INDEXED,
    KEPT_BITS,
    RESULT_BITS,
    ROWS,
    WEIGHT_TILES,
    WORDS,
    ZERO,
    Bases,
    Loads,
    Note,
    RowLayout,
    Times,
)
from systola.hdl.parts.multiplier import LATENCY as MULTIPLIED
from systola.hdl.parts.multiplier import WIDTH_LIMIT, Multiplier

LATENCY = 9
"""Cycles from the cycle that addresses the last row of an instruction in the ROM to the verdict."""
_FACTOR_STAGE = 3
"""Pipeline stage in which a row takes x, the operand that it multiplies.

The ROM shows a row in stage 1.
"""
_SELECT_STAGE = 5
_BASE_STAGE = _FACTOR_STAGE + MULTIPLIED
_SUM_STAGE = _BASE_STAGE + 1
_LAST_STAGE = _SUM_STAGE + 1
_SELECTED = 3
_SELECTOR_BITS = ceil_log2(REGISTERS)
_BLOCK = {"ram_style": "block", "no_rw_check": 1}
"""Attributes of a block RAM. Without `no_rw_check` Yosys adds logic for read-write collisions."""
_NO_ADDRESS = (Fault.ILLEGAL_FIELD, Fault.WINDOW, Fault.OTHER_MACHINE, Fault.FETCH_ERROR)
"""Faults with a FAULT_ADDRESS of 0."""


class Given(data.StructLayout):
    """An instruction that is given to the decoder: its opcode, and `error` if its fetch failed."""

    def __init__(self) -> None:
        super().__init__({"opcode": OPCODE_BITS, "error": 1})


class Written(data.StructLayout):
    """A layout for one word of a command.

    | field    | meaning |
    |---|---|
    | `word`   | number of the word |
    | `data`   | its value |
    | `single` | the value is 1 |
    | `double` | the value is 2 |
    """

    def __init__(self) -> None:
        super().__init__(
            {"word": ceil_log2(WORDS), "data": signed(RESULT_BITS), "single": 1, "double": 1}
        )


class Verdict(data.StructLayout):
    """A layout for the result of an instruction's checks.

    `cause` and `address` are valid only if `failed`. They are the cause and the FAULT_ADDRESS of
    the first check that counts.
    """

    def __init__(self) -> None:
        super().__init__({"failed": 1, "cause": ceil_log2(len(Fault)), "address": 32})


class SequencedDecoder(wiring.Component):
    """A decoder that takes each instruction through its rows of the step ROM (`StepRom`).

    It takes one row a cycle.

    | port           | meaning |
    |---|---|
    | `instruction`  | stream of instructions; each is taken with its last row |
    | `place`        | number of a part of the instruction word |
    | `pair`         | parts `place` and `place` + 1 of the word, one cycle later; zeros above the
                       word |
    | `host_limit`   | bytes of the host window |
    | `weight_tiles` | tiles of the weight window |
    | `writes`       | a word of a command is written |
    | `written`      | the word |
    | `keeps`        | a number is written to a cell of the scratch memory; some cells are regions |
    | `cell`         | number of this cell, from `StepRom` |
    | `kept`         | the number |
    | `judges`       | there is a verdict, LATENCY - 1 cycles after the last row |
    | `verdict`      | the verdict |

    An instruction of n rows takes n + 1 cycles, as the next one begins a cycle after its last row.
    No row ever stalls. So there must be room for a command when an instruction comes. After a
    failed verdict no output counts until a reset, as a fault ends the program.

    Index registers lie in the scratch memory, so operands come without them. In the first cycles
    after a reset, rows of the ROM clear the registers, the window and the scale. Checks of the
    weight queue and of open loops are made elsewhere.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._rom = StepRom(config)
        super().__init__(
            {
                "instruction": In(stream.Signature(Given())),
                "place": Out(2),
                "pair": In(2 * PART_BITS),
                "host_limit": In(HOST_OFFSET_BITS),
                "weight_tiles": In(TILE_BITS),
                "writes": Out(1),
                "written": Out(Written()),
                "keeps": Out(1),
                "cell": Out(ceil_log2(CELLS)),
                "kept": Out(CELL_BITS),
                "judges": Out(1),
                "verdict": Out(Verdict()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Each of the reads that a row makes has its own copy of the scratch memory. The ROM keeps
        # so many rows between a write and a read of a cell that they never come in the same cycle.
        self._scratch = m.submodules.scratch = Memory(
            shape=signed(CELL_BITS), depth=CELLS, init=self._rom.constants, attrs=_BLOCK
        )
        self._register_numbers = [
            Signal(_SELECTOR_BITS, name=f"selected_{i}", reset_less=True) for i in range(_SELECTED)
        ]
        self._note_state = Signal(Conditions(), reset_less=True)
        stages = self._read_rows(m)
        x = self._take(m, stages)
        product = self._multiply(m, stages[_FACTOR_STAGE].row, x)
        lowest = x[OPCODE_BITS:][: _SELECTED * _SELECTOR_BITS]
        for _ in range(_FACTOR_STAGE, _SELECT_STAGE):
            operand_later = Signal.like(lowest, reset_less=True)
            m.d.sync += operand_later.eq(lowest)
            lowest = operand_later
        self._select(m, stages[_SELECT_STAGE], lowest)
        total = self._add(m, stages, product)
        self._finish(m, stages[_LAST_STAGE], total)
        return m

    def _read_rows(self, m: Module) -> list[data.View]:
        """Read the ROM; return the row in each stage. Stage 0 is unused."""
        rom = self._rom
        start_row = Signal(range(ROWS))
        m.submodules.rom = memory = Memory(
            shape=RowLayout().size, depth=ROWS, init=rom.contents, attrs=_BLOCK
        )
        read = memory.read_port()
        memory_cleared = Signal()
        walk_active = Signal()
        first_row = Signal()
        walk_begins = Signal()
        next_row = Signal(range(ROWS), reset_less=True)
        given = self.instruction.payload
        with m.Switch(given.opcode):
            for opcode, number in rom.starts.items():
                with m.Case(int(opcode)):
                    m.d.comb += start_row.eq(number)
            with m.Default():
                m.d.comb += start_row.eq(rom.unknown)
        with m.If(given.error):
            m.d.comb += start_row.eq(rom.error)
        with m.If(~memory_cleared):
            m.d.comb += start_row.eq(rom.reset)
        row = data.View(RowLayout(), read.data)
        last = row.last | (row.ends & self._note_state.equal_a)
        ends = walk_active & last
        m.d.comb += [
            walk_begins.eq(~walk_active & (self.instruction.valid | ~memory_cleared)),
            read.addr.eq(Mux(walk_active, next_row, start_row)),
            self.instruction.ready.eq(ends & memory_cleared),
            self.place.eq(row.at[ceil_log2(PART_BITS) :][:2]),
        ]
        m.d.sync += [
            walk_active.eq(Mux(walk_active, ~last, walk_begins)),
            first_row.eq(walk_begins),
            next_row.eq(read.addr + 1),
        ]
        with m.If(ends):
            m.d.sync += memory_cleared.eq(1)
        layout = data.StructLayout({"valid": 1, "first": 1, "judges": 1, "row": RowLayout()})
        stages = [Signal(layout, name="row_stage_0"), Signal(layout, name="row_stage_1")]
        m.d.comb += [
            stages[1].valid.eq(walk_active),
            stages[1].first.eq(first_row),
            # The rows that clear the memory after a reset have no verdict.
            stages[1].judges.eq(ends & memory_cleared),
            stages[1].row.eq(row),
        ]
        for number in range(2, _LAST_STAGE + 1):
            row_stage = Signal(layout, name=f"row_stage_{number}")
            m.d.sync += row_stage.eq(stages[-1])
            if number == _BASE_STAGE + 1:
                # From this stage on, the row names the index register to write by its number.
                indexed = stages[-1].row.into == self._rom.cells[INDEXED]
                with m.If(indexed):
                    m.d.sync += row_stage.row.into.eq(self._register_numbers[2])
            stages.append(row_stage)
        return stages

    def _selected(self, number: Value) -> Value:
        """Return the number of an index register: entry `number` of the list of the instruction."""
        return Array(self._register_numbers)[number]

    def _take(self, m: Module, stages: list[data.View]) -> Value:
        """Return x, the operand that the row in _FACTOR_STAGE multiplies."""
        before, taken = stages[_FACTOR_STAGE - 1].row, stages[_FACTOR_STAGE].row
        rom = self._rom
        port = FieldPort(widths=rom.widths, signed_widths=rom.signed_widths)
        m.submodules.fields = port
        read = self._scratch.read_port()
        is_index = before.at[ceil_log2(CELLS)]
        m.d.comb += [
            port.pair.eq(self.pair),
            port.offset.eq(before.at[ceil_log2(PLACE_BITS) :]),
            port.width.eq(taken.width),
            port.signed.eq(taken.signed),
            read.addr.eq(Mux(is_index, self._register_numbers[1], before.at[: ceil_log2(CELLS)])),
        ]
        # x is the OR of a field and a cell. A row with a field reads the cell ZERO, and a row with
        # a cell has the field 0.
        with m.If(~before.from_cell):
            m.d.comb += read.addr.eq(rom.cells[ZERO])
        return port.field | read.data.as_unsigned()

    def _multiply(self, m: Module, row: data.View, x: Value) -> Value:
        """Return the product of x and the factor that a row names; the base is added later."""
        kept_operand = Signal(KEPT_BITS, reset_less=True)
        row_factor = Signal(signed(WIDTH_LIMIT))
        with m.If(row.keep):
            m.d.sync += kept_operand.eq(x)
        with m.Switch(row.times):
            for times, value in (
                (Times.ONE, Const(1)),
                (Times.MINUS_ONE, Const(-1)),
                (Times.KEPT, kept_operand),
            ):
                with m.Case(times):
                    m.d.comb += row_factor.eq(value)
        # A cell is wider than a multiplier's input, so two multipliers take the two parts of x.
        half = CELL_BITS - WIDTH_LIMIT
        low = m.submodules.low = Multiplier(a=unsigned(WIDTH_LIMIT), b=signed(WIDTH_LIMIT))
        high = m.submodules.high = Multiplier(a=signed(half), b=signed(WIDTH_LIMIT))
        row_product = Signal(signed(RESULT_BITS), reset_less=True)
        m.d.comb += [
            low.a.eq(x[:WIDTH_LIMIT]),
            high.a.eq(x[WIDTH_LIMIT:]),
            *(part.b.eq(row_factor) for part in (low, high)),
            *(part.enable.eq(1) for part in (low, high)),
        ]
        upper = (low.product[WIDTH_LIMIT:].as_signed() + high.product)[: RESULT_BITS - WIDTH_LIMIT]
        m.d.sync += row_product.eq(Cat(low.product[:WIDTH_LIMIT], upper))
        return row_product

    def _select(self, m: Module, stage: data.View, lowest: Value) -> None:
        """Load the numbers of the index registers that the instruction uses."""
        numbers = [lowest.word_select(i, _SELECTOR_BITS) for i in range(_SELECTED)]
        with m.If(stage.valid & (stage.row.loads != Loads.NONE)):
            m.d.sync += [
                kept.eq(new) for kept, new in zip(self._register_numbers, numbers, strict=True)
            ]

    def _add(self, m: Module, stages: list[data.View], product: Value) -> Value:
        """Add the base of a row to its product, and return the sum, one stage later.

        If the condition of a row is false, the sum stays as it is. The row is then not valid in the
        last stage.
        """
        before, stage, row = stages[_BASE_STAGE].row, stages[_SUM_STAGE], stages[_SUM_STAGE].row
        read = self._scratch.read_port()
        indexed = before.base_kind == Bases.INDEX
        m.d.comb += read.addr.eq(Mux(indexed, self._selected(before.base[:2]), before.base))
        limit = self._scratch.read_port()
        m.d.comb += limit.addr.eq(row.limit)
        self._limit = limit.data.as_unsigned()
        inputs = {HOST_LIMIT: self.host_limit, WEIGHT_TILES: self.weight_tiles}
        for name, value in inputs.items():
            # HOST_LIMIT and WEIGHT_TILES come from inputs. The cells of these limits are never
            # written and stay zero, so cell and input can be ORed.
            limit_chosen = Signal(name=f"limit_is_{name}")
            m.d.sync += limit_chosen.eq(row.limit == self._rom.cells[name])
            self._limit = self._limit | (value & limit_chosen.replicate(len(value)))
        row_sum = Signal(signed(RESULT_BITS), reset_less=True)
        sum_result = Signal.like(row_sum)
        m.d.comb += sum_result.eq(Mux(row.base_kind == Bases.SUM, row_sum, read.data) + product)
        sum_wrapped = Signal.like(row_sum)
        m.d.comb += sum_wrapped.eq(sum_result)
        with m.Switch(row.wraps):
            for number, width in enumerate(self._rom.wraps, 1):
                with m.Case(number):
                    m.d.comb += sum_wrapped.eq(sum_result[:width])
        state = self._note_state
        row_condition = Signal()
        with m.Switch(row.when):
            for number, value in conditions(state, self._config).items():
                if number not in self._rom.conditions:
                    continue
                with m.Case(number):
                    m.d.comb += row_condition.eq(value)
        counts = stage.valid & row_condition
        with m.If(counts):
            m.d.sync += row_sum.eq(sum_wrapped)
        m.d.sync += stages[_LAST_STAGE].valid.eq(counts)
        for loads in Loads:
            with m.If(stage.valid & (row.loads == loads)):
                parts = loaded(loads, sum_result[:CELL_BITS])
                m.d.sync += [state[name].eq(bits) for name, bits in parts.items()]
        return row_sum

    def _finish(self, m: Module, stage: data.View, total: Value) -> None:
        """Compare the sum with its limit, store it, and find the verdict."""
        row = stage.row
        limit_exceeded = Signal()
        sum_zero = Signal()
        m.d.comb += [
            # Taken as an unsigned number, a negative sum is very large and exceeds every limit.
            limit_exceeded.eq(self._limit - total.as_unsigned() < 0),
            sum_zero.eq(total == 0),
        ]
        state = self._note_state
        for note, name, value in (
            (Note.BEYOND, "beyond", limit_exceeded),
            (Note.EQUAL_A, "equal_a", self._limit == total),
            (Note.EQUAL_B, "equal_b", self._limit == total),
            (Note.EQUAL_C, "equal_c", self._limit == total),
        ):
            with m.If(stage.valid & (row.note == note)):
                m.d.sync += state[name].eq(value)

        align = exact_log2(self._config.host_bus_bytes)
        field_illegal = Signal()
        check_failed = Signal()
        was_failed = Signal()
        kept_cause = Signal(Fault, reset_less=True)
        kept_address = Signal(32, reset_less=True)
        named_value = Signal(32, reset_less=True)
        m.d.comb += [
            field_illegal.eq((row.least & sum_zero) | (row.aligned & total[:align].any())),
            check_failed.eq(was_failed & ~stage.first),
        ]
        fault_cause = Signal(Fault)
        is_illegal = Signal()
        is_window = Signal()
        fault_taken = Signal()
        has_address = Signal()
        fails = stage.valid & (field_illegal | (row.checks & limit_exceeded))
        m.d.comb += [
            fault_cause.eq(Mux(field_illegal, int(Fault.ILLEGAL_FIELD), row.fault)),
            is_illegal.eq(fault_cause == Fault.ILLEGAL_FIELD),
            is_window.eq(fault_cause == Fault.WINDOW),
            # ILLEGAL_FIELD replaces any fault found before. WINDOW replaces any fault but
            # ILLEGAL_FIELD.
            fault_taken.eq(
                fails
                & (
                    ~check_failed
                    | (
                        (kept_cause != Fault.ILLEGAL_FIELD)
                        & (is_illegal | (is_window & (kept_cause != Fault.WINDOW)))
                    )
                )
            ),
            has_address.eq(~Cat(fault_cause == none for none in _NO_ADDRESS).any()),
        ]
        with m.If(stage.valid & row.names):
            m.d.sync += named_value.eq(total)
        m.d.sync += was_failed.eq(check_failed | fails)
        with m.If(fault_taken):
            m.d.sync += [
                kept_cause.eq(fault_cause),
                # The lowest bits of an instruction word are its opcode.
                kept_address.eq(
                    Mux(fault_cause == Fault.UNAVAILABLE, named_value[:OPCODE_BITS], named_value)
                    & has_address.replicate(len(named_value))
                ),
            ]
        counts = stage.valid & ~check_failed
        write = self._scratch.write_port()
        m.d.sync += self.judges.eq(stage.judges)
        m.d.comb += [
            self.verdict.failed.eq(was_failed),
            self.verdict.cause.eq(kept_cause),
            self.verdict.address.eq(kept_address),
            self.keeps.eq(counts & (row.into != 0)),
            self.cell.eq(row.into),
            self.kept.eq(total),
            write.en.eq(self.keeps),
            write.addr.eq(self.cell),
            write.data.eq(self.kept),
            self.writes.eq(counts & (row.word != 0)),
            self.written.word.eq(row.word),
            self.written.data.eq(total),
            self.written.single.eq(total == 1),
            self.written.double.eq(total == 2),
        ]
