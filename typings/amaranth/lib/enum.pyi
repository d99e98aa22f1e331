# SPDX-License-Identifier: Apache-2.0
import enum as py_enum
from enum import (
    CONFORM,
    CONTINUOUS,
    EJECT,
    KEEP,
    NAMED_FLAGS,
    STRICT,
    UNIQUE,
    EnumCheck,
    FlagBoundary,
    ReprEnum,
    StrEnum,
    auto,
    global_enum,
    global_enum_repr,
    global_flag_repr,
    global_str,
    member,
    nonmember,
    property,
    unique,
    verify,
)
from typing import Any

from amaranth.hdl import ShapeLike, Statement, Value, ValueCastable, ValueLike

__all__ = [
    "CONFORM",
    "CONTINUOUS",
    "EJECT",
    "KEEP",
    "NAMED_FLAGS",
    "STRICT",
    "UNIQUE",
    "Enum",
    "EnumCheck",
    "EnumMeta",
    "EnumType",
    "EnumView",
    "Flag",
    "FlagBoundary",
    "FlagView",
    "IntEnum",
    "IntFlag",
    "ReprEnum",
    "StrEnum",
    "auto",
    "global_enum",
    "global_enum_repr",
    "global_flag_repr",
    "global_str",
    "member",
    "nonmember",
    "property",
    "unique",
    "verify",
]

class Enum(py_enum.Enum):
    def __init_subclass__(
        cls, *, shape: ShapeLike | None = None, view_class: type | None = None
    ) -> None: ...

class IntEnum(py_enum.IntEnum):
    def __init_subclass__(
        cls, *, shape: ShapeLike | None = None, view_class: type | None = None
    ) -> None: ...

class Flag(py_enum.Flag):
    def __init_subclass__(
        cls,
        *,
        shape: ShapeLike | None = None,
        view_class: type | None = None,
        boundary: FlagBoundary | None = None,
    ) -> None: ...

class IntFlag(py_enum.IntFlag):
    def __init_subclass__(
        cls,
        *,
        shape: ShapeLike | None = None,
        view_class: type | None = None,
        boundary: FlagBoundary | None = None,
    ) -> None: ...

EnumType = py_enum.EnumType
EnumMeta = py_enum.EnumType

class EnumView(ValueCastable):
    def __init__(self, enum: type[Enum], target: ValueLike) -> None: ...
    def as_value(self) -> Value: ...
    def eq(self, other: Any, *, src_loc_at: int = 0) -> Statement: ...
    def __eq__(self, other: Any) -> Value: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Value: ...  # type: ignore[override]

class FlagView(EnumView):
    def __invert__(self) -> FlagView: ...
    def __and__(self, other: Any) -> FlagView: ...
    def __rand__(self, other: Any) -> FlagView: ...
    def __or__(self, other: Any) -> FlagView: ...
    def __ror__(self, other: Any) -> FlagView: ...
    def __xor__(self, other: Any) -> FlagView: ...
    def __rxor__(self, other: Any) -> FlagView: ...
