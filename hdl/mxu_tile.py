# SPDX-License-Identifier: Apache-2.0
"""A rectangle of processing elements: the whole array up to 32x32, else one of equal tiles."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

PE_LATENCY = 2
"""Cycles from an activation at a PE to its product in the partial sum: product, then sum."""


class MXUTile(wiring.Component):
    """`rows` x `cols` weight-stationary PEs, int8 x int8 into 32 bits modulo 2^32.

    Row k takes activation x[k] at cycle t + k (the skew is the caller's work). Groups of
    `columns_per_stage` columns share one activation register, so group g works g cycles after
    group 0, and the sum of a column leaves at t + rows - 1 + PE_LATENCY + g. One vector a cycle, no
    back-pressure: bubbles are vectors whose result nobody takes.

    Weights are double-buffered. `load[k]` writes `weights` into the shadow row k. A one in
    `swap[k]` moves along row k with the activations, and copies shadow to active weights between
    the activation in front of it and the one behind: it comes in the cycle before the first vector
    that shall meet the new weights.

    `hold` stops everything for a cycle, but for `load`: cycles above are those without `hold`.

    Members: `partial_in` and `partial_out` are the sums from the tile above and to the tile below,
    `activations_out` and `swap_out` go to the tile on the right, one stage later.
    """

    def __init__(self, *, rows: int, cols: int, columns_per_stage: int):
        self._rows = rows
        self._cols = cols
        self._columns_per_stage = columns_per_stage
        super().__init__(
            {
                "activations": In(data.ArrayLayout(signed(8), rows)),
                "swap": In(rows),
                "weights": In(data.ArrayLayout(signed(8), cols)),
                "load": In(rows),
                "hold": In(1),
                "partial_in": In(data.ArrayLayout(signed(32), cols)),
                "partial_out": Out(data.ArrayLayout(signed(32), cols)),
                "activations_out": Out(data.ArrayLayout(signed(8), rows)),
                "swap_out": Out(rows),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        partial = [self.partial_in[c] for c in range(self._cols)]
        for k in range(self._rows):
            activation = Signal(signed(8), name=f"activation_{k}_0")
            swap = Signal(name=f"swap_{k}_0")
            m.d.comb += [activation.eq(self.activations[k]), swap.eq(self.swap[k])]
            for c in range(self._cols):
                if c and c % self._columns_per_stage == 0:
                    activation, swap = self._stage(m, f"{k}_{c}", activation, swap)
                shadow = Signal(signed(8), name=f"shadow_{k}_{c}", reset_less=True)
                active = Signal(signed(8), name=f"active_{k}_{c}", reset_less=True)
                product = Signal(signed(16), name=f"product_{k}_{c}", reset_less=True)
                total = Signal(signed(32), name=f"partial_{k}_{c}", reset_less=True)
                with m.If(self.load[k]):
                    m.d.sync += shadow.eq(self.weights[c])
                with m.If(~self.hold):
                    with m.If(swap):
                        m.d.sync += active.eq(shadow)
                    m.d.sync += [
                        product.eq(activation * active),
                        total.eq(partial[c] + product),
                    ]
                partial[c] = total
            activation, swap = self._stage(m, f"{k}_out", activation, swap)
            m.d.comb += [self.activations_out[k].eq(activation), self.swap_out[k].eq(swap)]
        m.d.comb += [self.partial_out[c].eq(partial[c]) for c in range(self._cols)]
        return m

    def _stage(
        self, m: Module, name: str, activation: Signal, swap: Signal
    ) -> tuple[Signal, Signal]:
        """One pipeline register of a row: the same activation and swap a cycle later."""
        next_activation = Signal(signed(8), name=f"activation_{name}", reset_less=True)
        next_swap = Signal(name=f"swap_{name}")
        with m.If(~self.hold):
            m.d.sync += [next_activation.eq(activation), next_swap.eq(swap)]
        return next_activation, next_swap
