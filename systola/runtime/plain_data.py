# SPDX-License-Identifier: Apache-2.0
"""The translation of dataclasses of plain data to JSON and arrays, and back.

All fields of a class are stored, by their names and types: a new field needs no change here. The
data to unpack may be any content of a file, so all of them are checked against the types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from systola.compiler.operations import Value

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Types of arrays that can be stored."""

T = TypeVar("T")
_SHARED = Value
"""A class with objects that are compared by identity: each is stored once, in a list."""


class DataError(ValueError):
    """An error for data that do not have the form of their class, with the reason in one line."""


class Packer:
    """A packer that takes objects apart; arrays and objects of _SHARED go into lists."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.shared: list[dict[str, object]] = []
        self._arrays: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._shared: dict[object, int] = {}

    def pack(self, item: object) -> object:
        """Return the JSON value that represents `item`."""
        if isinstance(item, Enum):
            return item.value
        if item is None or isinstance(item, (bool, int, float, str)):
            return item
        if isinstance(item, bytes):
            return self._array(np.frombuffer(item, np.uint8))
        if isinstance(item, np.ndarray):
            return self._array(cast("NDArray[Any]", item))
        if isinstance(item, tuple):
            return [self.pack(each) for each in cast("tuple[object, ...]", item)]
        if isinstance(item, Mapping):
            named = cast("Mapping[str, object]", item)
            return {name: self.pack(each) for name, each in named.items()}
        if isinstance(item, _SHARED):
            if item not in self._shared:
                self._shared[item] = len(self.shared)
                self.shared.append(self._fields(item))
            return self._shared[item]
        return self._fields(item)

    def _fields(self, item: Any) -> dict[str, object]:
        packed = {each.name: self.pack(getattr(item, each.name)) for each in fields(item)}
        return {"class": type(item).__name__, **packed}

    def _array(self, array: NDArray[Any]) -> int:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._arrays:
            self._arrays[key] = len(self.arrays)
            self.arrays.append(array)
        return self._arrays[key]


class Unpacker:
    """An unpacker that restores objects. It raises DataError for data that do not fit their
    classes.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], shared: Sequence[object]) -> None:
        self._arrays = arrays
        self._shared = [self._object(_SHARED, each, "value") for each in shared]

    def unpack(self, kind: type[T], data: object) -> T:
        """Return the object of class `kind` that `data` represents."""
        return self._object(kind, data, kind.__name__)

    def _any(self, kind: Any, data: object, where: str) -> Any:
        origin = get_origin(kind)
        if origin in (Union, UnionType):
            return self._one_of(get_args(kind), data, where)
        if origin is tuple:
            return self._tuple(get_args(kind), data, where)
        if origin is Mapping:
            if not isinstance(data, dict):
                raise DataError(f"{where} is no list of names")
            items = cast("dict[str, object]", data).items()
            return {name: self._any(get_args(kind)[1], item, where) for name, item in items}
        if origin is np.ndarray:
            return self._array(get_args(get_args(kind)[1])[0], data, where)
        if kind is bytes:
            return self._array(np.uint8, data, where).tobytes()
        if kind is _SHARED:
            return self._item(self._shared, data, where)
        if is_dataclass(kind):
            return self._object(cast("type[Any]", kind), data, where)
        if issubclass(kind, Enum):
            return self._member(kind, data, where)
        if kind is float and type(data) is int:
            try:
                data = float(data)
            except OverflowError:
                raise DataError(f"{where} is no float") from None
        if type(data) is not kind or (kind is float and not math.isfinite(cast("float", data))):
            raise DataError(f"{where} is no {kind.__name__}")
        return data

    def _member(self, kind: type[Enum], data: object, where: str) -> Enum:
        for member in kind:
            if type(member.value) is type(data) and member.value == data:
                return member
        raise DataError(f"{where} is no {kind.__name__}")

    def _one_of(self, kinds: tuple[Any, ...], data: object, where: str) -> Any:
        if data is None and NoneType in kinds:
            return None
        if isinstance(data, dict):
            name = cast("dict[str, object]", data).get("class")
            kinds = tuple(kind for kind in kinds if kind.__name__ == name)
        else:
            lists = isinstance(data, list)
            kinds = tuple(
                kind
                for kind in kinds
                if (get_origin(kind) is tuple) == lists and not is_dataclass(kind)
            )
        kinds = tuple(kind for kind in kinds if kind is not NoneType)
        if len(kinds) != 1:
            raise DataError(f"{where} is of no known class")
        return self._any(kinds[0], cast("object", data), where)

    def _tuple(self, kinds: tuple[Any, ...], data: object, where: str) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise DataError(f"{where} is no list")
        items = cast("list[object]", data)
        if len(kinds) == 2 and kinds[1] is ...:
            kinds = (kinds[0],) * len(items)
        if len(items) != len(kinds):
            raise DataError(f"{where} has {len(items)} items, not {len(kinds)}")
        return tuple(self._any(kind, item, where) for kind, item in zip(kinds, items, strict=True))

    def _array(self, dtype: Any, data: object, where: str) -> NDArray[Any]:
        array: NDArray[Any] = self._item(self._arrays, data, where)
        if dtype is not Any and array.dtype != np.dtype(dtype):
            raise DataError(f"{where} is {array.dtype}, not {np.dtype(dtype)}")
        return array

    def _item(self, items: Sequence[Any], number: object, where: str) -> Any:
        if type(number) is not int or not 0 <= number < len(items):
            raise DataError(f"{where} is not there")
        return items[number]

    def _object(self, kind: type[T], data: object, where: str) -> T:
        if not isinstance(data, dict):
            raise DataError(f"{where} is no {kind.__name__}")
        found = cast("dict[str, object]", data)
        kinds = _field_kinds(kind)
        if found.keys() != {"class", *kinds} or found["class"] != kind.__name__:
            raise DataError(f"{where} has not the fields of {kind.__name__}")
        values = {name: self._any(each, found[name], name) for name, each in kinds.items()}
        try:
            return kind(**values)
        except ValueError as error:
            raise DataError(str(error)) from None


@cache
def _field_kinds(kind: type[Any]) -> dict[str, Any]:
    """Return the names and types of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}
