# SPDX-License-Identifier: Apache-2.0
"""Conversion of values of Amaranth shapes into the numbers that ports carry, and back.

The results are the same as Amaranth's `shape.const(value)` and `shape.from_bits(bits)`, at a
fraction of the time. A port's layout is evaluated once, not in each cycle of a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from typing import Any

from amaranth.hdl import Const, Shape
from amaranth.lib import data

_Pack = Callable[[Any], int]
_Unpack = Callable[[int], Any]


class Fields:
    """A value of a structure or an array, kept as bits, with its fields by name or by number."""

    __slots__ = ("_unpackers", "bits")

    def __init__(self, bits: int, unpackers: Mapping[Any, tuple[int, int, _Unpack]]):
        self.bits = bits
        self._unpackers = unpackers

    def __getitem__(self, key: Any) -> Any:
        offset, mask, unpack = self._unpackers[key]
        return unpack(self.bits >> offset & mask)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __len__(self) -> int:
        return len(self._unpackers)

    def __iter__(self) -> Iterator[Any]:
        return (self[key] for key in self._unpackers)

    def names(self) -> list[Any]:
        """Return the names of a structure's fields, or the numbers of an array's fields."""
        return list(self._unpackers)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, data.Const):
            return self.bits == _bits(other)
        return self.bits == other.bits if isinstance(other, Fields) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.bits)

    def __repr__(self) -> str:
        return f"Fields({', '.join(f'{key}={self[key]!r}' for key in self._unpackers)})"


_known: dict[int, tuple[Any, _Pack, _Unpack]] = {}
"""For the id() of each shape: the shape, and the functions that pack and unpack its values.

The shape is kept alive, so that no other shape gets the same id().
"""


def to_bits(shape: Any, value: Any) -> int:
    """Return `value`, which has an Amaranth shape, as an unsigned number."""
    return _functions(shape)[0](value)


def from_bits(shape: Any, bits: int) -> Any:
    """Return the value that a shape's `bits` stand for.

    The value is a signed or unsigned number, a member of an enumeration, or Fields.
    """
    return _functions(shape)[1](bits)


def _functions(shape: Any) -> tuple[_Pack, _Unpack]:
    known = _known.get(id(shape))
    if known is None:
        made = _of_layout(shape) if isinstance(shape, data.Layout) else _of_number(shape)
        known = _known[id(shape)] = (shape, *made)
    return known[1:]


def _of_number(shape: Any) -> tuple[_Pack, _Unpack]:
    width, signed = Shape.cast(shape).width, Shape.cast(shape).signed
    mask, sign = (1 << width) - 1, 1 << width >> 1

    def pack(value: Any) -> int:
        return index(value) & mask

    def pack_member(value: Any) -> int:
        return int(value) & mask if isinstance(value, int) else Const.cast(shape.const(value)).value

    def unpack(bits: int) -> Any:
        return bits - (1 << width) if signed and bits & sign else bits

    if hasattr(shape, "from_bits"):  # the shape is an enumeration
        return pack_member, shape.from_bits
    return pack, unpack


def _of_layout(layout: data.Layout) -> tuple[_Pack, _Unpack]:
    packers: dict[Any, tuple[int, _Pack]] = {}
    unpackers: dict[Any, tuple[int, int, _Unpack]] = {}
    for key, field in layout:
        inner_pack, inner_unpack = _functions(field.shape)
        packers[key] = field.offset, inner_pack
        unpackers[key] = field.offset, (1 << field.width) - 1, inner_unpack
    mask = (1 << layout.size) - 1

    def pack(value: Any) -> int:
        if isinstance(value, int):
            return value & mask
        if isinstance(value, Fields):
            return value.bits
        if isinstance(value, data.Const):
            return _bits(value)
        items = enumerate(value) if isinstance(value, Sequence) else value.items()
        bits = 0
        for key, item in items:
            offset, inner = packers[key]
            bits |= inner(item) << offset
        return bits

    def unpack(bits: int) -> Fields:
        return Fields(bits, unpackers)

    return pack, unpack


def _bits(value: data.Const) -> int:
    return value.as_value().value
