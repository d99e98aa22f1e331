# SPDX-License-Identifier: Apache-2.0
"""Instruction words into regions, transfers and fault causes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import (
    INSTRUCTIONS,
    OPCODE_BITS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
)
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    HOST_OFFSET_BITS,
    PARAMETER_SPACE,
    PC_BITS,
    TABLE_SPACE,
    TILE_BITS,
    HostTransfer,
    InstructionLayout,
    WeightTransfer,
)
from systola.hdl.fetch import FetchedInstruction
from systola.hdl.in_flight import Region

PRODUCT_BITS = 28
"""Width of rows x tiles; also wide enough for any end of a region before it is checked."""
EXTENT_BITS = 42


class Decoded(data.StructLayout):
    """An instruction ready for issue; what does not concern its opcode is undefined.

    `cause` with `address`: the first check that failed, NONE if all hold; the address of a
    Read_Weights is its first tile in any case. `destination` is
    the region that a read from host memory fills; `table` is empty unless an Activate uses one.
    `tiles`: weight tiles queued or consumed.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "opcode": OPCODE_BITS,
                "pc": PC_BITS,
                "cause": exact_log2(len(Fault)),
                "address": 32,
                "buffer": Region(ADDRESS_BITS),
                "accumulator": Region(ACCUMULATOR_BITS),
                "parameters": Region(ADDRESS_BITS),
                "table": Region(ADDRESS_BITS),
                "destination": Region(ADDRESS_BITS),
                "host": Region(HOST_OFFSET_BITS),
                "transfer": HostTransfer(),
                "tail_line": ADDRESS_BITS,
                "tail": 9,
                "weight_transfer": WeightTransfer(config=config),
                "tiles": TILE_BITS,
                "rows": 16,
                "k_tiles": 12,
                "n_tiles": 12,
                "accumulate": 1,
                "function": 2,
                "rounding": 1,
                "zero_point": signed(8),
                "ceiling": signed(8),
                "code": 16,
            }
        )


class Multiplied(data.StructLayout):
    """An instruction between the two stages: its word, and the products that its ends need."""

    def __init__(self) -> None:
        super().__init__(
            {
                "word": 128,
                "pc": PC_BITS,
                "fetch_error": 1,
                "illegal_opcode": 1,
                "illegal_field": 1,
                "lines": PRODUCT_BITS,
                "accumulator_rows": PRODUCT_BITS,
                "tiles": TILE_BITS,
                "spread": 40,
            }
        )


class Decoder(wiring.Component):
    """Two stages: multiply, then check. One instruction a cycle, latency two cycles.

    The checks are those of arch/isa.py in their order, but for the two that need the state of the
    weight queue. `idle`: there is no instruction inside.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "instruction": In(stream.Signature(FetchedInstruction())),
                "decoded": Out(stream.Signature(Decoded(config=config))),
                "host_limit": In(HOST_OFFSET_BITS),
                "weight_tiles": In(TILE_BITS),
                "pc": Out(PC_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        multiplied = Signal(Multiplied())
        multiplied_valid = Signal()
        moves = Signal()  # first stage to second
        leaves = Signal()  # second stage to outside
        m.d.comb += [
            leaves.eq(~self.decoded.valid | self.decoded.ready),
            moves.eq(~multiplied_valid | leaves),
            self.instruction.ready.eq(moves),
            self.idle.eq(~multiplied_valid & ~self.decoded.valid),
        ]
        with m.If(moves):
            m.d.sync += multiplied_valid.eq(self.instruction.valid)
            m.d.sync += self._multiply(m, multiplied)
            with m.If(self.instruction.valid):
                m.d.sync += self.pc.eq(self.pc + 1)
        with m.If(leaves):
            m.d.sync += self.decoded.valid.eq(multiplied_valid)
            m.d.sync += self._check(m, multiplied)
        return m

    def _multiply(self, m: Module, multiplied: data.View) -> list[object]:
        """Assignments that fill the first stage."""
        word = self.instruction.payload.word
        opcode = word[:OPCODE_BITS]
        read = data.View(InstructionLayout(Opcode.READ_HOST_MEMORY), word)
        matrix = data.View(InstructionLayout(Opcode.MATRIX_MULTIPLY), word)
        activate = data.View(InstructionLayout(Opcode.ACTIVATE), word)

        known = Signal()
        bad_field = Signal()
        with m.Switch(opcode):
            for entry in INSTRUCTIONS:
                with m.Case(entry.opcode):
                    fields = data.View(InstructionLayout(entry.opcode), word)
                    m.d.comb += [
                        known.eq(1),
                        bad_field.eq(
                            word[entry.width :].any()
                            | Cat(
                                fields[field.name] < field.minimum
                                for field in entry.fields
                                if field.minimum is not None
                            ).any()
                            | self._misfits(entry.opcode, fields)
                        ),
                    ]

        # rows x count gives the lines of the buffer, rows x n_tiles those of the accumulators.
        is_matrix = opcode == Opcode.MATRIX_MULTIPLY
        is_activate = opcode == Opcode.ACTIVATE
        rows = Mux(is_matrix, matrix.rows, Mux(is_activate, activate.rows, read.rows))
        count = Mux(is_matrix, matrix.k_tiles, Mux(is_activate, activate.n_tiles, read.blocks))
        n_tiles = Mux(is_matrix, matrix.n_tiles, activate.n_tiles)
        weights = data.View(InstructionLayout(Opcode.READ_WEIGHTS), word)
        return [
            multiplied.word.eq(word),
            multiplied.pc.eq(self.pc),
            multiplied.fetch_error.eq(self.instruction.payload.error),
            multiplied.illegal_opcode.eq(~known),
            multiplied.illegal_field.eq(bad_field),
            multiplied.lines.eq(rows * count),
            multiplied.accumulator_rows.eq(rows * n_tiles),
            multiplied.tiles.eq(Mux(is_matrix, matrix.k_tiles * matrix.n_tiles, weights.count)),
            multiplied.spread.eq((read.rows - 1)[:16] * read.stride),
        ]

    def _misfits(self, opcode: Opcode, fields: data.View) -> Value:
        """Whether `host` or `stride` is not aligned, or `tail` longer than a vector."""
        config = self._config
        align = exact_log2(config.host_bus_bytes)
        wrong: Value = Const(0)
        if opcode in (
            Opcode.READ_HOST_MEMORY,
            Opcode.WRITE_HOST_MEMORY,
            Opcode.LOAD_PARAMETERS,
            Opcode.LOAD_TABLE,
        ):
            wrong |= fields.host[:align].any()
        if opcode in (Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY):
            longest = config.rows if opcode is Opcode.READ_HOST_MEMORY else config.cols
            wrong |= fields.stride[:align].any() | (fields.tail > longest)
        return wrong

    def _check(self, m: Module, multiplied: data.View) -> list[object]:
        """Assignments that fill the second stage."""
        config = self._config
        word = multiplied.word
        opcode = word[:OPCODE_BITS]
        fields = {
            entry.opcode: data.View(InstructionLayout(entry.opcode), word) for entry in INSTRUCTIONS
        }
        read = fields[Opcode.READ_HOST_MEMORY]
        parameters = fields[Opcode.LOAD_PARAMETERS]
        table = fields[Opcode.LOAD_TABLE]
        weights = fields[Opcode.READ_WEIGHTS]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        activate = fields[Opcode.ACTIVATE]
        is_write = opcode == Opcode.WRITE_HOST_MEMORY
        is_parameters = opcode == Opcode.LOAD_PARAMETERS
        is_table = opcode == Opcode.LOAD_TABLE
        is_matrix = opcode == Opcode.MATRIX_MULTIPLY
        is_activate = opcode == Opcode.ACTIVATE
        uses_table = is_table | (is_activate & (activate.function == Function.TABLE))

        wide = PRODUCT_BITS + 1
        buffer = Signal(wide)
        buffer_end = Signal(wide)
        accumulator = Signal(wide)
        accumulator_end = Signal(wide)
        parameter = Signal(13)
        parameter_end = Signal(13)
        table_number = Signal(4)
        table_used = Signal()
        extent = Signal(EXTENT_BITS)
        host_end = Signal(EXTENT_BITS)
        tile_end = Signal(TILE_BITS)
        pitch = Mux(is_write, config.output_pitch, config.input_pitch)
        m.d.comb += [
            buffer.eq(
                Mux(is_matrix, matrix.buffer, Mux(is_activate, activate.buffer, read.buffer))
            ),
            buffer_end.eq(buffer + multiplied.lines),
            accumulator.eq(Mux(is_matrix, matrix.accumulator, activate.accumulator)),
            accumulator_end.eq(accumulator + multiplied.accumulator_rows),
            parameter.eq(Mux(is_parameters, parameters.parameter, activate.parameter)),
            parameter_end.eq(parameter + Mux(is_parameters, parameters.count, activate.n_tiles)),
            table_number.eq(Mux(is_table, table.table, activate.table)),
            table_used.eq(uses_table),
            extent.eq(
                Mux(
                    is_parameters,
                    parameters.count * (PARAMETER_PLANES * config.output_pitch),
                    Mux(is_table, TABLE_BYTES, multiplied.spread + read.blocks * pitch),
                )
            ),
            host_end.eq(read.host + extent),
            tile_end.eq(weights.tile + weights.count),
        ]

        # What can go wrong, for each cause: the condition, and what FAULT_ADDRESS then holds.
        broken = {
            Fault.BUFFER_RANGE: (buffer_end > config.buffer_lines, buffer),
            Fault.ACCUMULATOR_RANGE: (accumulator_end > config.accumulator_rows, accumulator),
            Fault.PARAMETER_RANGE: (parameter_end > config.parameter_entries, parameter),
            Fault.TABLE_RANGE: (table_used & (table_number >= config.tables), table_number),
            Fault.HOST_WINDOW: (host_end > self.host_limit, read.host),
            Fault.WEIGHT_WINDOW: (tile_end > self.weight_tiles, weights.tile),
        }
        cause = Signal(exact_log2(len(Fault)))
        address = Signal(32)
        with m.If(opcode == Opcode.READ_WEIGHTS):
            m.d.comb += address.eq(weights.tile)
        with m.If(multiplied.fetch_error):
            m.d.comb += [cause.eq(Fault.FETCH_ERROR), address.eq(0)]
        with m.Elif(multiplied.illegal_opcode):
            m.d.comb += [cause.eq(Fault.ILLEGAL_OPCODE), address.eq(opcode)]
        with m.Elif(multiplied.illegal_field):
            m.d.comb += [cause.eq(Fault.ILLEGAL_FIELD), address.eq(0)]
        with m.Else(), m.Switch(opcode):
            for entry in INSTRUCTIONS:
                with m.Case(entry.opcode):
                    # The first check has the last word.
                    for fault in reversed(entry.checks):
                        if fault in broken:
                            condition, culprit = broken[fault]
                            with m.If(condition):
                                m.d.comb += [cause.eq(fault), address.eq(culprit)]

        # One contiguous run instead of one for each line, where the lines follow one another.
        linear = (
            is_parameters
            | is_table
            | (read.rows == 1)
            | ((read.blocks == 1) & (read.stride == pitch))
        )
        line_beats = Mux(
            is_write,
            config.output_pitch // config.host_bus_bytes,
            config.input_pitch // config.host_bus_bytes,
        )
        run_beats = Mux(
            is_parameters | is_table,
            extent >> exact_log2(config.host_bus_bytes),
            Mux(linear, multiplied.lines * line_beats, line_beats),
        )
        tile_beats = config.tile_bytes // config.weight_bus_bytes
        out = self.decoded.payload
        return [
            out.opcode.eq(opcode),
            out.pc.eq(multiplied.pc),
            out.cause.eq(cause),
            out.address.eq(address),
            out.buffer.base.eq(buffer),
            out.buffer.end.eq(buffer_end),
            out.accumulator.base.eq(accumulator),
            out.accumulator.end.eq(accumulator_end),
            out.parameters.base.eq(PARAMETER_SPACE + parameter),
            out.parameters.end.eq(PARAMETER_SPACE + parameter_end),
            out.table.base.eq(TABLE_SPACE + table_number),
            out.table.end.eq(TABLE_SPACE + table_number + table_used),
            out.destination.base.eq(
                Mux(
                    is_parameters,
                    PARAMETER_SPACE + parameter,
                    Mux(is_table, TABLE_SPACE + table_number, buffer),
                )
            ),
            out.destination.end.eq(
                Mux(
                    is_parameters,
                    PARAMETER_SPACE + parameter_end,
                    Mux(is_table, TABLE_SPACE + table_number + 1, buffer_end),
                )
            ),
            out.host.base.eq(read.host),
            out.host.end.eq(host_end),
            out.transfer.address.eq(read.host),
            out.transfer.beats.eq(run_beats),
            out.transfer.rows.eq(Mux(linear, 1, read.rows)),
            out.transfer.stride.eq(read.stride),
            out.transfer.blocks.eq(Mux(linear, 1, read.blocks)),
            out.tail_line.eq(buffer_end - read.rows),
            out.tail.eq(read.tail),
            out.weight_transfer.address.eq(weights.tile * config.tile_bytes),
            out.weight_transfer.beats.eq(weights.count * tile_beats),
            out.weight_transfer.rows.eq(1),
            out.weight_transfer.blocks.eq(1),
            out.tiles.eq(multiplied.tiles),
            out.rows.eq(Mux(is_matrix, matrix.rows, activate.rows)),
            out.k_tiles.eq(matrix.k_tiles),
            out.n_tiles.eq(Mux(is_matrix, matrix.n_tiles, activate.n_tiles)),
            out.accumulate.eq(matrix.accumulate),
            out.function.eq(activate.function),
            out.rounding.eq(activate.rounding),
            out.zero_point.eq(activate.zero_point),
            out.ceiling.eq(activate.ceiling),
            out.code.eq(fields[Opcode.INTERRUPT_HOST].code),
        ]
