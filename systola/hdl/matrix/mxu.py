# SPDX-License-Identifier: Apache-2.0
"""The matrix unit's datapath: systolic data set-up, array of tiles, and alignment of the sums."""

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
    ValueLike,
    signed,
)
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.matrix.multiplier_row import operand_shape
from systola.hdl.matrix.mxu_tile import PE_LATENCY, MXUTile, sum_shape
from systola.hdl.parts.tile_limit import TILE_LIMIT


def tile_size(config: Config) -> tuple[int, int]:
    """Return the rows and columns of one tile of the configuration's array."""
    stage = config.columns_per_stage
    if config.rows <= TILE_LIMIT and config.cols <= TILE_LIMIT:
        return config.rows, config.cols
    rows = max(n for n in range(1, TILE_LIMIT + 1) if config.rows % n == 0)
    cols = max(n for n in range(stage, TILE_LIMIT + 1, stage) if config.cols % n == 0)
    return rows, cols


def make_tile(config: Config) -> MXUTile:
    """Return a tile of the configuration's array, as a submodule or as a module of its own."""
    rows, cols = tile_size(config)
    return MXUTile(
        rows=rows,
        cols=cols,
        columns_per_stage=config.columns_per_stage,
        wide=config.wide,
        depth=config.rows,
        products_per_dsp=config.products_per_dsp,
        rows_in_logic=config.rows_in_logic,
    )


def is_grid(config: Config) -> bool:
    """Return whether the array is a grid of instances of the module `mxu_tile`."""
    return tile_size(config) != (config.rows, config.cols)


class MXU(wiring.Component):
    """An array that multiplies one int8 vector of `rows` by the active weight tile each cycle.

    | port               | meaning |
    |---|---|
    | `vector`           | the vector; one a cycle, without back-pressure |
    | `unsigned_vector`  | its bytes are low bytes of int16, 0 to 255; only with 16-bit modes |
    | `swap`             | from this vector on, vectors meet the weights in the shadow rows, which
                           become active |
    | `unsigned_weights` | with a swap: its weights are low bytes of int16, 0 to 255; only with
                           16-bit modes |
    | `weights`          | a row of weights |
    | `load`             | `load[k]` writes `weights` into shadow row k |
    | `hold_next`        | in the next cycle all but `load` stops; the latencies below do not count
                           such a cycle |
    | `sums`             | the sums of the columns, `latency` = rows + stages + 2 cycles after their
                           vector |

    `load[k]` comes at the latest k - 1 cycles after the swap that takes the row. It comes at the
    earliest `stages` - 1 + k cycles after the swap that took the old content of the row.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._flags = ["swap", "unsigned_weights"] if config.wide else ["swap"]
        """Names of the flags of a vector; inside the array a flag has one bit for each row."""
        super().__init__(
            {
                "vector": In(data.ArrayLayout(signed(8), config.rows)),
                **({"unsigned_vector": In(1)} if config.wide else {}),
                **{name: In(1) for name in self._flags},
                "weights": In(8 * config.cols),
                "load": In(config.rows),
                "hold_next": In(1),
                "sums": Out(data.ArrayLayout(signed(32), config.cols)),
            }
        )

    @staticmethod
    def latency(config: Config) -> int:
        """Return the cycles from `vector` to `sums`."""
        return config.rows - 1 + PE_LATENCY + config.stages - 1

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        rows, cols, wide = self._config.rows, self._config.cols, self._config.wide
        operand = operand_shape(wide=wide)
        hold_skew = Signal()
        hold_align = Signal()
        m.d.sync += [hold_skew.eq(self.hold_next), hold_align.eq(self.hold_next)]

        # The array takes signed operands. For low bytes, the sign bit is 0.
        vector_operands = Signal(data.ArrayLayout(operand, rows))
        for k, byte in enumerate(self.vector):
            signed_byte = Cat(byte, byte[7] & ~self.unsigned_vector) if wide else byte
            m.d.comb += vector_operands[k].eq(signed_byte)

        # Systolic data set-up: row k is delayed by k cycles. Stage k of the delay has the rows from
        # row k to the last one.
        skewed: list[Value] = []
        flags: dict[str, list[Value]] = {name: [] for name in self._flags}
        vector = vector_operands.as_value()
        now = {name: getattr(self, name) for name in self._flags}
        for k in range(rows):
            skewed.append(vector[: operand.width])
            for name in self._flags:
                flags[name].append(now[name])
            if k + 1 < rows:
                waiting = vector[operand.width :]
                next_vector = Signal(len(waiting), name=f"skew_{k + 1}", reset_less=True)
                later = {name: Signal(name=f"skew_{name}_{k + 1}") for name in self._flags}
                with m.If(~hold_skew):
                    m.d.sync += next_vector.eq(waiting)
                    m.d.sync += [later[name].eq(now[name]) for name in self._flags]
                vector, now = next_vector, later
        moving = {"activations": Cat(*skewed)} | {n: Cat(*bits) for n, bits in flags.items()}

        total = sum_shape(rows=rows, wide=wide)
        column_sums = Signal(total.width * cols)
        if is_grid(self._config):
            self._place_grid(m, moving, column_sums)
        else:
            m.submodules.tile = tile = make_tile(self._config)
            m.d.comb += [getattr(tile, name).eq(value) for name, value in moving.items()]
            m.d.comb += [
                tile.weights.eq(self.weights),
                tile.load.eq(self.load),
                tile.hold_next.eq(self.hold_next),
                column_sums.eq(tile.partial_out),
            ]

        # The sums of column group g come g cycles late. Groups before the last one wait for the
        # last one.
        width = total.width * self._config.columns_per_stage
        waiting = column_sums[:0]
        for stage in range(self._config.stages - 1):
            joined = Cat(waiting, column_sums[stage * width : (stage + 1) * width])
            waiting = Signal(len(joined), name=f"align_{stage}", reset_less=True)
            with m.If(~hold_align):
                m.d.sync += waiting.eq(joined)
        aligned_sums = Signal(data.ArrayLayout(total, cols))
        m.d.comb += aligned_sums.eq(Cat(waiting, column_sums[len(waiting) :]))
        m.d.comb += [self.sums[c].eq(aligned_sums[c]) for c in range(cols)]
        return m

    def _place_grid(self, m: Module, moving: dict[str, Value], sums: Signal) -> None:
        rows, cols = tile_size(self._config)
        across, down = self._config.cols // cols, self._config.rows // rows
        partial: list[ValueLike] = [0] * across
        for i in range(down):
            # Each row of tiles gets an equal part of each value.
            here: dict[str, Value] = {
                name: value.word_select(i, len(value) // down) for name, value in moving.items()
            }
            for j in range(across):
                right: dict[str, Value] = {
                    name: Signal(len(value), name=f"{name}_{i}_{j}") for name, value in here.items()
                }
                below = Signal(len(sums) // across, name=f"partial_{i}_{j}")
                m.submodules[f"tile_{i}_{j}"] = Instance(
                    "mxu_tile",
                    i_clk=ClockSignal(),
                    i_rst=ResetSignal(),
                    **{f"i_{name}": value for name, value in here.items()},
                    i_weights=self.weights[j * cols * 8 : (j + 1) * cols * 8],
                    i_load=self.load[i * rows : (i + 1) * rows],
                    i_hold_next=self.hold_next,
                    i_partial_in=partial[j],
                    o_partial_out=below,
                    **{f"o_{name}_out": value for name, value in right.items()},
                )
                here, partial[j] = right, below
        m.d.comb += sums.eq(Cat(*partial))
