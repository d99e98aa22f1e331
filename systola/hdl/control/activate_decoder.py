# SPDX-License-Identifier: Apache-2.0
"""Turns Activate, Depthwise, Pool, Vector and training instructions into activation commands."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTIONS,
    Function,
    Hardware,
    Opcode,
    Operation,
    Reduction,
)
from systola.arch.isa import Source as Measured
from systola.hdl.commands import (
    OTHER,
    ActivateCommand,
    InstructionLayout,
    MeasureLayout,
    Other,
    ScaleLayout,
    Source,
)
from systola.hdl.control.checks import Found, gathers, partitions, relative
from systola.hdl.control.scalar_unit import EffectiveInstruction, fields_of, is_one_of
from systola.hdl.control.window import WindowProducts, walk_columns, walk_rows
from systola.hdl.parts.ored import ored
from systola.hdl.parts.walker import counts

OTHERS = tuple(entry.opcode for entry in INSTRUCTIONS if entry.needs is Hardware.TRAINING)
"""Instructions that exist for training only."""
MAPS = (Opcode.DEPTHWISE, Opcode.POOL)
"""Instructions that walk over the windows of a feature map."""
_COPIED = (
    *("wide", "accumulate", "function", "rounding", "zero_point", "table", "exponent"),
    "stochastic",
    *("fill", "operation", "wide_operands", "ceiling"),
)
"""Names of members of the command that copy a field with the same name in the instruction."""
_BOUNDS = {"floor": signed(8), "ceiling": signed(8), "limit": unsigned(15)}
"""Numbers that some functions take as bounds of results: `floor` and `ceiling` of int8 results,
`limit` of int16 results. A `limit` of 0 sets no bound.
"""


class ActivateDecoder(wiring.Component):
    """A decoder that forms the command of the activation unit from the instruction `given`.

    | port       | meaning |
    |---|---|
    | `given`    | the instruction, with its index registers added |
    | `shape`    | fields of the present window (Set_Config_Window) |
    | `products` | numbers that follow from the present window |
    | `found`    | results of the steps of the instruction |
    | `scale`    | fields of the present Set_Config_Scale |
    | `command`  | the command, combinational: it only chooses between the inputs |
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "given": In(EffectiveInstruction(links=config.links)),
                "shape": In(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": In(WindowProducts()),
                "found": In(Found(config=config)),
                "scale": In(InstructionLayout(Opcode.SET_CONFIG_SCALE)),
                "command": Out(ActivateCommand(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, walk, kind = self.command, self.command.walk, self.given.kind
        shape, products, found = self.shape, self.products, self.found
        lines_paired = Signal()
        entries = self._entries(lines_paired)

        def chosen(name: str, signal: Value) -> Value:
            """Set `signal` to entry `name` of the present opcode, or to 0 without such an entry."""
            values = ((at, entry[name]) for at, entry in entries.items() if name in entry)
            m.d.comb += signal.eq(ored(Mux(is_one_of(kind, at), v, 0) for at, v in values))
            return signal

        over_map = is_one_of(kind, *MAPS)
        floor, ceiling, limit = (chosen(n, Signal(each, name=n)) for n, each in _BOUNDS.items())
        # These three members are signals of their own: other members depend on them, and this unit
        # never reads its output `command`.
        wide, wide_operands, function = (
            chosen(name, Signal(bits, name=name))
            for name, bits in (("wide", 1), ("wide_operands", 1), ("function", 3))
        )
        m.d.comb += [
            command.wide.eq(wide),
            command.wide_operands.eq(wide_operands),
            command.function.eq(function),
        ]
        apart = {*_BOUNDS, *walk.count.shape().members, "wide", "wide_operands", "function"}
        for name in sorted({name for entry in entries.values() for name in entry} - apart):
            chosen(name, Value.cast(command[name]))
        source, operand = found.source.base, found.operand.base
        if self._config.reads_pairs:
            # The address of a pair of lines is the address of its second line.
            second_line = lines_paired & wide_operands
            source, operand = source | second_line, operand | second_line
            m.d.comb += [lines_paired.eq(self._paired()), command.paired.eq(lines_paired)]
        m.d.comb += [
            *walk_rows(walk, shape, products),
            *walk_columns(walk, shape),
            walk.start.line.eq(Mux(over_map, found.first_line, source)),
            walk.step.block.line.eq(products.map_lines),
            command.destination.eq(found.buffer.base),
            command.parameter.eq(found.parameter.base),
            command.operand.eq(operand),
            command.accumulator.eq(found.accumulator.base),
            *(command.scale[name].eq(self.scale[name]) for name in ScaleLayout().members),
            command.height.eq(shape.height),
            command.width.eq(shape.width),
        ]
        for level, count in walk.count.shape().members.items():
            number = chosen(level, Signal(count, name=f"count_{level}"))
            m.d.comb += counts(walk, **{level: number})
        with m.If(~over_map):
            m.d.comb += [walk.step.kx.line.eq(1), walk.step.ox.line.eq(1 + wide_operands)]
        if self._config.training:
            self._train(m)
        with m.If(~wide):
            clamps = function == Function.RELU6
            rectifies = clamps | (function == Function.RELU)
            m.d.comb += [
                command.low.eq(Mux(rectifies, floor, -128)),
                command.high.eq(Mux(clamps, ceiling, 127)),
            ]
        with m.Elif((limit != 0) & (function == Function.NONE)):
            m.d.comb += [command.low.eq(-limit), command.high.eq(limit)]
        with m.Else():
            m.d.comb += [command.low.eq(-(1 << 15)), command.high.eq((1 << 15) - 1)]
        return m

    def _entries(self, paired: Signal) -> dict[Opcode, dict[str, ValueLike]]:
        """Return the command's members that differ between instructions, by opcode and name.

        `paired` is true if a Vector reads both lines of an int16 operand at a time.
        """
        config, shape, products, scale = self._config, self.shape, self.products, self.scale
        fields = fields_of(self.given.word)
        activate, pool = fields[Opcode.ACTIVATE], fields[Opcode.POOL]
        vector = fields[Opcode.VECTOR]
        one: dict[str, ValueLike] = {level: Const(1) for level in ("kx", "ky", "ox", "oy", "block")}
        window: dict[str, ValueLike] = {
            "kx": shape.kernel_width,
            "ky": shape.kernel_height,
            "ox": shape.out_width,
            "oy": shape.out_height,
        }

        def copied(opcode: Opcode) -> dict[str, ValueLike]:
            """Return members of the command that copy fields; `floor` copies the zero point."""
            names = {field.name for field in BY_OPCODE[opcode].fields}
            found = {name: fields[opcode][name] for name in _COPIED if name in names}
            if not config.training:
                found.pop("exponent", None)
                found.pop("stochastic", None)
            return {**found, "floor": fields[opcode].zero_point}

        entries: dict[Opcode, dict[str, ValueLike]] = {
            Opcode.ACTIVATE: {
                **copied(Opcode.ACTIVATE),
                **one,
                "source": Source.ACCUMULATORS,
                "ox": activate.rows,
                "block": activate.n_tiles,
                "by_block": 1,
            },
            Opcode.DEPTHWISE: {
                **copied(Opcode.DEPTHWISE),
                **window,
                "source": Source.DEPTHWISE,
                "block": fields[Opcode.DEPTHWISE].blocks,
                "taps": products.taps,
                "by_block": 1,
            },
            Opcode.POOL: {
                **copied(Opcode.POOL),
                **window,
                "source": Source.POOL,
                "block": pool.blocks,
                "maximum": pool.reduction == Reduction.MAX,
                "by_taps": pool.reduction == Reduction.AVERAGE,
                "function": Function.RELU6,
                "floor": pool.floor,
            },
            Opcode.VECTOR: {
                **copied(Opcode.VECTOR),
                **one,
                "source": Source.VECTOR,
                "kx": 1 + (vector.wide_operands & ~paired),
                "ox": vector.rows,
                "ceiling": scale.ceiling,
                "limit": scale.limit,
            },
        }
        if config.attention:
            takes, once, adds_up = gathers(vector), relative(vector), partitions(vector)
            entries[Opcode.VECTOR] |= {
                "gathers": takes,
                "relative": once,
                "partition": adds_up,
                "accumulate": vector.accumulate & ~adds_up,
                "kx": Mux(adds_up, vector.rows, entries[Opcode.VECTOR]["kx"]),
                "ox": Mux(adds_up, 1, vector.rows),
                "function": Mux(takes, Function.NONE, vector.function),
                "operation": Mux(once, Operation.COPY, vector.operation),
            }
        if config.training:
            divides = fields[Opcode.VECTOR].function == Function.QUOTIENT
            entries[Opcode.VECTOR]["quotient"] = divides
            entries[Opcode.VECTOR]["function"] = Mux(divides, Function.NONE, vector.function)
            # Stochastic rounding is SINGLE rounding with a random number in place of a half.
            entries[Opcode.ACTIVATE]["rounding"] = activate.rounding | activate.stochastic
            measure, transpose = fields[Opcode.MEASURE], fields[Opcode.TRANSPOSE]
            nothing = measure.source == Measured.NONE
            lines = measure.source == Measured.LINES
            source = Mux(lines, Source.VECTOR, Source.ACCUMULATORS)
            other = {**one, "source": Source.DEPTHWISE, "function": OTHER, "taps": 1}
            entries[Opcode.MEASURE] = {
                **other,
                "source": Mux(nothing, Source.DEPTHWISE, source),
                "kx": 1 + lines,
                "ox": Mux(nothing, 1, measure.rows),
                "operation": Operation.COPY,
                "wide_operands": lines,
                "table": Mux(nothing, Other.SUM, Other.MEASURE),
            }
            entries[Opcode.TRANSPOSE] = {
                **other,
                "ox": config.cols,
                "block": transpose.count,
                "taps": config.cols,
                "table": Other.TRANSPOSE,
            }
            entries[Opcode.RANDOM] = {
                **other,
                "ox": fields[Opcode.RANDOM].rows,
                "table": Other.RANDOM,
            }
        return entries

    def _paired(self) -> Value:
        """Return whether a Vector or Activate reads int16 operands and addends two lines at a time.

        This is so if all operands and addends begin at an even line. Then both lines of an operand
        lie at the same address of two neighbouring banks.
        """
        found, fields = self.found, fields_of(self.given.word)
        vector, activate = fields[Opcode.VECTOR], fields[Opcode.ACTIVATE]
        second = found.operand.base[0] & (vector.operation != Operation.COPY)
        odd = vector.wide_operands & (found.source.base[0] | second)
        result = found.buffer.base[0]
        return (
            is_one_of(self.given.kind, Opcode.VECTOR) & ~odd & ~(vector.accumulate & result)
        ) | (is_one_of(self.given.kind, Opcode.ACTIVATE) & ~(activate.accumulate & result))

    def _train(self, m: Module) -> None:
        """Set the members of the command that have another meaning for training instructions."""
        command, kind, fields = self.command, self.given.kind, fields_of(self.given.word)
        with m.If(is_one_of(kind, *OTHERS)):
            m.d.comb += command.scale.eq(0)
        with m.If(is_one_of(kind, Opcode.MEASURE)):
            about = Signal(MeasureLayout())
            m.d.comb += [about[n].eq(fields[Opcode.MEASURE][n]) for n in MeasureLayout().members]
            m.d.comb += command.scale.multiplier_b.eq(about)
        with m.If(is_one_of(kind, Opcode.TRANSPOSE)):
            m.d.comb += [
                command.walk.step.block.line.eq(fields[Opcode.TRANSPOSE].step - self._config.cols),
                command.operand.eq(self.found.source.base),
            ]
        with m.If(is_one_of(kind, Opcode.RANDOM)):
            counter = Cat(command.scale.multiplier_b, command.scale.shift_b)
            m.d.comb += [
                command.scale.multiplier_a.eq(fields[Opcode.RANDOM].seed),
                counter.eq(self.given.sums[1]),
            ]
