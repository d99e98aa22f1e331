# SPDX-License-Identifier: Apache-2.0
from typing import Any

from amaranth.hdl import ShapeLike
from amaranth.lib import wiring

class Signature(wiring.Signature):
    payload_shape: Any
    def __init__(
        self,
        payload_shape: ShapeLike,
        *,
        payload_init: Any = None,
        always_valid: bool = False,
        always_ready: bool = False,
    ) -> None: ...

class Interface(wiring.PureInterface):
    payload: Any
    p: Any
    valid: Any
    ready: Any
