# SPDX-License-Identifier: Apache-2.0
"""Pointers into rings."""

from amaranth.hdl import Mux, Value


def stepped(pointer: Value, depth: int) -> Value:
    """The place behind `pointer` in a ring of `depth` places."""
    return Mux(pointer == depth - 1, 0, pointer + 1)
