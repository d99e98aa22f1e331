# SPDX-License-Identifier: Apache-2.0
"""The signals between a port of the on-board memory and the memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

ACCESS_LATENCY = 3
"""Cycles from the cycle in which an access is accepted to its answer."""


class MemoryAccessSignature(wiring.Signature):
    """A signature for accesses of one beat, seen from the port that requests them.

    An access is accepted in a cycle with `valid` and `ready`. ACCESS_LATENCY cycles later `answer`
    is high, with `read_data` for reads. `outside` is then high if the memory ends before `address`.
    The answer cannot be stalled. `address` counts bytes; its bits below a beat do not matter.
    """

    def __init__(self, *, address_bits: int, data_bytes: int):
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "address": Out(address_bits),
                "write": Out(1),
                "data": Out(8 * data_bytes),
                "strobes": Out(data_bytes),
                "answer": In(1),
                "read_data": In(8 * data_bytes),
                "outside": In(1),
            }
        )
