# SPDX-License-Identifier: Apache-2.0
import enum as py_enum
from typing import Any

from amaranth.hdl import ShapeLike, Statement, Value, ValueCastable, ValueLike

class Enum(py_enum.Enum):
    def __init_subclass__(
        cls, *, shape: ShapeLike | None = None, view_class: type | None = None
    ) -> None: ...

class IntEnum(py_enum.IntEnum):
    def __init_subclass__(
        cls, *, shape: ShapeLike | None = None, view_class: type | None = None
    ) -> None: ...

class EnumView(ValueCastable):
    def __init__(self, enum: type[Enum], target: ValueLike) -> None: ...
    def as_value(self) -> Value: ...
    def eq(self, other: Any, *, src_loc_at: int = 0) -> Statement: ...
    def __eq__(self, other: Any) -> Value: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Value: ...  # type: ignore[override]
