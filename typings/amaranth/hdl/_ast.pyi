# SPDX-License-Identifier: Apache-2.0
from amaranth.hdl import Value

class Slice(Value):
    value: Value
    start: int
    stop: int

class Operator(Value):
    operator: str
