# SPDX-License-Identifier: Apache-2.0
"""The matrix unit's datapath: systolic data set-up, array of tiles, and alignment of the sums."""

from amaranth.hdl import Cat, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.mxu_tile import PE_LATENCY, MXUTile

TILE_LIMIT = 32
"""Longest side of one tile. Larger arrays are a grid of one tile module: Amaranth would otherwise
emit each copy anew, and simulators compile the one module once."""


def tile_size(config: Config) -> tuple[int, int]:
    """Rows and columns of one tile of the configuration's array."""
    stage = config.columns_per_stage
    if config.rows <= TILE_LIMIT and config.cols <= TILE_LIMIT:
        return config.rows, config.cols
    rows = max(n for n in range(1, TILE_LIMIT + 1) if config.rows % n == 0)
    cols = max(n for n in range(stage, TILE_LIMIT + 1, stage) if config.cols % n == 0)
    return rows, cols


def make_tile(config: Config) -> MXUTile:
    """The tile of the configuration, to be placed here or converted on its own."""
    rows, cols = tile_size(config)
    return MXUTile(
        rows=rows, cols=cols, columns_per_stage=config.columns_per_stage, wide=config.wide
    )


def is_grid(config: Config) -> bool:
    """Whether the array is a grid of instances of the module `mxu_tile`."""
    return tile_size(config) != (config.rows, config.cols)


class MXU(wiring.Component):
    """Multiplies one int8 vector of `rows` by the active weight tile each cycle.

    Latency: a vector in `vector` at cycle t gives its `cols` sums in `sums` at t + `latency`
    with latency = rows + stages. Throughput one vector a cycle, no back-pressure.

    `swap` in the cycle before a vector makes the shadow weights active for it and those after it.
    `load[k]` writes shadow row k; row k may be written no sooner than `stages` - 1 + k cycles after
    the swap that took its last content.

    `unsigned_vector` and `unsigned_weights`, where there are 16-bit modes, come with a vector and
    with a swap, and say that its bytes are low ones, from 0 to 255.

    `hold` stops everything for a cycle, but for `load`: cycles above are those without `hold`.
    `clear` empties the control registers, as a reset does.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._flags = ["swap"]
        """What accompanies the vectors: one bit for each row."""
        if config.wide:
            self._flags += ["unsigned_vector", "unsigned_weights"]
        super().__init__(
            {
                "vector": In(8 * config.rows),
                **{name: In(1) for name in self._flags},
                "weights": In(8 * config.cols),
                "load": In(config.rows),
                "hold": In(1),
                "sums": Out(32 * config.cols),
                "clear": In(1),
            }
        )

    @staticmethod
    def latency(config: Config) -> int:
        """Cycles from `vector` to `sums`."""
        return config.rows - 1 + PE_LATENCY + config.stages - 1

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        rows, cols = self._config.rows, self._config.cols

        # Systolic data set-up: row k is delayed by k cycles. Stage k carries rows k and up.
        skewed: list[object] = []
        flags: dict[str, list[object]] = {name: [] for name in self._flags}
        vector = self.vector
        now = {name: getattr(self, name) for name in self._flags}
        for k in range(rows):
            skewed.append(vector[:8])
            for name in self._flags:
                flags[name].append(now[name])
            if k + 1 < rows:
                next_vector = Signal(8 * (rows - k - 1), name=f"skew_{k + 1}", reset_less=True)
                later = {name: Signal(name=f"skew_{name}_{k + 1}") for name in self._flags}
                with m.If(~self.hold):
                    m.d.sync += next_vector.eq(vector[8:])
                    m.d.sync += [later[name].eq(now[name]) for name in self._flags]
                vector, now = next_vector, later
        moving = {"activations": Cat(*skewed)} | {n: Cat(*bits) for n, bits in flags.items()}

        sums = Signal(32 * cols)
        if is_grid(self._config):
            self._place_grid(m, moving, sums)
        else:
            m.submodules.tile = tile = make_tile(self._config)
            m.d.comb += [getattr(tile, name).eq(value) for name, value in moving.items()]
            m.d.comb += [
                tile.weights.eq(self.weights),
                tile.load.eq(self.load),
                tile.hold.eq(self.hold),
                sums.eq(tile.partial_out),
            ]

        # Group g is g cycles late; those before it wait for the last one.
        width = 32 * self._config.columns_per_stage
        waiting = sums[:0]
        for stage in range(self._config.stages - 1):
            joined = Cat(waiting, sums[stage * width : (stage + 1) * width])
            waiting = Signal(len(joined), name=f"align_{stage}", reset_less=True)
            with m.If(~self.hold):
                m.d.sync += waiting.eq(joined)
        m.d.comb += self.sums.eq(Cat(waiting, sums[len(waiting) :]))
        return m

    def _place_grid(self, m: Module, moving: dict[str, Cat], sums: Signal) -> None:
        rows, cols = tile_size(self._config)
        across, down = self._config.cols // cols, self._config.rows // rows
        partial = [0] * across
        for i in range(down):
            # An equal part of each value for every tile below one another.
            here = {
                name: value.word_select(i, len(value) // down) for name, value in moving.items()
            }
            for j in range(across):
                right = {
                    name: Signal(len(value), name=f"{name}_{i}_{j}") for name, value in here.items()
                }
                below = Signal(32 * cols, name=f"partial_{i}_{j}")
                m.submodules[f"tile_{i}_{j}"] = Instance(
                    "mxu_tile",
                    i_clk=ClockSignal(),
                    i_rst=ResetSignal() | self.clear,
                    **{f"i_{name}": value for name, value in here.items()},
                    i_weights=self.weights[j * cols * 8 : (j + 1) * cols * 8],
                    i_load=self.load[i * rows : (i + 1) * rows],
                    i_hold=self.hold,
                    i_partial_in=partial[j],
                    o_partial_out=below,
                    **{f"o_{name}_out": value for name, value in right.items()},
                )
                here, partial[j] = right, below
        m.d.comb += sums.eq(Cat(*partial))
