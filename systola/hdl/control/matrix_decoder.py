# SPDX-License-Identifier: Apache-2.0
"""Turns MatrixMultiply and Convolve into commands of the matrix unit."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.commands import InstructionLayout, MatrixCommand
from systola.hdl.control.checks import Found
from systola.hdl.control.scalar_unit import EffectiveInstruction, fields_of, is_one_of
from systola.hdl.control.window import WindowProducts, walk_columns, walk_rows
from systola.hdl.parts.walker import counts


class MatrixDecoder(wiring.Component):
    """A decoder that forms the command of the matrix unit from the instruction `given`.

    | port       | meaning |
    |---|---|
    | `given`    | the instruction, with its index registers added |
    | `shape`    | fields of the present window (Set_Config_Window) |
    | `products` | numbers that follow from the present window |
    | `found`    | results of the steps of the instruction |
    | `command`  | the command, combinational: it only chooses between the inputs |
    """

    def __init__(self, *, config: Config):
        self._rows = config.rows
        super().__init__(
            {
                "given": In(EffectiveInstruction(links=config.links)),
                "shape": In(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": In(WindowProducts()),
                "found": In(Found(config=config)),
                "command": Out(MatrixCommand(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, shape, products, found = self.command, self.shape, self.products, self.found
        fields = fields_of(self.given.word)
        matrix, convolve = fields[Opcode.MATRIX_MULTIPLY], fields[Opcode.CONVOLVE]
        multiplies = is_one_of(self.given.kind, Opcode.MATRIX_MULTIPLY)
        walk = command.walk
        packed = ~multiplies & (convolve.channels != 0)
        # Byte of the row at which the first vector begins. It is negative if the vector begins to
        # the left of the row, in the line before the row.
        start = Signal(signed(10))
        # A MatrixMultiply ignores the walk's rows and columns, and the members that only matter if
        # `bounded` is set.
        m.d.comb += [
            start.eq(found.start - self._rows),
            *walk_rows(walk, shape, products),
            *walk_columns(walk, shape),
            command.accumulator.eq(found.accumulator.base),
            command.accumulate.eq(Mux(multiplies, matrix.accumulate, convolve.accumulate)),
            command.wide_vectors.eq(multiplies & matrix.wide_vectors),
            command.wide_weights.eq(multiplies & matrix.wide_weights),
            command.sequential.eq(multiplies),
            command.bounded.eq(~multiplies),
            command.height.eq(shape.height),
            command.width.eq(Mux(packed, found.row_bytes, shape.width)),
            command.fill.eq(convolve.fill),
            command.packed.eq(packed),
            command.byte.eq(Mux(start < 0, found.start, start)),
            command.byte_step.eq(found.byte_step),
            walk.start.line.eq(Mux(multiplies, found.buffer.base, found.first_line)),
            walk.step.block.line.eq(Mux(multiplies, 0, convolve.plane)),
        ]
        # The iterations of each level of the walk: for a MatrixMultiply, and for a Convolve.
        numbers = {
            "ox": (1 + matrix.wide_vectors, shape.out_width),
            "oy": (matrix.rows, shape.out_height),
            "block": (1 + matrix.wide_weights, convolve.k_tiles),
            "kx": (matrix.k_tiles, Mux(packed, 1, shape.kernel_width)),
            "ky": (1, shape.kernel_height),
            "n": (matrix.n_tiles, convolve.n_tiles),
        }
        for level, (first, second) in numbers.items():
            number = Signal(walk.count.shape()[level].shape, name=f"count_{level}")
            m.d.comb += [
                number.eq(Mux(multiplies, first, second)),
                *counts(walk, **{level: number}),
            ]
        with m.If(packed):
            # With packed channels x counts bytes, and the matrix unit counts the lines itself.
            m.d.comb += [
                walk.start.x.eq(start),
                walk.step.ox.x.eq(found.byte_step),
                walk.step.ox.line.eq(0),
            ]
        with m.If(multiplies):
            m.d.comb += [
                walk.step.ox.line.eq(1),
                walk.step.oy.line.eq(1 + matrix.wide_vectors),
                walk.step.kx.line.eq(matrix.rows << matrix.wide_vectors),
            ]
        return m
