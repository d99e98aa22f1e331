# SPDX-License-Identifier: Apache-2.0
"""Units that form the commands of the matrix and activation units from words in their memories.

A field that an instruction does not use is undefined.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    OPCODE_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
)
from systola.arch.isa import Source as Measured
from systola.hdl.commands import (
    OTHER,
    ActivateCommand,
    InstructionLayout,
    MatrixCommand,
    Other,
    Source,
)
from systola.hdl.control.activate_decoder import MAPS
from systola.hdl.control.checks import gathers, partitions, relative
from systola.hdl.control.command_words import MOVES, command_layout
from systola.hdl.parts.ored import ored

_WINDOW = BY_OPCODE[Opcode.SET_CONFIG_WINDOW]


class MatrixAssembly(wiring.Component):
    """A unit that forms the command of the matrix unit, combinationally.

    | port      | meaning |
    |---|---|
    | `words`   | the words of the command, as its memory shows them |
    | `command` | the command |
    """

    def __init__(self, *, config: Config):
        words = command_layout(config, "matrix")
        super().__init__({"words": In(words), "command": Out(MatrixCommand(config=config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words, command, walk = self.words, self.command, self.command.walk
        multiply = flags_of(words, Opcode.MATRIX_MULTIPLY)
        multiplies = is_of(words, Opcode.MATRIX_MULTIPLY)
        packed = ~multiplies & words.channels.any()
        moves = _moves(words)
        m.d.comb += [
            *_rows(walk, words, moves),
            walk.start.x.eq(Mux(packed, words.start_byte.as_signed(), words.left.as_signed())),
            walk.start.line.eq(words.start_line),
            walk.step.ox.line.eq(Mux(packed, 0, moves["stride_x"])),
            walk.step.ox.x.eq(Mux(packed, words.byte_step, moves["stride_x"])),
            # The tiles along K follow one another in the buffer. Each has one line for each vector.
            walk.step.kx.line.eq(
                Mux(multiplies, words.matrix_rows << multiply.wide_vectors, moves["dilation_x"])
            ),
            walk.step.kx.x.eq(moves["dilation_x"]),
            walk.step.block.line.eq(Mux(multiplies, 0, words.plane)),
            *_count(walk, "ox", words, "out_width"),
            *_count(walk, "ky", words, "kernel_height"),
            *_count(walk, "n", words, "n_tiles"),
            command.accumulator.eq(words.accumulator),
            command.accumulate.eq(
                Mux(multiplies, multiply.accumulate, flags_of(words, Opcode.CONVOLVE).accumulate)
            ),
            command.wide_vectors.eq(multiplies & multiply.wide_vectors),
            command.wide_weights.eq(multiplies & multiply.wide_weights),
            command.sequential.eq(multiplies),
            command.bounded.eq(~multiplies),
            command.height.eq(words.height),
            command.width.eq(Mux(packed, words.row_bytes, words.width)),
            command.fill.eq(words.fill),
            command.packed.eq(packed),
            command.byte.eq(words.byte),
            command.byte_step.eq(words.byte_step),
        ]
        with m.If(multiplies):
            m.d.comb += [
                *_count(walk, "oy", words, "matrix_rows"),
                *_few(walk, "block", second=multiply.wide_weights),
                *_count(walk, "kx", words, "k_tiles"),
            ]
        with m.Else():
            m.d.comb += [
                *_count(walk, "oy", words, "out_height"),
                *_count(walk, "block", words, "k_tiles"),
                *_count(walk, "kx", words, "kernel_width"),
            ]
        with m.If(packed):
            m.d.comb += _few(walk, "kx")
        return m


class ActivateAssembly(wiring.Component):
    """A unit that forms the command of the activation unit, combinationally.

    | port      | meaning |
    |---|---|
    | `words`   | the words of the command, as its memory shows them |
    | `command` | the command |
    """

    def __init__(self, *, config: Config):
        self._config = config
        words = command_layout(config, "activate")
        super().__init__({"words": In(words), "command": Out(ActivateCommand(config=config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words, command, walk = self.words, self.command, self.command.walk
        moves = _moves(words)
        vector, second_line = self._fill(m)
        over_map = is_of(words, *MAPS)
        zeros = words.zero_point
        m.d.comb += [
            *_rows(walk, words, moves),
            walk.start.x.eq(words.left.as_signed()),
            walk.start.line.eq(words.start_line | second_line),
            walk.step.ox.line.eq(moves["stride_x"]),
            walk.step.ox.x.eq(moves["stride_x"]),
            walk.step.kx.line.eq(moves["dilation_x"]),
            walk.step.kx.x.eq(moves["dilation_x"]),
            walk.step.block.line.eq(words.map_lines),
            *_count(walk, "kx", words, "kernel_width"),
            *_count(walk, "ky", words, "kernel_height"),
            *_count(walk, "oy", words, "out_height"),
            command.accumulator.eq(words.accumulator),
            command.height.eq(words.height),
            command.width.eq(words.width),
            command.operand.eq(words.operand | second_line),
            command.fill.eq(zeros[8:]),
            command.zero_point.eq(zeros[:8]),
            command.destination.eq(words.destination),
            command.parameter.eq(words.parameter),
            command.low.eq(words.low),
            command.high.eq(words.high),
            Cat(command.scale.multiplier_a, command.scale.shift_a).eq(words.scale_a),
            Cat(command.scale.multiplier_b, command.scale.shift_b).eq(words.scale_b),
            Cat(command.scale.zero_a, command.scale.zero_b).eq(words.zeros),
        ]
        with m.If(second_line):
            m.d.comb += _few(walk, "kx")
        with m.If(over_map):
            m.d.comb += _count(walk, "ox", words, "out_width")
        with m.Else():
            m.d.comb += _count(walk, "ox", words, "vector_rows")
        one_block = [Opcode.VECTOR, Opcode.MEASURE, Opcode.RANDOM]
        with m.If(is_of(words, *one_block)):
            m.d.comb += _few(walk, "block")
        with m.Else():
            m.d.comb += _count(walk, "block", words, "n_tiles")
        if self._config.attention:
            is_vector = is_of(words, Opcode.VECTOR)
            adds_up = Signal()
            m.d.comb += [
                adds_up.eq(is_vector & partitions(vector)),
                command.gathers.eq(is_vector & gathers(vector)),
                command.relative.eq(is_vector & relative(vector)),
                command.partition.eq(adds_up),
            ]
            with m.If(adds_up):
                m.d.comb += [*_count(walk, "kx", words, "vector_rows"), *_few(walk, "ox")]
        if self._config.training:
            self._train(m)
        return m

    def _fill(self, m: Module) -> tuple[data.View, Value]:
        """Set the fields of the command that depend on flags.

        Returns the flags of a Vector, and whether its reads begin with the second line of a pair.
        """
        config, words, command = self._config, self.words, self.command
        entries = self._entries()
        for name in sorted({name for entry in entries.values() for name in entry}):
            m.d.comb += Value.cast(command[name]).eq(
                ored(
                    Mux(is_of(words, opcode), entry[name], 0)
                    for opcode, entry in entries.items()
                    if name in entry
                )
            )
        vector, activate = (flags_of(words, each) for each in (Opcode.VECTOR, Opcode.ACTIVATE))
        if not config.reads_pairs:
            return vector, Value.cast(0)
        # Lines are read in pairs if all operands begin at an even line. Both lines of such a pair
        # lie at the same address of two neighbouring banks.
        second = words.operand[0] & (vector.operation != Operation.COPY)
        odd = vector.wide_operands & (words.start_line[0] | second)
        result = words.destination[0]
        is_vector = is_of(words, Opcode.VECTOR)
        pairs = is_vector & ~odd & ~(vector.accumulate & result)
        m.d.comb += command.paired.eq(
            pairs | (is_of(words, Opcode.ACTIVATE) & ~(activate.accumulate & result))
        )
        return vector, pairs & vector.wide_operands

    def _entries(self) -> dict[Opcode, dict[str, ValueLike]]:
        """Return the command's fields that depend on flags, by opcode; fields not listed are 0."""
        config, words = self._config, self.words
        activate, depthwise, pool, vector, measure = (
            flags_of(words, each)
            for each in (
                Opcode.ACTIVATE,
                Opcode.DEPTHWISE,
                Opcode.POOL,
                Opcode.VECTOR,
                Opcode.MEASURE,
            )
        )

        def copied(fields: data.View, *names: str) -> dict[str, ValueLike]:
            return {name: fields[name] for name in names}

        shared = ("function", "rounding", "wide", "accumulate")
        entries: dict[Opcode, dict[str, ValueLike]] = {
            Opcode.ACTIVATE: {
                **copied(activate, *shared),
                "source": Source.ACCUMULATORS,
                "table": words.table,
                "by_block": 1,
            },
            Opcode.DEPTHWISE: {
                **copied(depthwise, "function", "rounding"),
                "source": Source.DEPTHWISE,
                "taps": words.taps,
                "by_block": 1,
            },
            Opcode.POOL: {
                "rounding": pool.rounding,
                "source": Source.POOL,
                "maximum": pool.reduction == Reduction.MAX,
                "by_taps": pool.reduction == Reduction.AVERAGE,
                "function": Function.RELU6,
            },
            Opcode.VECTOR: {
                **copied(vector, *shared, "operation", "wide_operands"),
                "source": Source.VECTOR,
                "table": words.table,
            },
        }
        if config.attention:
            entries[Opcode.VECTOR] |= {
                "function": Mux(gathers(vector), Function.NONE, vector.function),
                "operation": Mux(relative(vector), Operation.COPY, vector.operation),
                "accumulate": vector.accumulate & ~partitions(vector),
            }
        if not config.training:
            return entries
        divides = vector.function == Function.QUOTIENT
        entries[Opcode.VECTOR] |= {
            "exponent": vector.exponent,
            "quotient": divides,
            "function": Mux(divides, Function.NONE, entries[Opcode.VECTOR]["function"]),
        }
        entries[Opcode.ACTIVATE] |= {
            **copied(activate, "exponent", "stochastic"),
            # Stochastic rounding is SINGLE rounding with a random number in place of a half.
            "rounding": activate.rounding | activate.stochastic,
        }
        nothing, lines = (measure.source == each for each in (Measured.NONE, Measured.LINES))
        source = Mux(lines, Source.VECTOR, Source.ACCUMULATORS)
        other = {"source": Source.DEPTHWISE, "function": OTHER, "taps": 1}
        entries[Opcode.MEASURE] = {
            **other,
            "source": Mux(nothing, Source.DEPTHWISE, source),
            "operation": Operation.COPY,
            "wide_operands": lines,
            "table": Mux(nothing, Other.SUM, Other.MEASURE),
        }
        entries[Opcode.TRANSPOSE] = {**other, "taps": config.cols, "table": Other.TRANSPOSE}
        entries[Opcode.RANDOM] = {**other, "table": Other.RANDOM}
        return entries

    def _train(self, m: Module) -> None:
        """Set the fields of training instructions, which have words of their own."""
        config, words, walk, scale = self._config, self.words, self.command.walk, self.command.scale
        with m.If(is_of(words, Opcode.MEASURE)):
            m.d.comb += scale.multiplier_b.eq(words.measured)
        with m.If(is_of(words, Opcode.RANDOM)):
            m.d.comb += [
                scale.multiplier_a.eq(words.seed),
                Cat(scale.multiplier_b, scale.shift_b).eq(words.counter),
            ]
        with m.If(is_of(words, Opcode.TRANSPOSE)):
            m.d.comb += [
                walk.step.block.line.eq(words.tile_step),
                walk.count.ox.eq(config.cols),
                walk.single.ox.eq(config.cols == 1),
                walk.double.ox.eq(config.cols == 2),
            ]


def is_of(words: data.View, *opcodes: Opcode) -> Value:
    """Return whether a command belongs to an instruction with one of these opcodes."""
    return Cat(words.flags[:OPCODE_BITS] == opcode for opcode in opcodes).any()


def flags_of(words: data.View, opcode: Opcode) -> data.View:
    """Return a view of the flags of an instruction, by their names; its other fields are zero."""
    layout = InstructionLayout(opcode)
    return data.View(layout, Cat(words.flags, Const(0, layout.size - len(words.flags))))


def _moves(words: data.View) -> dict[str, Value]:
    """Return the fields of a window that lie in the word `moves`, by their names."""
    found: dict[str, Value] = {}
    at = 0
    for name in MOVES:
        width = _WINDOW.field(name).width
        found[name] = words.moves[at : at + width]
        at += width
    return found


def _rows(walk: data.View, words: data.View, moves: dict[str, Value]) -> list[object]:
    """Return the assignments to a walk that place its rows, but not to the counts of rows."""
    return [
        walk.start.y.eq(moves["top"].as_signed()),
        walk.step.ky.line.eq(words.tap_step),
        walk.step.ky.y.eq(moves["dilation_y"]),
        walk.step.oy.line.eq(words.row_step),
        walk.step.oy.y.eq(moves["stride_y"]),
    ]


def _count(walk: data.View, level: str, words: data.View, name: str) -> list[object]:
    """Return the assignments to a level of a walk; its iterations are in the word `name`."""
    return [
        walk.count[level].eq(words[name]),
        walk.single[level].eq(words.single[name]),
        walk.double[level].eq(words.double[name]),
    ]


def _few(walk: data.View, level: str, *, second: ValueLike = 0) -> list[object]:
    """Return the assignments to a level of a walk: two iterations if `second`, else one."""
    two = Value.cast(second)
    return [
        walk.count[level].eq(1 + two),
        walk.single[level].eq(two == 0),
        walk.double[level].eq(two),
    ]
