# SPDX-License-Identifier: Apache-2.0
from typing import Any

from amaranth.lib import wiring

class SyncFIFO(wiring.Component):
    def __init__(self, *, width: int, depth: int) -> None: ...

class SyncFIFOBuffered(wiring.Component):
    def __init__(self, *, width: int, depth: int) -> None: ...

class AsyncFIFO(wiring.Component):
    def __init__(
        self,
        *,
        width: int,
        depth: int,
        r_domain: str = "read",
        w_domain: str = "write",
        exact_depth: bool = False,
    ) -> None: ...

class AsyncFIFOBuffered(wiring.Component):
    def __init__(
        self,
        *,
        width: int,
        depth: int,
        r_domain: str = "read",
        w_domain: str = "write",
        exact_depth: bool = False,
    ) -> None: ...

class FIFOInterface:
    width: int
    depth: int
    w_stream: Any
    r_stream: Any
    def __init__(self, *, width: int, depth: int) -> None: ...
