# SPDX-License-Identifier: Apache-2.0
"""MatrixMultiply and Convolve: from the instruction to the walk of the matrix unit."""

from amaranth.hdl import Cat, Module, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.commands import InstructionLayout, MatrixCommand, line_bits
from systola.hdl.control.window_registers import WindowProducts, walk_columns, walk_rows
from systola.hdl.parts.walker import counts


class Packing(data.StructLayout):
    """Packed channels, in bytes of a row: the row, a row of the kernel, where the first vector
    begins, and from one vector to the next."""

    def __init__(self) -> None:
        super().__init__({"row_bytes": 20, "kernel_bytes": 16, "start": signed(18), "step": 15})


def unpackable(config: Config, packing: data.View, convolve: data.View, shape: data.View) -> Value:
    """What of the window `shape` does not fit the packed channels of `convolve`: bits that must be
    zero. The length of a row is not among them (see `Packing`)."""
    rows = config.rows
    return Cat(
        convolve.k_tiles != 1,
        shape.dilation_x != 1,
        packing.kernel_bytes > rows,
        packing.step > rows,
        packing.start < -rows,
        packing.start >= rows,
    )


class MatrixDecoder(wiring.Component):
    """The `command` of `word`, combinationally: no more than a choice between its inputs.

    `multiplies`: it is a MatrixMultiply, else a Convolve. `shape` and `products` are the present
    window, `first_line` the line where the walk over it begins, `first_byte` how many bytes behind
    the line before it the first vector does.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "word": In(128),
                "multiplies": In(1),
                "shape": In(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": In(WindowProducts()),
                "packing": In(Packing()),
                "first_line": In(line_bits(config)),
                "first_byte": In(range(config.rows)),
                "command": Out(MatrixCommand(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, shape, products, packing = self.command, self.shape, self.products, self.packing
        matrix = data.View(InstructionLayout(Opcode.MATRIX_MULTIPLY), self.word)
        convolve = data.View(InstructionLayout(Opcode.CONVOLVE), self.word)
        walk = command.walk
        packed = convolve.channels != 0
        with m.If(self.multiplies):
            m.d.comb += [
                walk.start.line.eq(matrix.buffer),
                walk.step.ox.line.eq(1),
                walk.step.oy.line.eq(1 + matrix.wide_vectors),
                walk.step.kx.line.eq(matrix.rows << matrix.wide_vectors),
                *counts(
                    walk,
                    ox=1 + matrix.wide_vectors,
                    oy=matrix.rows,
                    block=1 + matrix.wide_weights,
                    kx=matrix.k_tiles,
                    ky=1,
                    n=matrix.n_tiles,
                ),
                command.accumulator.eq(matrix.accumulator),
                command.accumulate.eq(matrix.accumulate),
                command.wide_vectors.eq(matrix.wide_vectors),
                command.wide_weights.eq(matrix.wide_weights),
                command.sequential.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                walk.start.line.eq(self.first_line),
                *walk_rows(walk, shape, products),
                walk.step.block.line.eq(convolve.plane),
                *counts(walk, block=convolve.k_tiles, n=convolve.n_tiles),
                command.accumulator.eq(convolve.accumulator),
                command.accumulate.eq(convolve.accumulate),
                command.bounded.eq(1),
                command.height.eq(shape.height),
                command.fill.eq(convolve.fill),
                command.packed.eq(packed),
                command.byte.eq(self.first_byte),
                command.byte_step.eq(packing.step),
            ]
            with m.If(packed):
                # In columns x counts bytes, and lines are counted by the matrix unit.
                m.d.comb += [
                    walk.start.x.eq(packing.start),
                    walk.step.ox.x.eq(packing.step),
                    *counts(walk, kx=1),
                    command.width.eq(packing.row_bytes),
                ]
            with m.Else():
                m.d.comb += [*walk_columns(walk, shape), command.width.eq(shape.width)]
        return m
