# SPDX-License-Identifier: Apache-2.0
"""A rectangle of processing elements (PEs). An array of up to 32x32 is one tile. A larger array
consists of equal tiles.
"""

from amaranth.hdl import Cat, Module, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.matrix.multiplier_row import PRODUCT_LATENCY, MultiplierRow, operand_shape
from systola.hdl.parts.replica import Replica

PE_LATENCY = PRODUCT_LATENCY + 1
"""Cycles from an activation at a PE to the partial sum that contains its product."""


def sum_shape(*, rows: int, wide: bool) -> Shape:
    """Return a shape that holds the sum of `rows` products."""
    if wide:
        return Shape.cast(range(-128 * 255 * rows, 255 * 255 * rows + 1))
    return Shape.cast(range(-128 * 127 * rows, 128 * 128 * rows + 1))


class MXUTile(wiring.Component):
    """A tile that has `rows` x `cols` weight-stationary PEs, int8 x int8, of an array of `depth`
    rows.

    | port                                                  | meaning |
    |---|---|
    | `activations`                                         | the activation of each row |
    | `swap`                                                | a bit for each row: takes its shadow
                                                              weights into the multipliers |
    | `unsigned_weights`                                    | with the swap of a row: its weights
                                                              are low bytes; only with `wide` |
    | `activations_out`, `swap_out`, `unsigned_weights_out` | the inputs for the tile on the right |
    | `weights`                                             | a row of weights |
    | `load`                                                | `load[k]` writes `weights` into the
                                                              shadow row k |
    | `hold_next`                                           | in the next cycle all but `load`
                                                              stops; the latencies below do not
                                                              count such a cycle |
    | `partial_in`, `partial_out`                           | partial sums, from the tile above and
                                                              to the tile below |

    Row k takes its activation x[k] at cycle t + k: the user skews the vector. Groups of
    `columns_per_stage` columns share one activation register, so group g works g cycles after group
    0. The sum of a column leaves at t + rows - 1 + PE_LATENCY + g. Throughput: one vector a cycle,
    without back-pressure. A bubble is a vector with a result that is not used.

    Weights are double-buffered. A one in `swap[k]` moves along row k together with the activations.
    It comes with the first vector that shall meet the shadow weights.

    With `wide`, operands are bytes of int16 and have 9 bits, -128 to 255. The first `rows_in_logic`
    rows have no DSP blocks. MultiplierRow describes `products_per_dsp`.
    """

    def __init__(
        self,
        *,
        rows: int,
        cols: int,
        columns_per_stage: int,
        wide: bool,
        depth: int,
        products_per_dsp: int,
        rows_in_logic: int = 0,
    ):
        self._rows = rows
        self._products_per_dsp = products_per_dsp
        self._rows_in_logic = rows_in_logic
        self._cols = cols
        self._columns_per_stage = columns_per_stage
        self._wide = wide
        self._operand = operand_shape(wide=wide)
        self._sum = sum_shape(rows=depth, wide=wide)
        self._moving = {"activations": data.ArrayLayout(self._operand, rows), "swap": rows}
        """Shapes of the values that move along the rows, by name."""
        if wide:
            self._moving |= {"unsigned_weights": rows}
        super().__init__(
            {
                **{name: In(shape) for name, shape in self._moving.items()},
                **{f"{name}_out": Out(shape) for name, shape in self._moving.items()},
                "weights": In(data.ArrayLayout(signed(8), cols)),
                "load": In(rows),
                "hold_next": In(1),
                "partial_in": In(data.ArrayLayout(self._sum, cols)),
                "partial_out": Out(data.ArrayLayout(self._sum, cols)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        partial = [self.partial_in[c] for c in range(self._cols)]
        for k in range(self._rows):
            products = m.submodules[f"row_{k}"] = MultiplierRow(
                cols=self._cols,
                columns_per_stage=self._columns_per_stage,
                wide=self._wide,
                products_per_dsp=0 if k < self._rows_in_logic else self._products_per_dsp,
            )
            row = {name: getattr(self, name)[k] for name in self._moving}
            moves = ~self.hold_next
            for c in range(self._cols):
                stage, place = divmod(c, self._columns_per_stage)
                if place == 0:
                    # Each stage has its own register of this signal, as a single register would be
                    # too far from its users.
                    replica = m.submodules[f"moves_{k}_{stage}"] = Replica()
                    moves = replica.output
                    if stage:
                        row = self._later(m, f"{k}_{stage}", row, moves)
                    m.d.comb += [
                        replica.input.eq(~self.hold_next),
                        products.enable[stage].eq(moves),
                        products.load[stage].eq(row["swap"]),
                        products.activations[stage].eq(row["activations"]),
                    ]
                shadow_weight = Signal(signed(8), name=f"shadow_weight_{k}_{c}", reset_less=True)
                column_partial = Signal(self._sum, name=f"partial_{k}_{c}", reset_less=True)
                fresh = shadow_weight
                if self._wide:
                    fresh = Cat(shadow_weight, shadow_weight[7] & ~row["unsigned_weights"])
                with m.If(self.load[k]):
                    m.d.sync += shadow_weight.eq(self.weights[c])
                m.d.comb += products.weights[c].eq(fresh)
                with m.If(moves):
                    m.d.sync += column_partial.eq(partial[c] + products.products[c])
                partial[c] = column_partial
            row = self._later(m, f"{k}_out", row, moves)
            m.d.comb += [getattr(self, f"{name}_out")[k].eq(row[name]) for name in row]
        m.d.comb += [self.partial_out[c].eq(partial[c]) for c in range(self._cols)]
        return m

    def _later(
        self, m: Module, where: str, row: dict[str, Value], moves: Signal
    ) -> dict[str, Value]:
        """Return the values of a row one cycle later, from a pipeline register."""
        later = {
            name: Signal.like(value, name=f"{name}_{where}", reset_less=name != "swap")
            for name, value in row.items()
        }
        with m.If(moves):
            m.d.sync += [later[name].eq(value) for name, value in row.items()]
        return later
