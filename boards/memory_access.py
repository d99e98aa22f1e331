# SPDX-License-Identifier: Apache-2.0
"""The signals between a port of the on-board memory and the memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

ACCESS_LATENCY = 3
"""Cycles from the one in which an access is taken to its answer."""


class MemoryAccessSignature(wiring.Signature):
    """Accesses of one beat, seen from who asks.

    An access is taken in a cycle with `valid` and `ready`; ACCESS_LATENCY cycles later `answer` is
    up, for reads with `read_data`, and `outside` tells that the memory ends before `address`. The
    answer cannot be held up. `address` counts bytes; its bits below a beat do not matter.
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
