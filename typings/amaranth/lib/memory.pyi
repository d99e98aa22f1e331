# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping
from typing import Any

from amaranth.hdl import ShapeLike
from amaranth.lib import wiring

class Memory(wiring.Component):
    shape: Any
    depth: int
    init: Any
    attrs: dict[str, Any]
    def __init__(
        self,
        *,
        shape: ShapeLike,
        depth: int,
        init: Iterable[Any],
        attrs: Mapping[str, Any] | None = None,
    ) -> None: ...
    def read_port(self, *, domain: str = "sync", transparent_for: Iterable[Any] = ()) -> Any: ...
    def write_port(self, *, domain: str = "sync", granularity: int | None = None) -> Any: ...

class ReadPort(wiring.PureInterface):
    memory: Any
    domain: str
    transparent_for: tuple[WritePort, ...]

class WritePort(wiring.PureInterface):
    memory: Any
    domain: str
