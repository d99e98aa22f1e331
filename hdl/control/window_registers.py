# SPDX-License-Identifier: Apache-2.0
"""The window of Set_Config_Window, and the products that every use of it needs."""

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.commands import InstructionLayout
from systola.hdl.control.products import Products
from systola.hdl.parts.walker import counts


class WindowProducts(data.StructLayout):
    """What follows from the fields alone.

    `pixels` windows, `taps` of each, `map_lines` from one block of channels to the next, lines from
    one row of windows (`row_step`) or of taps (`tap_step`) to the next, and the lines of the first
    row (`row_origin`) and the first tap (`origin`), which are before the map where there is
    padding.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "pixels": 24,
                "taps": 16,
                "map_lines": 24,
                "row_step": 19,
                "tap_step": 16,
                "row_origin": signed(26),
                "origin": signed(26),
            }
        )


def first_operands(window: data.View) -> dict[str, tuple[Value, Value]]:
    """What the multipliers take first for a Set_Config_Window."""
    return {
        "lines": (window.height, window.pitch),
        "results": (window.out_height, window.out_width),
        "tiles": (window.kernel_height, window.kernel_width),
        "spread": (window.stride_y, window.pitch),
    }


def second_operands(window: data.View) -> dict[str, tuple[Value, Value]]:
    """What the multipliers take a cycle later."""
    return {
        "lines": (window.top.as_unsigned(), window.pitch),
        "spread": (window.dilation_y, window.pitch),
    }


def walk_rows(walk: data.View, shape: data.View, products: data.View) -> list[object]:
    """The rows of a `walk` over the window `shape`: of its taps, and of windows, with how many each
    of these has. Lines of blocks of channels, and the line of the first tap, are up to the user."""
    return [
        walk.start.y.eq(shape.top),
        *counts(walk, ky=shape.kernel_height, ox=shape.out_width, oy=shape.out_height),
        walk.step.ky.line.eq(products.tap_step),
        walk.step.ky.y.eq(shape.dilation_y),
        walk.step.oy.line.eq(products.row_step),
        walk.step.oy.y.eq(shape.stride_y),
    ]


def walk_columns(walk: data.View, shape: data.View) -> list[object]:
    """The columns of a `walk` over the window `shape`, where each is a line of its own."""
    return [
        walk.start.x.eq(shape.left),
        *counts(walk, kx=shape.kernel_width),
        walk.step.kx.line.eq(shape.dilation_x),
        walk.step.kx.x.eq(shape.dilation_x),
        walk.step.ox.line.eq(shape.stride_x),
        walk.step.ox.x.eq(shape.stride_x),
    ]


class WindowRegisters(wiring.Component):
    """Takes `word`, a Set_Config_Window, with `load`. `fields` show it from the next cycle on,
    `products` a cycle after those of `first` and `second` operands have been `multiplied`, but
    `origin` two cycles after the latter. `valid`: there has been a window.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "word": In(128),
                "load": In(1),
                "multiplied": In(Products(config=config)),
                "first": In(1),
                "second": In(1),
                "valid": Out(1),
                "fields": Out(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": Out(WindowProducts()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = Signal(128, reset_less=True)
        window = data.View(InstructionLayout(Opcode.SET_CONFIG_WINDOW), kept)
        products, multiplied = self.products, self.multiplied
        m.d.comb += self.fields.eq(window)
        with m.If(self.load):
            m.d.sync += [kept.eq(self.word), self.valid.eq(1)]
        with m.If(self.first):
            m.d.sync += [
                products.pixels.eq(multiplied.results),
                products.taps.eq(multiplied.tiles),
                products.map_lines.eq(multiplied.lines),
                products.row_step.eq(multiplied.spread),
            ]
        # `top` was taken as a number without sign.
        excess = Signal(12)
        with m.If(window.top < 0):
            m.d.comb += excess.eq(window.pitch)
        with m.If(self.second):
            m.d.sync += [
                products.tap_step.eq(multiplied.spread),
                products.row_origin.eq(multiplied.lines - (excess << len(window.top))),
            ]
        m.d.sync += products.origin.eq(products.row_origin + window.left)
        return m
