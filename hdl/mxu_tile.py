# SPDX-License-Identifier: Apache-2.0
"""A rectangle of processing elements: the whole array up to 32x32, else one of equal tiles."""

from amaranth.hdl import Cat, Module, Signal, signed
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

    With `wide`, operands are the bytes of int16: `unsigned_vector[k]` comes with an activation that
    is a low byte, from 0 to 255, and `unsigned_weights[k]` with the swap of a tile of low bytes.

    `hold` stops everything for a cycle, but for `load`: cycles above are those without `hold`.

    Members: `partial_in` and `partial_out` are the sums from the tile above and to the tile below;
    the members in `_out` go to the tile on the right, one stage later.
    """

    def __init__(self, *, rows: int, cols: int, columns_per_stage: int, wide: bool):
        self._rows = rows
        self._cols = cols
        self._columns_per_stage = columns_per_stage
        self._wide = wide
        self._moving = {"activations": data.ArrayLayout(signed(8), rows), "swap": rows}
        """What moves along the rows."""
        if wide:
            self._moving |= {"unsigned_vector": rows, "unsigned_weights": rows}
        super().__init__(
            {
                **{name: In(shape) for name, shape in self._moving.items()},
                **{f"{name}_out": Out(shape) for name, shape in self._moving.items()},
                "weights": In(data.ArrayLayout(signed(8), cols)),
                "load": In(rows),
                "hold": In(1),
                "partial_in": In(data.ArrayLayout(signed(32), cols)),
                "partial_out": Out(data.ArrayLayout(signed(32), cols)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operand = signed(9 if self._wide else 8)
        partial = [self.partial_in[c] for c in range(self._cols)]
        for k in range(self._rows):
            row = {}
            for name in self._moving:
                row[name] = Signal(signed(8) if name == "activations" else 1, name=f"{name}_{k}_0")
                m.d.comb += row[name].eq(getattr(self, name)[k])
            for c in range(self._cols):
                if c and c % self._columns_per_stage == 0:
                    row = self._stage(m, f"{k}_{c}", row)
                shadow = Signal(signed(8), name=f"shadow_{k}_{c}", reset_less=True)
                active = Signal(operand, name=f"active_{k}_{c}", reset_less=True)
                product = Signal(
                    signed(2 * operand.width), name=f"product_{k}_{c}", reset_less=True
                )
                total = Signal(signed(32), name=f"partial_{k}_{c}", reset_less=True)
                activation, fresh = row["activations"], shadow
                if self._wide:
                    activation = Cat(activation, activation[7] & ~row["unsigned_vector"])
                    fresh = Cat(shadow, shadow[7] & ~row["unsigned_weights"])
                with m.If(self.load[k]):
                    m.d.sync += shadow.eq(self.weights[c])
                with m.If(~self.hold):
                    with m.If(row["swap"]):
                        m.d.sync += active.eq(fresh)
                    m.d.sync += [
                        product.eq(activation.as_signed() * active),
                        total.eq(partial[c] + product),
                    ]
                partial[c] = total
            row = self._stage(m, f"{k}_out", row)
            m.d.comb += [getattr(self, f"{name}_out")[k].eq(row[name]) for name in row]
        m.d.comb += [self.partial_out[c].eq(partial[c]) for c in range(self._cols)]
        return m

    def _stage(self, m: Module, where: str, row: dict[str, Signal]) -> dict[str, Signal]:
        """One pipeline register of a row: the same a cycle later."""
        later = {
            name: Signal.like(signal, name=f"{name}_{where}", reset_less=name != "swap")
            for name, signal in row.items()
        }
        with m.If(~self.hold):
            m.d.sync += [later[name].eq(signal) for name, signal in row.items()]
        return later
