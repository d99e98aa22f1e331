# SPDX-License-Identifier: Apache-2.0
"""Instruction words into regions, commands and fault causes."""

from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from operator import add, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    DEPTHWISE_TAPS,
    INSTRUCTIONS,
    LOOP_DEPTH,
    OPCODE_BITS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
    Unit,
)
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    HOST_OFFSET_BITS,
    PC_BITS,
    TILE_BITS,
    TILE_COUNT_BITS,
    ActivateCommand,
    HostTransfer,
    InstructionLayout,
    MatrixCommand,
    Tail,
    WeightTransfer,
    address_bits,
    host_beat_bits,
    line_bits,
    parameter_space,
    row_bits,
    table_space,
)
from systola.hdl.control.activate_decoder import SOURCES, ActivateDecoder
from systola.hdl.control.illegal_field import (
    COPIES,
    WRITES,
    is_out_of_range,
    misfits,
    reserved_bits,
)
from systola.hdl.control.matrix_decoder import MatrixDecoder, Packing, unpackable
from systola.hdl.control.products import ProductUnit, place_bits
from systola.hdl.control.scalar_unit import OPCODES, Coming, EffectiveInstruction, is_one_of
from systola.hdl.control.window_registers import WindowRegisters, first_operands, second_operands
from systola.hdl.parts.in_flight import Region

LENGTH_BITS = 41
"""Width of any length of a region before it is checked."""
GROUP = 4
"""Places where an instruction may end that are looked at together."""
SETTLING = 3
"""Cycles behind a Set_Config_Window until its products can be multiplied."""

TILES = (Opcode.TRANSPOSE, Opcode.RANDOM)
"""The instructions of the activation unit that write lines and no results of numbers."""
GENERAL = (Fault.FETCH_ERROR, Fault.ILLEGAL_OPCODE, Fault.ILLEGAL_FIELD)
"""Checks of every instruction, in their order; they come before all others."""
ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)


class Decoded(data.StructLayout):
    """An instruction ready for issue; what does not concern its opcode is undefined. `kind` has a
    bit for each of OPCODES.

    `failed`, from the second cycle on: a check does not hold; `cause` with `address`, from the
    fourth cycle on: the first one that does not, NONE if all hold. The address of a Read_Weights
    is its first tile in any case. `matrix` and `activate` are there from the third cycle on.
    Regions on the chip, empty where an instruction has no such one:
    `buffer` is what MatrixMultiply, Convolve or a write to host memory reads, an instruction of the
    activation unit writes, or a read from host memory fills (parameters and tables included);
    `source` and `operand` are what the activation unit reads, `parameters` and `table` what it
    uses. `tiles`: weight tiles queued or consumed. `from_buffer`: a MatrixMultiply with weights
    there, its `source`; a WeightCommand says of them what `weight_transfer` does. `code`: that
    of an Interrupt_Host, or the tag of a Debug_Tag, which waits for `units`.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "kind": len(OPCODES),
                "pc": PC_BITS,
                "failed": 1,
                "cause": ceil_log2(len(Fault)),
                "address": 32,
                "buffer": Region(address_bits(config)),
                "accumulator": Region(row_bits(config)),
                "parameters": Region(address_bits(config)),
                "table": Region(address_bits(config)),
                "source": Region(address_bits(config)),
                "operand": Region(address_bits(config)),
                "host": Region(HOST_OFFSET_BITS),
                "transfer": HostTransfer(config=config),
                "tail": Tail(config=config),
                "weight_transfer": WeightTransfer(config=config),
                "tiles": TILE_COUNT_BITS,
                **({"from_buffer": 1} if config.training else {}),
                "matrix": MatrixCommand(config=config),
                "activate": ActivateCommand(config=config),
                "code": 16,
                "units": len(Unit),
            }
        )


def operands_of(word: Value) -> dict[Opcode, data.View]:
    """The fields of `word`, read as each of the instructions."""
    return {
        entry.opcode: data.View(InstructionLayout(entry.opcode), word) for entry in INSTRUCTIONS
    }


def times(value: Value, constant: int) -> Value:
    """A product by shifts and sums, as a multiplier would have no registers."""
    return reduce(
        add, (value << bit for bit in range(constant.bit_length()) if constant >> bit & 1)
    )


class _Token(data.StructLayout):
    """What is in a stage: an instruction (`valid`), or only products that it or the window needs
    later: those of packed channels, the first or the second ones of a window."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("valid", "packing", "window_first", "window_second"), 1))


class _Kept(data.StructLayout):
    """What an instruction takes along from stage to stage."""

    def __init__(self) -> None:
        super().__init__(
            {
                "word": 128,
                "kind": len(OPCODES),
                "pc": PC_BITS,
                "fetch_error": 1,
                "loop_fault": 1,
                "loops": range(LOOP_DEPTH + 1),
            }
        )


class Decoder(wiring.Component):
    """Five stages: the three of the multipliers, lengths, regions. One instruction every two
    cycles, latency LATENCY cycles to `decoded`; `failed` comes one cycle later, `cause` three. A
    Convolve takes four cycles. A Set_Config_Window waits until it is alone, and takes 2 + SETTLING
    cycles: no instruction is offered in the cycle behind one of `hold`.

    Operands of the multipliers have no index registers: they are taken from `coming`, which shows
    an instruction, but for a Loop, in the cycle before it is offered first, a `vacant` one, in
    which `instruction.valid` is down.

    The fourth stage takes nothing in the cycle in which it is left, so that the stages before it do
    not depend on `decoded.ready`; nor do they stop for it while the third one is empty.

    The checks are those of arch/isa.py in their order, but for the two that need the state of the
    weight queue. `idle`: there is no instruction inside. `pc`: number of the instruction behind the
    last one taken.
    """

    LATENCY = 5

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "coming": In(Coming()),
                "vacant": In(1),
                "hold": Out(1),
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
        config = self._config
        window = m.submodules.window = WindowRegisters(config=config)
        unit = m.submodules.products = ProductUnit(config=config)
        self._window, self._products = window, unit.products
        tokens = [Signal(_Token(), name=f"token_{i}") for i in range(1, self.LATENCY)]
        self._kept = [
            Signal(_Kept(), name=f"kept_{i}", reset_less=True) for i in range(1, self.LATENCY + 1)
        ]
        enable = Signal(init=1)  # the first three stages move,
        stops = Signal()  # or do not: the same for those who need it soon,
        fourth = Signal()  # the fourth stage takes what is in the third,
        fifth = Signal()  # and the fifth what is in the fourth
        self._moves = {1: enable, 2: enable, 3: enable, 4: fourth, 5: fifth}
        m.d.comb += [
            fifth.eq(~self.decoded.valid | self.decoded.ready),
            fourth.eq(~tokens[3].valid),
            unit.enable.eq(enable),
            window.multiplied.eq(unit.products),
            window.word.eq(self._kept[0].word),
            window.load.eq(tokens[0].window_second),
            window.first.eq(tokens[2].window_first),
            window.second.eq(tokens[2].window_second),
            self.hold.eq(Cat(token.window_second for token in tokens[: SETTLING - 1]).any()),
        ]
        # They stop while neither the third nor the fourth stage is empty.
        there = [token.valid | token.packing for token in tokens[1:3]]
        moves = ~(Mux(stops, there[1], there[0]) & Mux(fourth, tokens[2].valid, ~fifth))
        m.d.sync += [enable.eq(moves), stops.eq(~moves)]

        # Numbers that are too large anyway need not be told apart.
        bits = place_bits(config)
        self._map_lines = Signal(bits)
        self._pixels = Signal(bits)
        with m.If(window.first):
            for short, product in (
                (self._map_lines, unit.products.lines),
                (self._pixels, unit.products.results),
            ):
                m.d.sync += short.eq(Mux(product[bits:].any(), ~0, product[:bits]))

        # A Convolve is there for four cycles: with the first product the last one is made.
        given = self.instruction.payload
        self._packing_first = Signal()  # channels are packed
        is_window = is_one_of(given.kind, Opcode.SET_CONFIG_WINDOW)
        is_convolve = is_one_of(given.kind, Opcode.CONVOLVE)
        step = Signal(2)
        last = Signal()  # the last step of several,
        not_last = Signal(init=1)  # or not: the same for all bits of the operands
        alone = Signal(init=1)
        begins = Signal()
        taken = Signal()
        m.d.comb += [
            begins.eq(self.instruction.valid & (alone | ~is_window)),
            self.instruction.ready.eq(~stops & (last | ~(is_window | is_convolve))),
            taken.eq(self.instruction.valid & self.instruction.ready),
            self.idle.eq(alone),
        ]
        m.d.sync += alone.eq(~(Cat(token.valid for token in tokens).any() | taken) & fifth)
        with m.If(~stops):
            with m.If(begins & (is_window | is_convolve)):
                becomes_last = ~last & (is_window | (step == 2))
                m.d.sync += [
                    step.eq(Mux(last, 0, step + 1)),
                    last.eq(becomes_last),
                    not_last.eq(~becomes_last),
                ]
            m.d.sync += [
                tokens[0].valid.eq(taken),
                tokens[0].packing.eq(begins & is_convolve & (step == 0) & self._packing_first),
                tokens[0].window_first.eq(begins & is_window & (step == 0)),
                tokens[0].window_second.eq(begins & is_window & (step == 1)),
            ]
            m.d.sync += [later.eq(earlier) for earlier, later in pairwise(tokens[:3])]
        with m.If(enable):
            m.d.sync += [
                self._kept[0].word.eq(given.word),
                self._kept[0].kind.eq(given.kind),
                self._kept[0].pc.eq(given.pc),
                self._kept[0].fetch_error.eq(given.error),
                self._kept[0].loop_fault.eq(given.loop_fault),
                self._kept[0].loops.eq(given.loops),
            ]
            m.d.sync += [later.eq(earlier) for earlier, later in pairwise(self._kept[:3])]
        with m.If(fourth):
            m.d.sync += [tokens[3].eq(tokens[2]), self._kept[3].eq(self._kept[2])]
        with m.Elif(fifth):
            m.d.sync += tokens[3].valid.eq(0)
        with m.If(fifth):
            m.d.sync += [self.decoded.valid.eq(tokens[3].valid), self._kept[4].eq(self._kept[3])]
        with m.If(taken):
            m.d.sync += self.pc.eq(given.pc + 1)

        self._multiply(m, unit, ~not_last)
        self._decode(m, ~stops & tokens[2].packing)
        self._check(m)
        self._show(m)
        return m

    def _stage(self, number: int, name: str, shape: object, value: object) -> Signal:
        """A register of stage `number`, which takes `value` from the stage before."""
        register = Signal(shape, name=f"{name}_{number}", reset_less=True)
        with self._m.If(self._moves[number]):
            self._m.d.sync += register.eq(value)
        return register

    def _multiply(self, m: Module, unit: ProductUnit, last: Value) -> None:
        """What the multipliers take: two pairs of operands, the second one in the last step."""
        word, kind = self.coming.word, self.coming.kind
        fields = operands_of(word)
        read = fields[Opcode.READ_HOST_MEMORY]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        convolve = fields[Opcode.CONVOLVE]
        activate = fields[Opcode.ACTIVATE]
        depthwise = fields[Opcode.DEPTHWISE]
        pool = fields[Opcode.POOL]
        vector = fields[Opcode.VECTOR]
        window = fields[Opcode.SET_CONFIG_WINDOW]
        shape, taps = self._window.fields, self._window.products.taps

        # Of the conditions for one multiplier no two hold.
        first: dict[str, list[tuple[Value, Value, Value]]] = defaultdict(list)
        second: dict[str, list[tuple[Value, Value, Value]]] = defaultdict(list)

        def take(
            chosen: dict[str, list[tuple[Value, Value, Value]]],
            condition: Value,
            **operands: tuple[ValueLike, ValueLike],
        ) -> None:
            for name, (a, b) in operands.items():
                chosen[name].append((condition, Value.cast(a), Value.cast(b)))

        take(
            first,
            is_one_of(kind, *COPIES),
            lines=(read.rows, read.blocks),
            spread=(read.stride, read.rows),
        )
        weights = fields[Opcode.READ_WEIGHTS]
        take(first, is_one_of(kind, Opcode.READ_WEIGHTS), tiles=(weights.count, 1))
        take(
            first,
            is_one_of(kind, Opcode.MATRIX_MULTIPLY),
            lines=(matrix.rows, matrix.k_tiles),
            results=(matrix.rows, matrix.n_tiles),
            tiles=(matrix.k_tiles, matrix.n_tiles),
        )
        # A Convolve takes the products of packed channels first, and the number of tiles last.
        packs = convolve.channels != 0
        convolves = is_one_of(kind, Opcode.CONVOLVE)
        take(
            first,
            convolves,
            lines=(shape.width, convolve.channels),
            results=(shape.kernel_width, convolve.channels),
            spread=(shape.stride_x, convolve.channels),
        )
        take(first, convolves & packs, tiles=(shape.left.as_unsigned(), convolve.channels))
        take(first, convolves & ~packs, tiles=(convolve.k_tiles, convolve.n_tiles))
        take(
            second,
            convolves,
            results=(self._pixels, convolve.n_tiles),
            spread=(convolve.plane, convolve.k_tiles),
            tiles=(convolve.n_tiles, Mux(packs, shape.kernel_height, taps)),
        )
        take(
            first,
            is_one_of(kind, Opcode.ACTIVATE),
            results=(activate.rows, activate.n_tiles),
        )
        take(
            first,
            is_one_of(kind, Opcode.DEPTHWISE),
            lines=(self._map_lines, depthwise.blocks),
            results=(self._pixels, depthwise.blocks),
            tiles=(taps, depthwise.blocks),
        )
        take(
            first,
            is_one_of(kind, Opcode.POOL),
            lines=(self._map_lines, pool.blocks),
            results=(self._pixels, pool.blocks),
        )
        take(
            first,
            is_one_of(kind, Opcode.VECTOR),
            lines=(vector.rows, 1),
            results=(vector.rows, 1),
        )
        if self._config.training:
            measure = fields[Opcode.MEASURE]
            transpose = fields[Opcode.TRANSPOSE]
            randomise = fields[Opcode.RANDOM]
            take(
                first,
                is_one_of(kind, Opcode.MEASURE),
                lines=(measure.rows, 1),
                results=(measure.rows, 1),
            )
            take(
                first,
                is_one_of(kind, Opcode.TRANSPOSE),
                results=(transpose.count, self._config.cols),
                spread=(transpose.step, transpose.count),
            )
            take(first, is_one_of(kind, Opcode.RANDOM), results=(randomise.rows, 1))
        sets = is_one_of(kind, Opcode.SET_CONFIG_WINDOW)
        take(first, sets, **first_operands(window))
        take(second, sets, **second_operands(window))

        def registered(name: str, chosen: dict[str, list[tuple[Value, Value, Value]]]) -> Signal:
            """The operands chosen, once the instruction is offered."""
            operands = Signal.like(unit.operands, name=name, reset_less=True)
            with m.If(self.vacant):
                for product, choices in chosen.items():
                    for place in (0, 1):
                        # What only one kind of instruction takes may be there for all.
                        values = [
                            Mux(choice[0] | (len(choices) == 1), choice[1 + place], 0)
                            for choice in choices
                        ]
                        m.d.sync += operands[product]["ab"[place]].eq(reduce(or_, values))
            return operands

        m.d.comb += unit.operands.eq(
            Mux(last, registered("second", second), registered("first", first))
        )
        # Unless channels are packed, the tiles are counted from the first product on.
        counts = Signal()
        with m.If(self.vacant):
            m.d.sync += [self._packing_first.eq(packs), counts.eq(convolves & ~packs)]
        with m.If(last & counts):
            m.d.comb += unit.operands.tiles.a.eq(unit.products.tiles)

    def _decode(self, m: Module, packing_comes: Value) -> None:
        """The second to the fifth stage."""
        config = self._config
        self._m = m
        stage = self._stage
        products, window = self._products, self._window.products
        shape = self._window.fields
        align = exact_log2(config.host_bus_bytes)

        # Second stage: which instruction it is, and what it says of itself.
        word = self._kept[0].word
        fields = operands_of(word)
        read = fields[Opcode.READ_HOST_MEMORY]
        parameters = fields[Opcode.LOAD_PARAMETERS]
        kinds = [kept.kind for kept in self._kept[1:]]
        marks = self._kept[0].kind
        bad_field = stage(
            2,
            "bad_field",
            len(OPCODES),
            marks & Cat(is_out_of_range(BY_OPCODE[member], fields[member]) for member in OPCODES),
        )
        misfit = stage(
            2,
            "misfit",
            len(OPCODES),
            marks & Cat(misfits(config, member, fields[member]) for member in OPCODES),
        )
        # Bits behind the place where the instruction ends. There are many such places.
        given = self.instruction.payload.kind
        places = reserved_bits(word)
        behind = []
        ended: list[Value] = []  # in the groups before
        for begin in range(0, len(places), GROUP):
            group = places[begin : begin + GROUP]
            ends: list[Value] = []
            for place, (bits, opcodes) in enumerate(group, begin):
                ends.append(stage(1, f"ends_{place}", 1, is_one_of(given, *opcodes)))
                is_behind = stage(2, f"ended_{place}", 1, Cat(*ended, *ends).any())
                behind.append(stage(2, f"set_{place}", 1, bits) & is_behind)
            among = [opcode for _, opcodes in group for opcode in opcodes]
            ended.append(stage(1, f"ended_by_{begin + GROUP}", 1, is_one_of(given, *among)))
        illegal_opcode_2 = stage(2, "illegal_opcode", 1, ~Cat(ended).any())
        # Bytes of a row of a copy, or of all that another read from host memory takes.
        is_write = is_one_of(self._kept[0].kind, *WRITES)
        row_bytes = Signal(24)
        m.d.comb += row_bytes.eq(
            Mux(
                is_write,
                times(read.blocks, config.output_pitch),
                times(read.blocks, config.input_pitch),
            )
        )
        with m.If(is_one_of(self._kept[0].kind, Opcode.LOAD_PARAMETERS)):
            m.d.comb += row_bytes.eq(
                times(parameters.count, PARAMETER_PLANES * config.output_pitch)
            )
        with m.Elif(is_one_of(self._kept[0].kind, Opcode.LOAD_TABLE)):
            m.d.comb += row_bytes.eq(TABLE_BYTES)
        row_bytes_2 = stage(2, "row_bytes", 24, row_bytes)
        one_row_2 = stage(2, "one_row", 1, read.rows == 1)
        one_block_2 = stage(2, "one_block", 1, read.blocks == 1)

        # Third stage: where regions begin. Each address is chosen by the opcode; what is left is 0.
        kept = self._kept[1]
        fields = operands_of(kept.word)
        read = fields[Opcode.READ_HOST_MEMORY]
        first = {
            name: Signal(width, name=f"first_{name}")
            for name, width in (
                ("buffer", ADDRESS_BITS),
                ("source", 20),
                ("operand", 20),
                ("accumulator", 16),
                ("parameter", 12),
                ("entries", 16),
                ("table", 4),
                ("table_used", 1),
                ("walk", 20),
            )
        }
        self._select(m, first, kinds[0], self._bases(kept.word))
        first_3 = {name: stage(3, name, len(value), value) for name, value in first.items()}
        illegal_opcode = [stage(3, "illegal_opcode", 1, illegal_opcode_2)]
        bad_fields = Cat(bad_field, misfit, behind).any()
        illegal_field = [stage(3, "illegal_field", 1, bad_fields)]
        row_bytes_3 = stage(3, "row_bytes", 24, row_bytes_2)
        host_base_3 = stage(3, "host_base", HOST_OFFSET_BITS, read.host + row_bytes_2)
        packs_3 = stage(3, "packs", 1, fields[Opcode.CONVOLVE].channels != 0)
        is_copy_3 = stage(3, "is_copy", 1, is_one_of(kinds[0], *COPIES))
        # All but the last block of channels, less one of them.
        fewer_lines_3 = stage(
            3,
            "fewer_lines",
            signed(ADDRESS_BITS + 1),
            Mux(
                is_one_of(kinds[0], Opcode.CONVOLVE),
                self._map_lines - fields[Opcode.CONVOLVE].plane,
                0,
            ),
        )
        # One contiguous run instead of one for each line, where the lines follow one another; where
        # they do not, a run is a block, or with the alternate copies a row.
        alternate = is_one_of(kinds[0], *ALTERNATE)
        whole = is_one_of(kinds[0], Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE)
        is_double_3 = stage(
            3,
            "is_double",
            1,
            (
                is_one_of(kinds[0], Opcode.MATRIX_MULTIPLY)
                & fields[Opcode.MATRIX_MULTIPLY].wide_vectors
            )
            | (is_one_of(kinds[0], Opcode.ACTIVATE) & fields[Opcode.ACTIVATE].wide)
            | (is_one_of(kinds[0], Opcode.VECTOR) & fields[Opcode.VECTOR].wide),
        )
        # Which product is the length of the buffer's region, if it is not known without.
        uses_3 = {
            name: stage(3, f"uses_{name}", 1, is_one_of(kinds[0], *opcodes))
            for name, opcodes in (
                ("lines", (*COPIES, Opcode.MATRIX_MULTIPLY)),
                ("results", (*SOURCES, *(TILES if config.training else ()))),
            )
        }
        spreads_3 = stage(3, "uses_spread", 1, is_one_of(kinds[0], Opcode.CONVOLVE))
        loaded = fields[Opcode.LOAD_PARAMETERS].count
        few_lines_3 = stage(
            3,
            "few_lines",
            len(loaded),
            Mux(is_one_of(kinds[0], Opcode.LOAD_PARAMETERS), loaded, 0)
            | is_one_of(kinds[0], Opcode.LOAD_TABLE),
        )
        is_run_3 = stage(3, "is_run", 1, whole | one_row_2)
        half = len(row_bytes_2) // 2
        is_dense_3 = [
            stage(3, f"is_dense_{number}", 1, read.stride[part] == row_bytes_2[part])
            for number, part in enumerate((slice(half), slice(half, None)))
        ]
        is_even_3 = stage(3, "is_even", 1, alternate | one_block_2)
        linear_3 = is_run_3 | (is_even_3 & Cat(is_dense_3).all())

        # Fourth stage: lengths, from the products.
        kept = self._kept[2]
        fields = operands_of(kept.word)
        read = fields[Opcode.READ_HOST_MEMORY]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        convolve = fields[Opcode.CONVOLVE]
        vector = fields[Opcode.VECTOR]
        lengths: dict[str, Value] = {
            "source_length": Signal(LENGTH_BITS),
            "operand_length": Signal(LENGTH_BITS),
            "rows": Signal(len(products.results)),
            "tiles": Signal(TILE_COUNT_BITS),
        }
        lines = products.lines << vector.wide_operands
        self._select(
            m,
            lengths,
            kinds[1],
            [
                ((Opcode.READ_WEIGHTS,), {"tiles": products.tiles}),
                (
                    (Opcode.MATRIX_MULTIPLY,),
                    {
                        "rows": products.results,
                        "tiles": products.tiles << matrix.wide_weights,
                    },
                ),
                (
                    (Opcode.CONVOLVE,),
                    {
                        "rows": products.results,
                        "tiles": products.tiles,
                    },
                ),
                (
                    (Opcode.ACTIVATE,),
                    {"rows": products.results},
                ),
                (
                    (Opcode.DEPTHWISE,),
                    {
                        "source_length": products.lines,
                        "operand_length": products.tiles,
                    },
                ),
                (
                    (Opcode.POOL,),
                    {"source_length": products.lines},
                ),
                (
                    (Opcode.VECTOR,),
                    {
                        "source_length": lines,
                        "operand_length": Mux(vector.operation != Operation.COPY, lines, 0),
                    },
                ),
                *(self._training_lengths(fields) if config.training else ()),
            ],
        )
        is_write = is_one_of(kinds[1], *WRITES)
        line_beats = Mux(
            is_write,
            config.output_pitch // config.host_bus_bytes,
            config.input_pitch // config.host_bus_bytes,
        )
        is_alternate = is_one_of(kinds[1], *ALTERNATE)
        run_lines = Mux(linear_3, products.lines, Mux(is_alternate, read.blocks, 1))
        run_beats = Mux(
            is_one_of(kinds[1], Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE),
            row_bytes_3 >> align,
            run_lines * line_beats,
        )
        illegal_opcode.append(stage(4, "illegal_opcode", 1, illegal_opcode[-1]))
        illegal_field.append(stage(4, "illegal_field", 1, illegal_field[-1]))
        first_4 = {name: stage(4, name, len(value), value) for name, value in first_3.items()}
        # Where the base of an operand and that of the results differ, in parts; if they do not, and
        # are alike, the operand lies in exactly the lines of the results.
        part = 6
        differs_4 = {}
        for name in ("source", "operand"):
            differing = first_3[name] ^ first_3["buffer"]
            parts = [differing[at : at + part].any() for at in range(0, len(differing), part)]
            differs_4[name] = stage(4, f"differs_{name}", len(parts), Cat(parts))
        length = Signal(LENGTH_BITS - 1)
        m.d.comb += length.eq(
            reduce(or_, (Mux(uses_3[name], products[name], 0) for name in uses_3), few_lines_3)
        )
        # The spread comes out of an adder.
        lengths["length"] = length << is_double_3 | Mux(spreads_3, products.spread, 0)
        lengths_4 = {name: stage(4, name, len(value), value) for name, value in lengths.items()}
        # The last row or block of channels begins one distance before the product of all.
        end_base_4 = stage(
            4, "end_base", signed(ADDRESS_BITS + 2), first_3["buffer"] + fewer_lines_3
        )
        # So does the last tile, and there is one.
        source_base_4 = first_4["source"]
        if config.training:
            step = fields[Opcode.TRANSPOSE].step
            source_base_4 = stage(
                4,
                "source_base",
                signed(ADDRESS_BITS + 2),
                first_3["source"]
                + Mux(is_one_of(kinds[1], Opcode.TRANSPOSE), config.cols - step, 0),
            )
        host_base_4 = stage(
            4,
            "host_base",
            signed(HOST_OFFSET_BITS + 1),
            host_base_3 - Mux(is_copy_3, read.stride, 0),
        )
        spread_4 = stage(4, "spread", len(products.spread), Mux(is_copy_3, products.spread, 0))
        before_tail_4 = stage(4, "before_tail", ADDRESS_BITS, products.lines - read.rows)
        run_beats_4 = stage(4, "run_beats", host_beat_bits(config), run_beats)
        linear_4 = stage(4, "linear", 1, linear_3)
        packing_4 = Signal(Packing(), reset_less=True)
        before = packing_4.start < 0  # the first vector begins in the line before the row
        packed = is_one_of(kinds[1], Opcode.CONVOLVE) & packs_3
        # Packed channels: the line behind the first one.
        origin_4 = stage(
            4,
            "origin",
            signed(len(window.origin) + 1),
            Mux(packed, window.row_origin, window.origin) + (packed & ~before),
        )
        packs_4 = stage(4, "packs", 1, packs_3)
        excess = Signal(8)
        with m.If(shape.left < 0):
            m.d.comb += excess.eq(convolve.channels)
        with m.If(packing_comes):
            m.d.sync += [
                packing_4.row_bytes.eq(products.lines),
                packing_4.kernel_bytes.eq(products.results),
                # `left` was taken as a number without sign.
                packing_4.start.eq(products.tiles[:18] - (excess << len(shape.left))),
                packing_4.step.eq(products.spread),
            ]

        # Fifth stage: regions.
        kept = self._kept[3]
        fields = operands_of(kept.word)
        weights = fields[Opcode.READ_WEIGHTS]
        self._kind = kinds[3]
        self._illegal_opcode = stage(5, "illegal_opcode", 1, illegal_opcode[-1])
        self._illegal_field = stage(5, "illegal_field", 1, illegal_field[-1])
        self._first = {name: stage(5, name, len(value), value) for name, value in first_4.items()}

        def end(name: str, base: Value, size: Value) -> Signal:
            return stage(5, f"{name}_end", max(len(base), len(size)) + 1, base + size)

        def extent(name: str, base: Value, size: Value, bits: int) -> tuple[Signal, Signal]:
            """The end, and whether it is beyond all that can be told by so many bits."""
            far = stage(5, f"{name}_far", 1, size[bits:].any())
            return stage(5, f"{name}_end", bits + 1, base + size[:bits]), far

        self._buffer_end, self._buffer_far = extent(
            "buffer", end_base_4, lengths_4["length"], ADDRESS_BITS
        )
        self._source_end, self._source_far = extent(
            "source", source_base_4, lengths_4["source_length"], ADDRESS_BITS
        )
        self._operand_end, self._operand_far = extent(
            "operand", first_4["operand"], lengths_4["operand_length"], ADDRESS_BITS
        )
        self._host_end, self._host_far = extent("host", host_base_4, spread_4, HOST_OFFSET_BITS + 1)
        self._accumulator_end, self._accumulator_far = extent(
            "accumulator", first_4["accumulator"], lengths_4["rows"], ACCUMULATOR_BITS
        )
        self._parameter_end = end("parameter", first_4["parameter"], first_4["entries"])
        self._table_end = end("table", first_4["table"], first_4["table_used"])
        self._tile_end = end("tile", weights.tile, weights.count)
        vector = fields[Opcode.VECTOR]
        alike = is_one_of(kinds[2], Opcode.VECTOR) & (vector.wide == vector.wide_operands)
        self._exact_source, self._exact_operand = (
            stage(5, f"exact_{name}", 1, alike & ~differs.any())
            for name, differs in differs_4.items()
        )
        pitch_bytes = Signal(12 + 9)
        m.d.sync += pitch_bytes.eq(times(shape.pitch, config.rows))
        convolve = fields[Opcode.CONVOLVE]
        self._packs = stage(5, "packs", 1, packs_4)
        unfit = unpackable(config, packing_4, convolve, shape)
        self._unpackable = stage(5, "unpackable", len(unfit), unfit)
        self._too_long = stage(5, "too_long", 1, pitch_bytes - packing_4.row_bytes < 0)
        self._tiles = stage(5, "tiles", TILE_COUNT_BITS, lengths_4["tiles"])
        self._run_beats = stage(5, "run_beats", host_beat_bits(config), run_beats_4)
        self._linear = stage(5, "linear", 1, linear_4)
        self._tail_line = stage(5, "tail_line", ADDRESS_BITS, first_4["buffer"] + before_tail_4)
        self._weight_address = stage(
            5, "weight_address", config.address_bits, times(weights.tile, config.tile_bytes)
        )
        self._over_map = stage(5, "over_map", 1, is_one_of(kinds[2], Opcode.DEPTHWISE, Opcode.POOL))
        self._packing = Signal(Packing(), reset_less=True)
        with m.If(self._moves[5]):
            m.d.sync += self._packing.eq(packing_4)
        self._first_line = stage(5, "first_line", ADDRESS_BITS, first_4["walk"] + origin_4)
        self._first_byte = stage(5, "first_byte", 9, packing_4.start + Mux(before, config.rows, 0))

    def _select(
        self,
        m: Module,
        targets: Mapping[str, Value],
        kind: Value,
        choices: list[tuple[tuple[Opcode, ...], dict[str, ValueLike]]],
    ) -> None:
        """Drives each target with what is chosen for this kind of instruction, else with 0."""
        for name, target in targets.items():
            terms = [
                Mux(is_one_of(kind, *opcodes), values[name], 0)
                for opcodes, values in choices
                if name in values
            ]
            m.d.comb += target.eq(reduce(or_, terms))

    def _bases(self, word: Value) -> list[tuple[tuple[Opcode, ...], dict[str, ValueLike]]]:
        """Where the regions of an instruction begin."""
        fields = operands_of(word)
        parameters = fields[Opcode.LOAD_PARAMETERS]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        convolve = fields[Opcode.CONVOLVE]
        activate = fields[Opcode.ACTIVATE]
        depthwise = fields[Opcode.DEPTHWISE]
        pool = fields[Opcode.POOL]
        vector = fields[Opcode.VECTOR]
        table = fields[Opcode.LOAD_TABLE].table
        return [
            (COPIES, {"buffer": fields[Opcode.READ_HOST_MEMORY].buffer}),
            (
                (Opcode.LOAD_PARAMETERS,),
                {
                    "buffer": parameters.parameter | parameter_space(self._config),
                    "parameter": parameters.parameter,
                    "entries": parameters.count,
                },
            ),
            (
                (Opcode.LOAD_TABLE,),
                {"buffer": table | table_space(self._config), "table": table, "table_used": 1},
            ),
            (
                (Opcode.MATRIX_MULTIPLY,),
                {"buffer": matrix.buffer, "accumulator": matrix.accumulator},
            ),
            (
                (Opcode.CONVOLVE,),
                {
                    "buffer": convolve.buffer,
                    "accumulator": convolve.accumulator,
                    "walk": convolve.buffer,
                },
            ),
            (
                (Opcode.ACTIVATE,),
                {
                    "buffer": activate.buffer,
                    "accumulator": activate.accumulator,
                    "parameter": activate.parameter,
                    "entries": activate.n_tiles,
                    "table": activate.table,
                    "table_used": activate.function == Function.TABLE,
                },
            ),
            (
                (Opcode.DEPTHWISE,),
                {
                    "buffer": depthwise.destination,
                    "source": depthwise.buffer,
                    "operand": depthwise.taps,
                    "parameter": depthwise.parameter,
                    "entries": depthwise.blocks,
                    "walk": depthwise.buffer,
                },
            ),
            (
                (Opcode.POOL,),
                {
                    "buffer": pool.destination,
                    "source": pool.buffer,
                    "parameter": pool.parameter,
                    "entries": Mux(
                        pool.reduction == Reduction.AVERAGE, self._window.products.taps, 1
                    ),
                    "walk": pool.buffer,
                },
            ),
            (
                (Opcode.VECTOR,),
                {
                    "buffer": vector.destination,
                    "source": vector.buffer,
                    "operand": Mux(vector.operation == Operation.COPY, 0, vector.operand),
                    "parameter": vector.parameter,
                    "entries": 1,
                    "table": vector.table,
                    "table_used": vector.function == Function.TABLE,
                },
            ),
            *(self._training_bases(fields) if self._config.training else ()),
        ]

    def _training_bases(
        self, fields: Mapping[Opcode, data.View]
    ) -> list[tuple[tuple[Opcode, ...], dict[str, ValueLike]]]:
        """Where the regions of training begin."""
        matrix, measure = fields[Opcode.MATRIX_MULTIPLY], fields[Opcode.MEASURE]
        transpose, randomise = fields[Opcode.TRANSPOSE], fields[Opcode.RANDOM]
        return [
            ((Opcode.MATRIX_MULTIPLY,), {"source": Mux(matrix.from_buffer, matrix.weights, 0)}),
            (
                (Opcode.MEASURE,),
                {
                    "source": Mux(measure.source == Source.LINES, measure.buffer, 0),
                    "accumulator": Mux(
                        measure.source == Source.ACCUMULATORS, measure.accumulator, 0
                    ),
                },
            ),
            (
                (Opcode.TRANSPOSE,),
                {"buffer": transpose.destination, "source": transpose.buffer},
            ),
            ((Opcode.RANDOM,), {"buffer": randomise.destination}),
        ]

    def _training_lengths(
        self, fields: Mapping[Opcode, data.View]
    ) -> list[tuple[tuple[Opcode, ...], dict[str, ValueLike]]]:
        """The lengths of these regions, but for those of results."""
        matrix, measure = fields[Opcode.MATRIX_MULTIPLY], fields[Opcode.MEASURE]
        products = self._products
        lines = times(products.tiles << matrix.wide_weights, self._config.rows)
        return [
            ((Opcode.MATRIX_MULTIPLY,), {"source_length": Mux(matrix.from_buffer, lines, 0)}),
            (
                (Opcode.MEASURE,),
                {
                    "source_length": Mux(measure.source == Source.LINES, products.lines << 1, 0),
                    "rows": Mux(measure.source == Source.ACCUMULATORS, products.results, 0),
                },
            ),
            ((Opcode.TRANSPOSE,), {"source_length": products.spread}),
        ]

    def _check(self, m: Module) -> None:
        """The checks of the instruction in the last stage, then the first that does not hold."""
        config = self._config
        kept = self._kept[-1]
        fields = operands_of(kept.word)
        opcode = kept.word[:OPCODE_BITS]
        matrix = fields[Opcode.MATRIX_MULTIPLY]
        activate = fields[Opcode.ACTIVATE]
        vector = fields[Opcode.VECTOR]
        window, shape = self._window, self._window.fields
        buffer, buffer_end = self._first["buffer"], self._buffer_end
        source, operand = self._first["source"], self._first["operand"]

        def is_a(*opcodes: Opcode) -> Value:
            return is_one_of(self._kind, *opcodes)

        # Without tables, UNAVAILABLE comes first.
        no_table = self._first["table"] >= config.tables if config.tables else Const(0)
        unavailable = (
            (is_a(Opcode.ACTIVATE) & self._lacks(activate, activate.wide))
            | (is_a(Opcode.VECTOR) & self._lacks(vector, vector.wide | vector.wide_operands))
            | (is_a(Opcode.LOAD_TABLE) & int(not config.tables))
            | (is_a(Opcode.DEPTHWISE) & int(not config.depthwise))
        )
        if not config.wide:
            wide = matrix.wide_vectors | matrix.wide_weights
            unavailable |= is_a(Opcode.MATRIX_MULTIPLY) & wide
        if not config.training:
            unavailable |= is_a(Opcode.MEASURE, *TILES)
            unavailable |= is_a(Opcode.MATRIX_MULTIPLY) & matrix.from_buffer
        # The window is the same for long.
        too_wide = Signal()
        too_many_taps = Signal()
        m.d.sync += [
            too_wide.eq(shape.width > shape.pitch),
            too_many_taps.eq(window.products.taps > DEPTHWISE_TAPS),
        ]
        no_window = (
            (
                is_a(Opcode.CONVOLVE)
                & Mux(self._packs, self._unpackable.any() | self._too_long, too_wide)
            )
            | (is_a(Opcode.DEPTHWISE) & (too_wide | too_many_taps))
            | (is_a(Opcode.POOL) & too_wide)
        )

        def exceeds(number: Value, limit: Value) -> Value:
            """A subtraction, as a comparison would take more levels."""
            return limit - number < 0

        def spoiled(base: Signal, end: Signal, exact: Signal) -> Value:
            """Whether results overwrite an operand, other than exactly by Vector. All of them are
            inside the buffer."""
            return (
                exceeds(buffer_end[:ADDRESS_BITS], base)
                & exceeds(end[:ADDRESS_BITS], buffer)
                & ~exact
            )

        conditions = {
            Fault.LOOP: kept.loop_fault,
            Fault.UNAVAILABLE: unavailable,
            Fault.WINDOW: ~window.valid | no_window,
            Fault.ACCUMULATOR_RANGE: self._accumulator_far
            | (self._accumulator_end > config.accumulator_rows),
            Fault.PARAMETER_RANGE: self._parameter_end > config.parameter_entries,
            Fault.TABLE_RANGE: self._first["table_used"] & no_table,
            Fault.HOST_WINDOW: self._host_far | exceeds(self._host_end, self.host_limit),
            Fault.WEIGHT_WINDOW: exceeds(self._tile_end, self.weight_tiles),
        }
        beyond = [Signal(name=f"{name}_beyond") for name in ("source", "operand", "buffer")]
        ends = (
            (self._source_end, self._source_far),
            (self._operand_end, self._operand_far),
            (buffer_end, self._buffer_far),
        )
        in_buffer = self._applies(Fault.BUFFER_RANGE)
        m.d.sync += [
            flag.eq(in_buffer & (far | (end > config.buffer_lines)))
            for flag, (end, far) in zip(beyond, ends, strict=True)
        ]
        spoils = [Signal(name=f"{name}_spoiled") for name in ("source", "operand")]
        may_spoil = self._applies(Fault.OVERLAP)
        operands = (
            (source, self._source_end, self._exact_source),
            (operand, self._operand_end, self._exact_operand),
        )
        m.d.sync += [
            flag.eq(may_spoil & spoiled(*region))
            for flag, region in zip(spoils, operands, strict=True)
        ]
        broken = {fault: Signal(name=f"broken_{fault.name.lower()}") for fault in conditions}
        m.d.sync += [
            broken[fault].eq(self._applies(fault) & condition)
            for fault, condition in conditions.items()
        ]
        broken[Fault.BUFFER_RANGE] = Cat(beyond).any()
        broken[Fault.OVERLAP] = Cat(spoils).any()
        unusable = kept.fetch_error | self._illegal_opcode | self._illegal_field
        m.d.comb += self.decoded.payload.failed.eq(unusable | Cat(broken.values()).any())

        # The vectors of a MatrixMultiply come before its weights.
        vectors_first = beyond[2] & is_a(Opcode.MATRIX_MULTIPLY) if config.training else Const(0)

        # First which it is, a cycle later its number and address.
        culprits = {
            Fault.ILLEGAL_OPCODE: opcode,
            Fault.LOOP: kept.loops,
            Fault.UNAVAILABLE: opcode,
            Fault.BUFFER_RANGE: Mux(
                beyond[0] & ~vectors_first, source, Mux(beyond[1], operand, buffer)
            ),
            Fault.OVERLAP: buffer,
            Fault.ACCUMULATOR_RANGE: self._first["accumulator"],
            Fault.PARAMETER_RANGE: self._first["parameter"],
            Fault.TABLE_RANGE: self._first["table"],
            Fault.HOST_WINDOW: fields[Opcode.READ_HOST_MEMORY].host,
            Fault.WEIGHT_WINDOW: fields[Opcode.READ_WEIGHTS].tile,
        }
        held: dict[Fault, Value] = {
            Fault.FETCH_ERROR: kept.fetch_error,
            Fault.ILLEGAL_OPCODE: self._illegal_opcode,
            Fault.ILLEGAL_FIELD: self._illegal_field,
            **broken,
        }
        # One of these at most, and the last one if no check fails.
        reasons = {fault: Signal(name=f"reason_{fault.name.lower()}") for fault in held}
        fine = Signal()
        m.d.sync += [
            reason.eq(held[fault] & ~Cat(self._earlier(fault, held)).any())
            for fault, reason in reasons.items()
        ]
        m.d.sync += fine.eq(~self.decoded.payload.failed)
        cause: Value = Const(0, ceil_log2(len(Fault)))
        weights = fields[Opcode.READ_WEIGHTS].tile
        if config.training:
            weights = Mux(is_a(Opcode.MATRIX_MULTIPLY), source, weights)
        address: Value = Mux(fine, weights, Const(0, 32))
        for fault, reason in reasons.items():
            cause |= Mux(reason, fault, 0)
            address |= Mux(reason, culprits.get(fault, 0), 0)
        m.d.sync += [
            self.decoded.payload.cause.eq(cause),
            self.decoded.payload.address.eq(address),
        ]

    def _earlier(self, fault: Fault, held: Mapping[Fault, Value]) -> list[Value]:
        """Whether checks do not hold that come before the one of `fault`."""
        general = (*GENERAL, fault)[: (*GENERAL, fault).index(fault)]
        earlier = [held[other] for other in general]
        for other, holds in held.items():
            both = [entry for entry in INSTRUCTIONS if {fault, other} <= set(entry.checks)]
            before = [e.opcode for e in both if e.checks.index(other) < e.checks.index(fault)]
            if before:
                # Where all agree it need not be asked which instruction it is.
                agreed = len(before) == len(both)
                earlier.append(holds if agreed else holds & is_one_of(self._kind, *before))
        return earlier

    def _applies(self, fault: Fault) -> Value:
        """Whether the instruction in the last stage has this check."""
        opcodes = [entry.opcode for entry in INSTRUCTIONS if fault in entry.checks]
        found = is_one_of(self._kept[3].kind, *opcodes)
        return self._stage(5, f"checks_{fault.name.lower()}", 1, found)

    def _show(self, m: Module) -> None:
        """The output, from the registers of the last stage."""
        config = self._config
        kept = self._kept[-1]
        word = kept.word
        fields = operands_of(word)
        read = fields[Opcode.READ_HOST_MEMORY]
        weights = fields[Opcode.READ_WEIGHTS]
        out, first = self.decoded.payload, self._first
        alternate = is_one_of(self._kind, *ALTERNATE)

        scale = Signal(InstructionLayout(Opcode.SET_CONFIG_SCALE))
        leaves = self.decoded.valid & self.decoded.ready
        with m.If(leaves & is_one_of(self._kind, Opcode.SET_CONFIG_SCALE)):
            m.d.sync += scale.eq(word)

        m.submodules.matrix = matrix_decoder = MatrixDecoder(config=config)
        m.submodules.activate = activate_decoder = ActivateDecoder(config=config)
        for unit in (matrix_decoder, activate_decoder):
            m.d.comb += [
                unit.word.eq(word),
                unit.shape.eq(self._window.fields),
                unit.products.eq(self._window.products),
                unit.first_line.eq(self._first_line),
            ]
        m.d.comb += activate_decoder.over_map.eq(self._over_map)
        m.d.comb += [
            matrix_decoder.multiplies.eq(is_one_of(self._kind, Opcode.MATRIX_MULTIPLY)),
            matrix_decoder.packing.eq(self._packing),
            matrix_decoder.first_byte.eq(self._first_byte),
            activate_decoder.kinds.eq(
                Cat(is_one_of(self._kind, member) for member in activate_decoder.opcodes)
            ),
            activate_decoder.scale.eq(scale),
        ]

        def region(target: data.View, base: object, end: object) -> list[object]:
            return [target.base.eq(base), target.end.eq(end)]

        # Parameters and tables begin at addresses that leave the lower bits free.
        entries, tables = parameter_space(config), table_space(config)
        in_parameters = first["parameter"] | entries, self._parameter_end | entries
        in_tables = first["table"] | tables, self._table_end | tables
        weight_address = self._weight_address
        weight_beats = weights.count * (config.tile_bytes // config.weight_bus_bytes)
        consumed = self._tiles
        if config.training:
            multiplies = is_one_of(self._kind, Opcode.MATRIX_MULTIPLY)
            from_buffer = fields[Opcode.MATRIX_MULTIPLY].from_buffer
            line = line_bits(config)
            weight_address = Cat(
                Mux(multiplies, first["source"][:line], weight_address[:line]),
                weight_address[line:],
            )
            weight_beats = Mux(
                multiplies, self._tiles[: len(out.weight_transfer.beats)], weight_beats
            )
            consumed = Mux(multiplies & from_buffer, 0, consumed)
            m.d.comb += out.from_buffer.eq(from_buffer)
        m.d.comb += [
            out.kind.eq(self._kind),
            out.pc.eq(kept.pc),
            *region(out.buffer, first["buffer"], self._buffer_end),
            *region(out.source, first["source"], self._source_end),
            *region(out.operand, first["operand"], self._operand_end),
            *region(out.accumulator, first["accumulator"], self._accumulator_end),
            *region(out.parameters, *in_parameters),
            *region(out.table, *in_tables),
            *region(out.host, read.host, self._host_end),
            out.transfer.address.eq(read.host),
            out.transfer.beats.eq(self._run_beats),
            out.transfer.rows.eq(Mux(self._linear, 1, read.rows)),
            out.transfer.stride.eq(read.stride),
            out.transfer.blocks.eq(Mux(self._linear | alternate, 1, read.blocks)),
            out.tail.line.eq(self._tail_line),
            out.tail.every.eq(Mux(alternate, read.blocks, 0)),
            out.tail.bytes.eq(read.tail),
            out.weight_transfer.address.eq(weight_address),
            out.weight_transfer.beats.eq(weight_beats),
            out.tiles.eq(consumed),
            out.code.eq(fields[Opcode.INTERRUPT_HOST].code),
            out.units.eq(fields[Opcode.DEBUG_TAG].wait),
        ]
        for command, made in (
            (out.matrix, matrix_decoder.command),
            (out.activate, activate_decoder.command),
        ):
            register = Signal.like(made, reset_less=True)
            m.d.sync += register.eq(made)
            m.d.comb += command.eq(register)

    def _lacks(self, fields: data.View, wide: Value) -> Value:
        """Whether an Activate or Vector needs hardware that is not there."""
        lacks: Value = Const(0)
        if not self._config.wide:
            lacks |= wide
        if not self._config.tables:
            lacks |= fields.function == Function.TABLE
        if not self._config.training:
            lacks |= (fields.function == Function.EXP) | (fields.exponent != 0)
        return lacks
