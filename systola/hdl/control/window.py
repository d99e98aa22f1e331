# SPDX-License-Identifier: Apache-2.0
"""What the decoder keeps of Set_Config_Window, and what walks over feature maps take from it."""

from amaranth.lib import data


class WindowProducts(data.StructLayout):
    """What follows from the fields alone: `pixels` windows, `taps` of each, `map_lines` from one
    block of channels to the next, lines from one row of windows (`row_step`) or of taps
    (`tap_step`) to the next."""

    def __init__(self) -> None:
        super().__init__(
            {"pixels": 24, "taps": 16, "map_lines": 24, "row_step": 19, "tap_step": 16}
        )


def walk_rows(walk: data.View, shape: data.View, products: data.View) -> list[object]:
    """The rows of a `walk` over the window `shape`, of taps and of windows, without their number.
    Lines of blocks of channels, and the line of the first tap, are up to the user."""
    return [
        walk.start.y.eq(shape.top),
        walk.step.ky.line.eq(products.tap_step),
        walk.step.ky.y.eq(shape.dilation_y),
        walk.step.oy.line.eq(products.row_step),
        walk.step.oy.y.eq(shape.stride_y),
    ]


def walk_columns(walk: data.View, shape: data.View) -> list[object]:
    """The columns of a `walk` over the window `shape`, where each is a line of its own."""
    return [
        walk.start.x.eq(shape.left),
        walk.step.kx.line.eq(shape.dilation_x),
        walk.step.kx.x.eq(shape.dilation_x),
        walk.step.ox.line.eq(shape.stride_x),
        walk.step.ox.x.eq(shape.stride_x),
    ]
