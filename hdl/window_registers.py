# SPDX-License-Identifier: Apache-2.0
"""The window of Set_Config_Window, and the products that every use of it needs."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Opcode
from systola.hdl.commands import InstructionLayout


class WindowProducts(data.StructLayout):
    """What follows from the fields alone.

    `pixels` windows, `taps` of each, `map_lines` from one block of channels to the next, lines from
    one row of windows (`row_step`) or of taps (`tap_step`) to the next, and the line of the first
    tap (`origin`), which is before the map where there is padding.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "pixels": 24,
                "taps": 16,
                "map_lines": 24,
                "row_step": 19,
                "tap_step": 16,
                "origin": signed(26),
            }
        )


class WindowRegisters(wiring.Component):
    """Takes `word`, a Set_Config_Window, with `load`. `fields` show it from the next cycle on,
    `products` one cycle later, for which `busy` is up. `valid`: there has been one.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": In(128),
                "load": In(1),
                "busy": Out(1),
                "valid": Out(1),
                "fields": Out(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": Out(WindowProducts()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = Signal(128)
        window = data.View(InstructionLayout(Opcode.SET_CONFIG_WINDOW), kept)
        m.d.comb += self.fields.eq(window)
        m.d.sync += self.busy.eq(self.load)
        with m.If(self.load):
            m.d.sync += [kept.eq(self.word), self.valid.eq(1)]
        with m.If(self.busy):
            m.d.sync += [
                self.products.pixels.eq(window.out_height * window.out_width),
                self.products.taps.eq(window.kernel_height * window.kernel_width),
                self.products.map_lines.eq(window.height * window.pitch),
                self.products.row_step.eq(window.stride_y * window.pitch),
                self.products.tap_step.eq(window.dilation_y * window.pitch),
                self.products.origin.eq(window.top * window.pitch + window.left),
            ]
        return m
