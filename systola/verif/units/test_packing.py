# SPDX-License-Identifier: Apache-2.0
"""The test of the conversion of ports' values, against Amaranth's own functions."""

import random

import pytest
from amaranth.hdl import Const, Shape, signed, unsigned
from amaranth.lib import data
from amaranth.lib.enum import Enum

from systola.verif.kit.seeds import random_seed
from systola.verif.units.packing import Fields, from_bits, to_bits


class Colour(Enum, shape=unsigned(3)):
    RED = 1
    BLUE = 6


INNER = data.StructLayout({"small": signed(5), "flag": 1, "nothing": 0})
LAYOUT = data.StructLayout(
    {"lanes": data.ArrayLayout(INNER, 3), "numbers": data.ArrayLayout(signed(4), 2), "wide": 70}
)


def some(rng, shape):
    """Return a random value of a shape, in the form in which a test would write it."""
    if isinstance(shape, data.ArrayLayout):
        return [some(rng, shape.elem_shape) for _ in range(shape.length)]
    if isinstance(shape, data.StructLayout):
        return {name: some(rng, inner) for name, inner in shape.members.items()}
    shape = Shape.cast(shape)
    low = -(1 << shape.width >> 1) if shape.signed else 0
    return low + rng.getrandbits(shape.width) if shape.width else 0


def test_as_amaranth():
    rng = random.Random(random_seed())
    for _ in range(100):
        value = some(rng, LAYOUT)
        bits = to_bits(LAYOUT, value)
        assert bits == LAYOUT.const(value).as_value().value
        theirs, ours = LAYOUT.from_bits(bits), from_bits(LAYOUT, bits)
        assert ours == theirs and to_bits(LAYOUT, ours) == to_bits(LAYOUT, theirs) == bits
        assert ours.wide == theirs.wide == value["wide"]
        assert list(ours.numbers) == list(theirs.numbers) == value["numbers"]
        assert [(lane.small, lane["flag"]) for lane in ours.lanes] == [
            (lane.small, lane["flag"]) for lane in theirs.lanes
        ]


def test_numbers():
    assert to_bits(signed(4), -3) == 13 and from_bits(signed(4), 13) == -3
    assert to_bits(unsigned(4), 19) == 3 and from_bits(4, 13) == 13
    assert to_bits(LAYOUT, -1) == (1 << LAYOUT.size) - 1


def test_members():
    assert to_bits(Colour, Colour.BLUE) == Const.cast(Colour.const(Colour.BLUE)).value == 6
    assert from_bits(Colour, 1) is Colour.RED


def test_unknown_names():
    with pytest.raises(KeyError):
        to_bits(INNER, {"smal": 1})
    fields = from_bits(INNER, 3)
    assert isinstance(fields, Fields)
    with pytest.raises(AttributeError):
        _ = fields.smal
