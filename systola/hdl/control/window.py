# SPDX-License-Identifier: Apache-2.0
"""Numbers that follow from Set_Config_Window, and their use in walks over feature maps."""

from amaranth.lib import data


class WindowProducts(data.StructLayout):
    """A layout that holds the products of fields of Set_Config_Window.

    | field       | meaning |
    |---|---|
    | `pixels`    | windows in a feature map |
    | `taps`      | taps of a window |
    | `map_lines` | lines from one block of channels to the next |
    | `row_step`  | lines from one row of windows to the next |
    | `tap_step`  | lines from one row of taps to the next |
    """

    def __init__(self) -> None:
        super().__init__(
            {"pixels": 24, "taps": 16, "map_lines": 24, "row_step": 19, "tap_step": 16}
        )


def walk_rows(walk: data.View, shape: data.View, products: data.View) -> list[object]:
    """Return assignments that set how far a `walk` moves from row to row of taps and of windows.

    `shape` is the window. Other code sets the iterations of the loops, the distance of blocks of
    channels, and the line of the first tap.
    """
    return [
        walk.start.y.eq(shape.top),
        walk.step.ky.line.eq(products.tap_step),
        walk.step.ky.y.eq(shape.dilation_y),
        walk.step.oy.line.eq(products.row_step),
        walk.step.oy.y.eq(shape.stride_y),
    ]


def walk_columns(walk: data.View, shape: data.View) -> list[object]:
    """Return assignments that set how far a `walk` moves from column to column of taps and of
    windows. Each column is a buffer line.

    `shape` is the window.
    """
    return [
        walk.start.x.eq(shape.left),
        walk.step.kx.line.eq(shape.dilation_x),
        walk.step.kx.x.eq(shape.dilation_x),
        walk.step.ox.line.eq(shape.stride_x),
        walk.step.ox.x.eq(shape.stride_x),
    ]
