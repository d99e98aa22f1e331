# SPDX-License-Identifier: Apache-2.0
"""Activate, Depthwise, Pool and Vector: from the instruction to the command of their unit."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Function, Opcode, Reduction
from systola.hdl.commands import (
    ADDRESS_BITS,
    ActivateCommand,
    InstructionLayout,
    ScaleLayout,
    Source,
)
from systola.hdl.window_registers import WindowProducts


class ActivateDecoder(wiring.Component):
    """The `command` of `word`, combinationally: no more than a choice between its inputs.

    `source` tells which instruction it is. `shape` and `products` are the present window,
    `first_line` the line where the walk over it begins; `scale` is the present Set_Config_Scale.
    """

    word: In(128)
    source: In(Source)
    shape: In(InstructionLayout(Opcode.SET_CONFIG_WINDOW))
    products: In(WindowProducts())
    first_line: In(ADDRESS_BITS)
    scale: In(InstructionLayout(Opcode.SET_CONFIG_SCALE))
    command: Out(ActivateCommand())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, shape, products, scale = self.command, self.shape, self.products, self.scale
        walk = command.walk
        activate = data.View(InstructionLayout(Opcode.ACTIVATE), self.word)
        depthwise = data.View(InstructionLayout(Opcode.DEPTHWISE), self.word)
        pool = data.View(InstructionLayout(Opcode.POOL), self.word)
        vector = data.View(InstructionLayout(Opcode.VECTOR), self.word)

        def bounds(entry: data.View, ceiling: Value) -> list[object]:
            """Bounds of the results, from `function` and `zero_point`."""
            rectified = (entry.function == Function.RELU) | (entry.function == Function.RELU6)
            return [
                command.low.eq(Mux(rectified, entry.zero_point, -128)),
                command.high.eq(Mux(entry.function == Function.RELU6, ceiling, 127)),
            ]

        def over_map(entry: data.View) -> list[object]:
            """The walk over windows, and all that Depthwise and Pool share."""
            return [
                walk.start.line.eq(self.first_line),
                walk.start.y.eq(shape.top),
                walk.start.x.eq(shape.left),
                walk.count.kx.eq(shape.kernel_width),
                walk.step.kx.line.eq(shape.dilation_x),
                walk.step.kx.x.eq(shape.dilation_x),
                walk.count.ky.eq(shape.kernel_height),
                walk.step.ky.line.eq(products.tap_step),
                walk.step.ky.y.eq(shape.dilation_y),
                walk.count.ox.eq(shape.out_width),
                walk.step.ox.line.eq(shape.stride_x),
                walk.step.ox.x.eq(shape.stride_x),
                walk.count.oy.eq(shape.out_height),
                walk.step.oy.line.eq(products.row_step),
                walk.step.oy.y.eq(shape.stride_y),
                walk.count.block.eq(entry.blocks),
                walk.step.block.line.eq(products.map_lines),
                command.height.eq(shape.height),
                command.width.eq(shape.width),
                command.destination.eq(entry.destination),
                command.parameter.eq(entry.parameter),
                command.rounding.eq(entry.rounding),
                command.zero_point.eq(entry.zero_point),
            ]

        m.d.comb += command.source.eq(self.source)
        full_range = [command.low.eq(-(1 << 15)), command.high.eq((1 << 15) - 1)]
        with m.Switch(self.source):
            with m.Case(Source.ACCUMULATORS):
                m.d.comb += [
                    command.accumulator.eq(activate.accumulator),
                    walk.count.kx.eq(1),
                    walk.count.ky.eq(1),
                    walk.count.ox.eq(activate.rows),
                    walk.count.oy.eq(1),
                    walk.count.block.eq(activate.n_tiles),
                    command.destination.eq(activate.buffer),
                    command.wide.eq(activate.wide),
                    command.accumulate.eq(activate.accumulate),
                    command.parameter.eq(activate.parameter),
                    command.by_block.eq(1),
                    command.function.eq(activate.function),
                    command.rounding.eq(activate.rounding),
                    command.zero_point.eq(activate.zero_point),
                    command.table.eq(activate.table),
                    *bounds(activate, activate.ceiling),
                ]
                with m.If(activate.wide):
                    m.d.comb += full_range
            with m.Case(Source.DEPTHWISE):
                m.d.comb += [
                    *over_map(depthwise),
                    command.operand.eq(depthwise.taps),
                    command.taps.eq(products.taps),
                    command.fill.eq(depthwise.fill),
                    command.by_block.eq(1),
                    *bounds(depthwise, depthwise.ceiling),
                ]
            with m.Case(Source.POOL):
                m.d.comb += [
                    *over_map(pool),
                    command.maximum.eq(pool.reduction == Reduction.MAX),
                    command.by_taps.eq(pool.reduction == Reduction.AVERAGE),
                    command.low.eq(pool.floor),
                    command.high.eq(pool.ceiling),
                ]
            with m.Case(Source.VECTOR):
                m.d.comb += [
                    walk.start.line.eq(vector.buffer),
                    walk.count.kx.eq(1 + vector.wide_operands),
                    walk.step.kx.line.eq(1),
                    walk.count.ky.eq(1),
                    walk.count.ox.eq(vector.rows),
                    walk.step.ox.line.eq(1 + vector.wide_operands),
                    walk.count.oy.eq(1),
                    walk.count.block.eq(1),
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
                    *bounds(vector, scale.ceiling),
                ]
                with m.If(vector.wide):
                    m.d.comb += full_range
                    with m.If((vector.function == Function.NONE) & (scale.limit != 0)):
                        m.d.comb += [command.low.eq(-scale.limit), command.high.eq(scale.limit)]
        return m
