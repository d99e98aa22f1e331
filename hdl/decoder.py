# SPDX-License-Identifier: Apache-2.0
"""Instruction words into regions, commands and fault causes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    INSTRUCTIONS,
    OPCODE_BITS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
    Unit,
)
from systola.hdl.activate_decoder import ActivateDecoder
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    HOST_OFFSET_BITS,
    PARAMETER_SPACE,
    PC_BITS,
    TABLE_SPACE,
    TILE_BITS,
    TILE_COUNT_BITS,
    ActivateCommand,
    HostTransfer,
    InstructionLayout,
    MatrixCommand,
    Tail,
    WeightTransfer,
)
from systola.hdl.illegal_field import COPIES, WRITES, is_illegal
from systola.hdl.in_flight import Region
from systola.hdl.matrix_decoder import MatrixDecoder, Packing, unpackable
from systola.hdl.scalar_unit import EffectiveInstruction
from systola.hdl.window_registers import WindowRegisters

PRODUCT_BITS = 36
"""Width of the products of a count and a number of rows, pixels or lines."""
END_BITS = PRODUCT_BITS + 2
"""Width of any end of a region before it is checked."""
SPREAD_BITS = 40
EXTENT_BITS = 42

ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)


class Decoded(data.StructLayout):
    """An instruction ready for issue; what does not concern its opcode is undefined.

    `cause` with `address`: the first check that failed, NONE if all hold; the address of a
    Read_Weights is its first tile in any case. Regions on the chip, empty where an instruction has
    no such one: `buffer` is what MatrixMultiply, Convolve or a write to host memory reads, an
    instruction of the activation unit writes, or a read from host memory fills (parameters and
    tables included); `source` and `operand` are what the activation unit reads, `parameters` and
    `table` what it uses. `tiles`: weight tiles queued or consumed. `code`: that of an
    Interrupt_Host, or the tag of a Debug_Tag, which waits for `units`.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "opcode": OPCODE_BITS,
                "pc": PC_BITS,
                "cause": ceil_log2(len(Fault)),
                "address": 32,
                "buffer": Region(ADDRESS_BITS),
                "accumulator": Region(ACCUMULATOR_BITS),
                "parameters": Region(ADDRESS_BITS),
                "table": Region(ADDRESS_BITS),
                "source": Region(ADDRESS_BITS),
                "operand": Region(ADDRESS_BITS),
                "host": Region(HOST_OFFSET_BITS),
                "transfer": HostTransfer(),
                "tail": Tail(),
                "weight_transfer": WeightTransfer(config=config),
                "tiles": TILE_COUNT_BITS,
                "matrix": MatrixCommand(),
                "activate": ActivateCommand(),
                "code": 16,
                "units": len(Unit),
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
                "loop_fault": 1,
                "loops": 3,
                "lines": PRODUCT_BITS,
                "results": PRODUCT_BITS,
                "tap_lines": 28,
                "tiles": TILE_BITS,
                "spread": SPREAD_BITS,
                "packing": Packing(),
            }
        )


def operands_of(word: Value) -> dict[Opcode, data.View]:
    """The fields of `word`, read as each of the instructions."""
    return {
        entry.opcode: data.View(InstructionLayout(entry.opcode), word) for entry in INSTRUCTIONS
    }


class Decoder(wiring.Component):
    """Two stages: multiply, then check. One instruction a cycle, latency two cycles; after a
    Set_Config_Window one cycle is lost.

    The checks are those of arch/isa.py in their order, but for the two that need the state of the
    weight queue. `idle`: there is no instruction inside. `pc`: number of the instruction behind the
    last one taken.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "instruction": In(stream.Signature(EffectiveInstruction())),
                "decoded": Out(stream.Signature(Decoded(config=config))),
                "host_limit": In(HOST_OFFSET_BITS),
                "weight_tiles": In(TILE_BITS),
                "pc": Out(PC_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.window = window = WindowRegisters()
        scale = Signal(InstructionLayout(Opcode.SET_CONFIG_SCALE))
        multiplied = Signal(Multiplied())
        multiplied_valid = Signal()
        moves = Signal()  # first stage to second
        leaves = Signal()  # second stage to outside
        taken = Signal()
        word = self.instruction.payload.word
        opcode = word[:OPCODE_BITS]
        m.d.comb += [
            leaves.eq(~self.decoded.valid | self.decoded.ready),
            moves.eq(~multiplied_valid | leaves),
            self.instruction.ready.eq(moves & ~window.busy),
            taken.eq(self.instruction.valid & self.instruction.ready),
            self.idle.eq(~multiplied_valid & ~self.decoded.valid),
            window.word.eq(word),
            window.load.eq(taken & (opcode == Opcode.SET_CONFIG_WINDOW)),
        ]
        with m.If(moves):
            m.d.sync += multiplied_valid.eq(taken)
        with m.If(taken):
            m.d.sync += self._multiply(m, multiplied, window)
            m.d.sync += self.pc.eq(self.instruction.payload.pc + 1)
            with m.If(opcode == Opcode.SET_CONFIG_SCALE):
                m.d.sync += scale.eq(word)
        with m.If(leaves):
            m.d.sync += self.decoded.valid.eq(multiplied_valid)
            m.d.sync += self._check(m, multiplied, window, scale)
        return m

    def _multiply(self, m: Module, multiplied: data.View, window: WindowRegisters) -> list[object]:
        """Assignments that fill the first stage."""
        word = self.instruction.payload.word
        opcode = word[:OPCODE_BITS]
        fields = operands_of(word)
        read = fields[Opcode.READ_HOST_MEMORY]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        convolve = fields[Opcode.CONVOLVE]
        activate = fields[Opcode.ACTIVATE]
        depthwise = fields[Opcode.DEPTHWISE]
        pool = fields[Opcode.POOL]
        vector = fields[Opcode.VECTOR]
        weights = fields[Opcode.READ_WEIGHTS]
        shape = window.fields

        known = Signal()
        bad_field = Signal()
        with m.Switch(opcode):
            for entry in INSTRUCTIONS:
                with m.Case(entry.opcode):
                    m.d.comb += [
                        known.eq(1),
                        bad_field.eq(is_illegal(self._config, entry, word, fields[entry.opcode])),
                    ]

        # Three products serve all: lines that are read (or copied), rows or lines that result, and
        # the distance of the last row or block from the first.
        lines = (Signal(24), Signal(12))
        results = (Signal(24), Signal(12))
        spread = (Signal(16), Signal(24))
        m.d.comb += [
            lines[0].eq(read.rows),
            lines[1].eq(read.blocks),
            spread[0].eq((read.rows - 1)[:16]),
            spread[1].eq(read.stride),
        ]
        with m.Switch(opcode):
            with m.Case(Opcode.MATRIX_MULTIPLY):
                m.d.comb += [
                    lines[0].eq(matrix.rows),
                    lines[1].eq(matrix.k_tiles),
                    results[0].eq(matrix.rows),
                    results[1].eq(matrix.n_tiles),
                ]
            with m.Case(Opcode.CONVOLVE):
                m.d.comb += [
                    lines[0].eq(window.products.map_lines),
                    lines[1].eq(1),
                    results[0].eq(window.products.pixels),
                    results[1].eq(convolve.n_tiles),
                    spread[0].eq((convolve.k_tiles - 1)[:12]),
                    spread[1].eq(convolve.plane),
                ]
            with m.Case(Opcode.ACTIVATE):
                m.d.comb += [results[0].eq(activate.rows), results[1].eq(activate.n_tiles)]
            with m.Case(Opcode.DEPTHWISE, Opcode.POOL):
                blocks = Mux(opcode == Opcode.POOL, pool.blocks, depthwise.blocks)
                m.d.comb += [
                    lines[0].eq(window.products.map_lines),
                    lines[1].eq(blocks),
                    results[0].eq(window.products.pixels),
                    results[1].eq(blocks),
                ]
            with m.Case(Opcode.VECTOR):
                m.d.comb += [
                    lines[0].eq(vector.rows),
                    lines[1].eq(1),
                    results[0].eq(vector.rows),
                    results[1].eq(1),
                ]
        is_convolve = opcode == Opcode.CONVOLVE
        k_tiles = Mux(is_convolve, convolve.k_tiles, matrix.k_tiles)
        n_tiles = Mux(is_convolve, convolve.n_tiles, matrix.n_tiles)
        return [
            multiplied.word.eq(word),
            multiplied.pc.eq(self.instruction.payload.pc),
            multiplied.fetch_error.eq(self.instruction.payload.error),
            multiplied.illegal_opcode.eq(~known),
            multiplied.illegal_field.eq(bad_field),
            multiplied.loop_fault.eq(self.instruction.payload.loop_fault),
            multiplied.loops.eq(self.instruction.payload.loops),
            multiplied.lines.eq(lines[0] * lines[1]),
            multiplied.results.eq(results[0] * results[1]),
            multiplied.tap_lines.eq(window.products.taps * depthwise.blocks),
            multiplied.tiles.eq(
                Mux(opcode == Opcode.READ_WEIGHTS, weights.count, k_tiles * n_tiles)
            ),
            multiplied.spread.eq(spread[0] * spread[1]),
            multiplied.packing.row_bytes.eq(shape.width * convolve.channels),
            multiplied.packing.kernel_bytes.eq(shape.kernel_width * convolve.channels),
            multiplied.packing.start.eq(shape.left * convolve.channels),
            multiplied.packing.step.eq(shape.stride_x * convolve.channels),
        ]

    def _check(
        self, m: Module, multiplied: data.View, window: WindowRegisters, scale: data.View
    ) -> list[object]:
        """Assignments that fill the second stage."""
        config = self._config
        word = multiplied.word
        opcode = word[:OPCODE_BITS]
        fields = operands_of(word)
        read = fields[Opcode.READ_HOST_MEMORY]
        parameters = fields[Opcode.LOAD_PARAMETERS]
        table = fields[Opcode.LOAD_TABLE]
        weights = fields[Opcode.READ_WEIGHTS]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        convolve = fields[Opcode.CONVOLVE]
        activate = fields[Opcode.ACTIVATE]
        depthwise = fields[Opcode.DEPTHWISE]
        pool = fields[Opcode.POOL]
        vector = fields[Opcode.VECTOR]
        shape, products = window.fields, window.products

        def one_of(*opcodes: Opcode) -> Value:
            return Cat(opcode == member for member in opcodes).any()

        is_write = one_of(*WRITES)
        is_parameters = opcode == Opcode.LOAD_PARAMETERS
        is_table = opcode == Opcode.LOAD_TABLE
        packed = convolve.channels != 0
        too_wide = shape.width > shape.pitch

        # Regions. Each address and length is chosen by the opcode; what is left is 0.
        buffer = Signal(20)
        length = Signal(END_BITS)
        source = Signal(20)
        source_length = Signal(END_BITS)
        operand = Signal(20)
        operand_length = Signal(END_BITS)
        accumulator = Signal(16)
        rows = Signal(END_BITS)
        parameter = Signal(12)
        entries = Signal(16)
        table_number = Signal(4)
        table_used = Signal()
        tiles = Signal(TILE_COUNT_BITS)
        unavailable = Signal()
        no_window = Signal()
        m.d.comb += tiles.eq(multiplied.tiles)
        with m.Switch(opcode):
            with m.Case(*COPIES):
                m.d.comb += [buffer.eq(read.buffer), length.eq(multiplied.lines)]
            with m.Case(Opcode.LOAD_PARAMETERS):
                m.d.comb += [parameter.eq(parameters.parameter), entries.eq(parameters.count)]
            with m.Case(Opcode.LOAD_TABLE):
                m.d.comb += [
                    table_number.eq(table.table),
                    table_used.eq(1),
                    unavailable.eq(int(not config.tables)),
                ]
            with m.Case(Opcode.MATRIX_MULTIPLY):
                m.d.comb += [
                    buffer.eq(matrix.buffer),
                    length.eq(multiplied.lines << matrix.wide_vectors),
                    accumulator.eq(matrix.accumulator),
                    rows.eq(multiplied.results),
                    tiles.eq(multiplied.tiles << matrix.wide_weights),
                ]
                if not config.wide:
                    m.d.comb += unavailable.eq(matrix.wide_vectors | matrix.wide_weights)
            with m.Case(Opcode.CONVOLVE):
                m.d.comb += [
                    buffer.eq(convolve.buffer),
                    length.eq(multiplied.lines + multiplied.spread),
                    accumulator.eq(convolve.accumulator),
                    rows.eq(multiplied.results),
                    tiles.eq(multiplied.tiles * Mux(packed, shape.kernel_height, products.taps)),
                    no_window.eq(
                        Mux(
                            packed,
                            unpackable(config, multiplied.packing, convolve, shape),
                            too_wide,
                        )
                    ),
                ]
            with m.Case(Opcode.ACTIVATE):
                m.d.comb += [
                    buffer.eq(activate.buffer),
                    length.eq(multiplied.results << activate.wide),
                    accumulator.eq(activate.accumulator),
                    rows.eq(multiplied.results),
                    parameter.eq(activate.parameter),
                    entries.eq(activate.n_tiles),
                    table_number.eq(activate.table),
                    table_used.eq(activate.function == Function.TABLE),
                    unavailable.eq(self._lacks(activate, activate.wide)),
                ]
            with m.Case(Opcode.DEPTHWISE):
                m.d.comb += [
                    buffer.eq(depthwise.destination),
                    length.eq(multiplied.results),
                    source.eq(depthwise.buffer),
                    source_length.eq(multiplied.lines),
                    operand.eq(depthwise.taps),
                    operand_length.eq(multiplied.tap_lines),
                    parameter.eq(depthwise.parameter),
                    entries.eq(depthwise.blocks),
                    unavailable.eq(int(not config.depthwise)),
                    no_window.eq(too_wide | (products.taps > DEPTHWISE_TAPS)),
                ]
            with m.Case(Opcode.POOL):
                m.d.comb += [
                    buffer.eq(pool.destination),
                    length.eq(multiplied.results),
                    source.eq(pool.buffer),
                    source_length.eq(multiplied.lines),
                    parameter.eq(pool.parameter),
                    entries.eq(Mux(pool.reduction == Reduction.AVERAGE, products.taps, 1)),
                    no_window.eq(too_wide),
                ]
            with m.Case(Opcode.VECTOR):
                m.d.comb += [
                    buffer.eq(vector.destination),
                    length.eq(multiplied.results << vector.wide),
                    source.eq(vector.buffer),
                    source_length.eq(multiplied.lines << vector.wide_operands),
                    parameter.eq(vector.parameter),
                    entries.eq(1),
                    table_number.eq(vector.table),
                    table_used.eq(vector.function == Function.TABLE),
                    unavailable.eq(self._lacks(vector, vector.wide | vector.wide_operands)),
                ]
                with m.If(vector.operation != Operation.COPY):
                    m.d.comb += [operand.eq(vector.operand), operand_length.eq(source_length)]

        def end_of(base: Signal, size: Signal) -> Signal:
            end = Signal(END_BITS + 1, name=f"{base.name}_end")
            m.d.comb += end.eq(base + size)
            return end

        buffer_end = end_of(buffer, length)
        source_end = end_of(source, source_length)
        operand_end = end_of(operand, operand_length)
        accumulator_end = end_of(accumulator, rows)
        parameter_end = end_of(parameter, entries)
        extent = Signal(EXTENT_BITS)
        host_end = Signal(EXTENT_BITS)
        tile_end = Signal(TILE_BITS)
        pitch = Mux(is_write, config.output_pitch, config.input_pitch)
        m.d.comb += [
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
        beyond = [
            (end > config.buffer_lines, base)
            for base, end in ((source, source_end), (operand, operand_end), (buffer, buffer_end))
        ]

        def spoiled(base: Signal, end: Signal) -> Value:
            """Whether results overwrite an operand, other than exactly by Vector."""
            same = (opcode == Opcode.VECTOR) & (base == buffer) & (end == buffer_end)
            return (base < buffer_end) & (buffer < end) & ~same

        broken = {
            Fault.LOOP: (multiplied.loop_fault, multiplied.loops),
            Fault.UNAVAILABLE: (unavailable, opcode),
            Fault.WINDOW: (~window.valid | no_window, 0),
            Fault.BUFFER_RANGE: (
                Cat(outside for outside, _ in beyond).any(),
                Mux(beyond[0][0], source, Mux(beyond[1][0], operand, buffer)),
            ),
            Fault.OVERLAP: (spoiled(source, source_end) | spoiled(operand, operand_end), buffer),
            Fault.ACCUMULATOR_RANGE: (accumulator_end > config.accumulator_rows, accumulator),
            Fault.PARAMETER_RANGE: (parameter_end > config.parameter_entries, parameter),
            Fault.TABLE_RANGE: (table_used & (table_number >= config.tables), table_number),
            Fault.HOST_WINDOW: (host_end > self.host_limit, read.host),
            Fault.WEIGHT_WINDOW: (tile_end > self.weight_tiles, weights.tile),
        }
        cause = Signal(ceil_log2(len(Fault)))
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

        # One contiguous run instead of one for each line, where the lines follow one another; where
        # they do not, a run is a block, or with the alternate copies a row.
        alternate = one_of(*ALTERNATE)
        linear = (
            is_parameters
            | is_table
            | (read.rows == 1)
            | ((alternate | (read.blocks == 1)) & (read.stride == read.blocks * pitch))
        )
        line_beats = Mux(
            is_write,
            config.output_pitch // config.host_bus_bytes,
            config.input_pitch // config.host_bus_bytes,
        )
        run_lines = Mux(linear, multiplied.lines, Mux(alternate, read.blocks, 1))
        run_beats = Mux(
            is_parameters | is_table,
            extent >> exact_log2(config.host_bus_bytes),
            run_lines * line_beats,
        )
        m.submodules.matrix = matrix_decoder = MatrixDecoder(config=config)
        m.submodules.activate = activate_decoder = ActivateDecoder()
        for unit in (matrix_decoder, activate_decoder):
            m.d.comb += [unit.word.eq(word), unit.shape.eq(shape), unit.products.eq(products)]
        m.d.comb += [
            matrix_decoder.packing.eq(multiplied.packing),
            activate_decoder.scale.eq(scale),
        ]

        tile_beats = config.tile_bytes // config.weight_bus_bytes
        out = self.decoded.payload

        def region(target: data.View, base: object, end: object) -> list[object]:
            return [target.base.eq(base), target.end.eq(end)]

        in_parameters = PARAMETER_SPACE + parameter, PARAMETER_SPACE + parameter_end[:13]
        in_tables = TABLE_SPACE + table_number, TABLE_SPACE + table_number + table_used
        return [
            out.opcode.eq(opcode),
            out.pc.eq(multiplied.pc),
            out.cause.eq(cause),
            out.address.eq(address),
            *region(
                out.buffer,
                Mux(is_parameters, in_parameters[0], Mux(is_table, in_tables[0], buffer)),
                Mux(is_parameters, in_parameters[1], Mux(is_table, in_tables[1], buffer_end)),
            ),
            *region(out.source, source, source_end),
            *region(out.operand, operand, operand_end),
            *region(out.accumulator, accumulator, accumulator_end),
            *region(out.parameters, *in_parameters),
            *region(out.table, *in_tables),
            *region(out.host, read.host, host_end),
            out.transfer.address.eq(read.host),
            out.transfer.beats.eq(run_beats),
            out.transfer.rows.eq(Mux(linear, 1, read.rows)),
            out.transfer.stride.eq(read.stride),
            out.transfer.blocks.eq(Mux(linear | alternate, 1, read.blocks)),
            out.tail.line.eq(buffer_end - read.rows),
            out.tail.every.eq(Mux(alternate, read.blocks, 0)),
            out.tail.bytes.eq(read.tail),
            out.weight_transfer.address.eq(weights.tile * config.tile_bytes),
            out.weight_transfer.beats.eq(weights.count * tile_beats),
            out.weight_transfer.rows.eq(1),
            out.weight_transfer.blocks.eq(1),
            out.tiles.eq(tiles),
            out.code.eq(fields[Opcode.INTERRUPT_HOST].code),
            out.units.eq(fields[Opcode.DEBUG_TAG].wait),
            out.matrix.eq(matrix_decoder.command),
            out.activate.eq(activate_decoder.command),
        ]

    def _lacks(self, fields: data.View, wide: Value) -> Value:
        """Whether an Activate or Vector needs hardware that is not there."""
        lacks: Value = Const(0)
        if not self._config.wide:
            lacks |= wide
        if not self._config.tables:
            lacks |= fields.function == Function.TABLE
        return lacks
