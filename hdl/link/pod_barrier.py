# SPDX-License-Identifier: Apache-2.0
"""Waits until all cores of a pod have come to a barrier."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

CORES_BITS = 11
"""A pod has up to 2^10 cores."""


class PodBarrier(wiring.Component):
    """A token to the right says: I have come, or, the k-th one of a barrier, so have I and the
    k - 1 cores to my left; it goes out when the k - 1st has come from there. Likewise to the left.
    With n = `cores`, a core that has got ceil((n - 1) / 2) tokens from the left and the other
    floor((n - 1) / 2) from the right knows that all have come, and sends as many to where they are
    wanted. Each barrier takes as many as it sends, so that those of the next one may come early.

    `arrived` is up from when the core has come to a barrier to `passed`, in which it may go on.
    Tokens come and go one a cycle, out of registers; `cores` stays. Latency: from the last arrival
    on, the way of floor(n / 2) tokens, two cycles each and what lies on the links, and one cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cores": In(CORES_BITS),
                "arrived": In(1),
                "passed": Out(1),
                "from_left": In(1),
                "from_right": In(1),
                "to_left": Out(1),
                "to_right": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        finished: list[Value] = []
        for comes, goes, wanted, name in (
            (self.from_left, self.to_right, self.cores >> 1, "right"),
            (self.from_right, self.to_left, (self.cores - 1)[:CORES_BITS] >> 1, "left"),
        ):
            received = Signal(CORES_BITS, name=f"received_{name}")
            sent = Signal(CORES_BITS, name=f"sent_{name}")
            enough = Signal(CORES_BITS, name=f"enough_{name}")
            sends = Signal(name=f"sends_{name}")
            ends = Signal(name=f"ends_{name}")
            m.d.comb += [
                sends.eq(self.arrived & ~self.passed & (sent != enough) & (sent <= received)),
                ends.eq((sent == enough) & (received >= enough)),
            ]
            m.d.sync += [
                enough.eq(wanted),
                goes.eq(sends),
                received.eq(received + comes),
                sent.eq(sent + sends),
            ]
            with m.If(self.passed):
                m.d.sync += [received.eq(received + comes - enough), sent.eq(0)]
            finished.append(ends)
        m.d.sync += self.passed.eq(self.arrived & ~self.passed & finished[0] & finished[1])
        return m
