# SPDX-License-Identifier: Apache-2.0
"""Activate, Depthwise, Pool and Vector: from the instruction to the command of their unit."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Reduction
from systola.arch.isa import Source as Measured
from systola.hdl.commands import (
    OTHER,
    ActivateCommand,
    InstructionLayout,
    MeasureLayout,
    Other,
    ScaleLayout,
    Source,
    line_bits,
)
from systola.hdl.control.window_registers import WindowProducts, walk_columns, walk_rows
from systola.hdl.parts.walker import counts

SOURCES = (Opcode.ACTIVATE, Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR)
"""The instructions that make results of numbers."""
OTHERS = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
"""Those that there are for training alone."""


class _Bounds(data.StructLayout):
    """What the bounds of results follow from; a `limit` of 0 is none."""

    def __init__(self) -> None:
        super().__init__(
            {"function": 3, "floor": signed(8), "ceiling": signed(8), "wide": 1, "limit": 15}
        )


class ActivateDecoder(wiring.Component):
    """The `command` of `word`, combinationally, but for its bounds, which come a cycle later: no
    more than a choice between its inputs.

    `kinds` tells which instruction it is, with a bit for each of `opcodes`, `over_map` that it is a
    Depthwise or a Pool. `shape` and `products` are the present window, `first_line` the line where
    the walk over it begins; `scale` is the present Set_Config_Scale.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._layout = ActivateCommand(config=config)
        self.opcodes = (*SOURCES, *(OTHERS if config.training else ()))
        super().__init__(
            {
                "word": In(128),
                "kinds": In(len(self.opcodes)),
                "over_map": In(1),
                "shape": In(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": In(WindowProducts()),
                "first_line": In(line_bits(config)),
                "scale": In(InstructionLayout(Opcode.SET_CONFIG_SCALE)),
                "command": Out(self._layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, products, scale = self.shape, self.products, self.scale
        # What the command is for each opcode, and what its bounds follow from.
        commands = {at: Signal(self._layout, name=at.name) for at in self.opcodes}
        bounds = {at: Signal(_Bounds(), name=f"{at.name}_bounds") for at in SOURCES}
        activate = data.View(InstructionLayout(Opcode.ACTIVATE), self.word)
        depthwise = data.View(InstructionLayout(Opcode.DEPTHWISE), self.word)
        pool = data.View(InstructionLayout(Opcode.POOL), self.word)
        vector = data.View(InstructionLayout(Opcode.VECTOR), self.word)

        def bounded(opcode: Opcode, entry: data.View, highest: Value) -> list[object]:
            """Bounds from `function`, `zero_point` and a ceiling."""
            bounded = bounds[opcode]
            return [
                bounded.function.eq(entry.function),
                bounded.floor.eq(entry.zero_point),
                bounded.ceiling.eq(highest),
            ]

        # The walk over windows, and what else does not come from the word.
        shared = Signal(self._layout)
        walk = shared.walk
        m.d.comb += [
            walk.start.line.eq(self.first_line),
            *walk_rows(walk, shape, products),
            *walk_columns(walk, shape),
            walk.step.block.line.eq(products.map_lines),
            shared.height.eq(shape.height),
            shared.width.eq(shape.width),
        ]

        def of_map(command: data.View, entry: data.View) -> list[object]:
            """The fields that Depthwise and Pool share."""
            return [
                *counts(command.walk, block=entry.blocks),
                command.destination.eq(entry.destination),
                command.parameter.eq(entry.parameter),
                command.rounding.eq(entry.rounding),
                command.zero_point.eq(entry.zero_point),
            ]

        command = commands[Opcode.ACTIVATE]
        m.d.comb += [
            command.source.eq(Source.ACCUMULATORS),
            command.accumulator.eq(activate.accumulator),
            *counts(command.walk, kx=1, ky=1, ox=activate.rows, oy=1, block=activate.n_tiles),
            command.destination.eq(activate.buffer),
            command.wide.eq(activate.wide),
            command.accumulate.eq(activate.accumulate),
            command.parameter.eq(activate.parameter),
            command.by_block.eq(1),
            command.function.eq(activate.function),
            command.rounding.eq(activate.rounding),
            command.zero_point.eq(activate.zero_point),
            command.table.eq(activate.table),
            *bounded(Opcode.ACTIVATE, activate, activate.ceiling),
            bounds[Opcode.ACTIVATE].wide.eq(activate.wide),
        ]
        command = commands[Opcode.DEPTHWISE]
        m.d.comb += [
            command.source.eq(Source.DEPTHWISE),
            *of_map(command, depthwise),
            command.operand.eq(depthwise.taps),
            command.taps.eq(products.taps),
            command.fill.eq(depthwise.fill),
            command.by_block.eq(1),
            *bounded(Opcode.DEPTHWISE, depthwise, depthwise.ceiling),
        ]
        command = commands[Opcode.POOL]
        m.d.comb += [
            command.source.eq(Source.POOL),
            *of_map(command, pool),
            command.maximum.eq(pool.reduction == Reduction.MAX),
            command.by_taps.eq(pool.reduction == Reduction.AVERAGE),
            bounds[Opcode.POOL].function.eq(Function.RELU6),
            bounds[Opcode.POOL].floor.eq(pool.floor),
            bounds[Opcode.POOL].ceiling.eq(pool.ceiling),
        ]
        command = commands[Opcode.VECTOR]
        m.d.comb += [
            command.source.eq(Source.VECTOR),
            command.walk.start.line.eq(vector.buffer),
            *counts(command.walk, kx=1 + vector.wide_operands, ky=1, ox=vector.rows, oy=1, block=1),
            command.walk.step.kx.line.eq(1),
            command.walk.step.ox.line.eq(1 + vector.wide_operands),
            command.operand.eq(vector.operand),
            command.operation.eq(vector.operation),
            command.wide_operands.eq(vector.wide_operands),
            *(command.scale[name].eq(scale[name]) for name in ScaleLayout().members),
            command.destination.eq(vector.destination),
            command.wide.eq(vector.wide),
            command.accumulate.eq(vector.accumulate),
            command.parameter.eq(vector.parameter),
            command.function.eq(vector.function),
            command.rounding.eq(vector.rounding),
            command.zero_point.eq(vector.zero_point),
            command.table.eq(vector.table),
            *bounded(Opcode.VECTOR, vector, scale.ceiling),
            bounds[Opcode.VECTOR].wide.eq(vector.wide),
            bounds[Opcode.VECTOR].limit.eq(Mux(vector.function == Function.NONE, scale.limit, 0)),
        ]

        if self._config.training:
            self._train(m, commands, activate.exponent, vector.exponent)

        command = self.command
        kept = Signal(_Bounds(), reset_less=True)
        m.d.comb += command.eq(self._chosen(commands) | Mux(self.over_map, shared, 0))
        m.d.sync += kept.eq(self._chosen(bounds))
        with m.If(~kept.wide):
            clamps = kept.function == Function.RELU6
            rectifies = clamps | (kept.function == Function.RELU)
            m.d.comb += [
                command.low.eq(Mux(rectifies, kept.floor, -128)),
                command.high.eq(Mux(clamps, kept.ceiling, 127)),
            ]
        with m.Elif(kept.limit != 0):
            m.d.comb += [command.low.eq(-kept.limit), command.high.eq(kept.limit)]
        with m.Else():
            m.d.comb += [command.low.eq(-(1 << 15)), command.high.eq((1 << 15) - 1)]
        return m

    def _chosen(self, values: dict[Opcode, data.View]) -> Value:
        """The one of the present instruction."""
        chosen = (Mux(self.kinds[self.opcodes.index(at)], value, 0) for at, value in values.items())
        return reduce(or_, chosen)

    def _train(self, m: Module, commands: dict[Opcode, Signal], *exponents: Value) -> None:
        """What there is for training alone."""
        measure = data.View(InstructionLayout(Opcode.MEASURE), self.word)
        transpose = data.View(InstructionLayout(Opcode.TRANSPOSE), self.word)
        randomise = data.View(InstructionLayout(Opcode.RANDOM), self.word)
        for opcode, exponent in zip((Opcode.ACTIVATE, Opcode.VECTOR), exponents, strict=True):
            m.d.comb += commands[opcode].exponent.eq(exponent)
        command = commands[Opcode.MEASURE]
        layout = MeasureLayout()
        about = Signal(layout)
        nothing = measure.source == Measured.NONE
        lines = measure.source == Measured.LINES
        m.d.comb += [
            *(about[name].eq(measure[name]) for name in layout.members),
            command.source.eq(
                Mux(
                    nothing,
                    Source.DEPTHWISE,
                    Mux(lines, Source.VECTOR, Source.ACCUMULATORS),
                )
            ),
            command.accumulator.eq(measure.accumulator),
            command.walk.start.line.eq(measure.buffer),
            *counts(command.walk, kx=1 + lines, ky=1, oy=1, block=1),
            *counts(command.walk, ox=Mux(nothing, 1, measure.rows)),
            command.walk.step.kx.line.eq(1),
            command.walk.step.ox.line.eq(2),
            command.taps.eq(1),
            command.operation.eq(Operation.COPY),
            command.wide_operands.eq(lines),
            command.scale.multiplier_b.eq(about),
            command.function.eq(OTHER),
            command.table.eq(Mux(nothing, Other.SUM, Other.MEASURE)),
        ]
        command = commands[Opcode.TRANSPOSE]
        m.d.comb += [
            command.source.eq(Source.DEPTHWISE),
            *counts(command.walk, kx=1, ky=1, ox=self._config.cols, oy=1, block=transpose.count),
            command.walk.step.block.line.eq(transpose.step - self._config.cols),
            command.operand.eq(transpose.buffer),
            command.taps.eq(self._config.cols),
            command.destination.eq(transpose.destination),
            command.function.eq(OTHER),
            command.table.eq(Other.TRANSPOSE),
        ]
        command = commands[Opcode.RANDOM]
        m.d.comb += [
            command.source.eq(Source.DEPTHWISE),
            *counts(command.walk, kx=1, ky=1, ox=randomise.rows, oy=1, block=1),
            command.taps.eq(1),
            command.scale.multiplier_a.eq(randomise.seed),
            Cat(command.scale.multiplier_b, command.scale.shift_b).eq(randomise.counter),
            command.destination.eq(randomise.destination),
            command.function.eq(OTHER),
            command.table.eq(Other.RANDOM),
        ]
