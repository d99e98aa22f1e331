# SPDX-License-Identifier: Apache-2.0
"""The signals between a port of the on-board memory and the memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

ACCESS_LATENCY = 3
"""Cycles from the cycle in which an access is accepted to its answer."""


class MemoryAccessSignature(wiring.Signature):
    """A signature for accesses of one beat, seen from the port that requests them.

    | member      | meaning |
    |---|---|
    | `valid`     | asks for an access |
    | `ready`     | the access is accepted |
    | `address`   | byte address; the bits that select a byte of a beat are ignored |
    | `write`     | the access is a write |
    | `data`      | data of a write |
    | `strobes`   | a bit for each byte: it is written |
    | `answer`    | answer to the access, ACCESS_LATENCY cycles after its acceptance; it cannot be
                    stalled |
    | `read_data` | with `answer`: data of a read |
    | `outside`   | with `answer`: the memory ends before `address` |
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
