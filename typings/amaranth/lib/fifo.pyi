# SPDX-License-Identifier: Apache-2.0
from amaranth.lib import wiring

class SyncFIFO(wiring.Component):
    def __init__(self, *, width: int, depth: int) -> None: ...

class SyncFIFOBuffered(wiring.Component):
    def __init__(self, *, width: int, depth: int) -> None: ...
