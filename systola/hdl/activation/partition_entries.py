# SPDX-License-Identifier: Apache-2.0
"""The parameter entries that partitions make of the sums of the lanes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES
from systola.hdl.activation.parameter_planes import MULTIPLIER_PLANES
from systola.hdl.activation.reciprocals import LATENCY, PRODUCTS, SLOTS, SUM_BITS, Reciprocals
from systola.hdl.activation.requantiser import SHIFT_BITS
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.parts.promise import promised
from systola.hdl.ports import ParameterWriteSignature

_BIAS_PLANES = range(MULTIPLIER_PLANES.start)
_PLANES = (_BIAS_PLANES, *((plane,) for plane in MULTIPLIER_PLANES), (PARAMETER_PLANES - 1,))
"""The planes of each write of an entry. The planes of one write get the same bytes."""


def entry_latency(cols: int) -> int:
    """Return the cycles from `comes` to `done`, for sums of `cols` lanes.

    A write of a load in one of the last cycles makes them one more.
    """
    rounds, rest = divmod(cols - 1, SLOTS)
    return ROW_LATENCY + 1 + rounds * PRODUCTS * SLOTS + rest + LATENCY + 1 + len(_PLANES)


class PartitionEntries(wiring.Component):
    """A unit that makes a parameter entry of a sum for each lane, and writes it.

    The sums go through `Reciprocals` one after the other, lane 0 first. The entry is written when
    the last reciprocal is there, some planes in a cycle.

    | port    | meaning |
    |---|---|
    | `comes` | the sums of a partition come in ROW_LATENCY cycles; from then until `done` no other
                sums may come |
    | `entry` | with `comes`: number of the entry |
    | `sums`  | ROW_LATENCY cycles after `comes`: a sum of SUM_BITS bits for each lane |
    | `loads` | writes of Load_Parameters |
    | `write` | writes into the parameter memory, in the same cycle: `loads`, or planes of the entry
                in a cycle in which `loads` has none |
    | `done`  | the entry has been written by the end of the cycle before |

    Latency: `entry_latency` cycles from `comes` to `done`, and one more for each write of a load
    after the last reciprocal. Throughput: an entry at a time. No back-pressure for loads.
    """

    def __init__(self, *, config: Config):
        self._lanes = config.cols
        write = ParameterWriteSignature(config=config)
        super().__init__(
            {
                "comes": In(1),
                "entry": In(bits_for(config.parameter_entries)),
                "sums": In(SUM_BITS * config.cols),
                "loads": In(write),
                "write": Out(write),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reciprocals = reciprocals = Reciprocals()
        entry_due = Signal()  # from the cycle after `comes` until the entry has been written
        entry_number = Signal(len(self.write.address), reset_less=True)
        m.d.sync += entry_due.eq(self.comes | (entry_due & ~self.done))
        with m.If(self.comes):
            m.d.sync += entry_number.eq(self.entry)
        message = "sums of a partition come while another entry is made"
        promised(m, platform, ~(self.comes & entry_due & ~self.done), message)
        # Bit n: `comes` was high n + 1 cycles ago.
        coming = Signal(ROW_LATENCY)
        m.d.sync += coming.eq(Cat(self.comes, coming))
        sums_come = coming[-1]

        lane_sums = Signal(SUM_BITS * self._lanes, reset_less=True)
        sums_remaining = Signal(range(self._lanes + 1))
        sum_leaves = reciprocals.sums.valid & reciprocals.sums.ready
        m.d.comb += [
            reciprocals.sums.valid.eq(sums_remaining != 0),
            reciprocals.sums.payload.eq(lane_sums[:SUM_BITS]),
        ]
        with m.If(sums_come):
            m.d.sync += [lane_sums.eq(self.sums), sums_remaining.eq(self._lanes)]
        with m.Elif(sum_leaves):
            m.d.sync += [lane_sums.eq(lane_sums >> SUM_BITS), sums_remaining.eq(sums_remaining - 1)]

        found = data.StructLayout({"multiplier": 8 * len(MULTIPLIER_PLANES), "shift": SHIFT_BITS})
        reciprocal = Signal(found)
        channels = Signal(data.ArrayLayout(found, self._lanes), reset_less=True)
        channels_missing = Signal(range(self._lanes + 1))
        m.d.comb += [
            reciprocal.multiplier.eq(reciprocals.multiplier),
            reciprocal.shift.eq(reciprocals.shift),
        ]
        channels_complete = Signal()
        with m.If(self.comes):
            m.d.sync += channels_missing.eq(self._lanes)
        with m.Elif(reciprocals.valid):
            m.d.sync += [
                channels.eq(Cat(channels, reciprocal)[found.size :]),
                channels_missing.eq(channels_missing - 1),
            ]
        m.d.comb += channels_complete.eq(entry_due & ~self.done & (channels_missing == 0))
        self._write(m, channels, entry_number, channels_complete)
        return m

    def _write(self, m: Module, channels: data.View, entry_number: Value, complete: Value) -> None:
        """Write the planes of the entry when its channels are `complete`. Loads go first."""
        loads, write = self.loads, self.write
        next_write = Signal(range(len(_PLANES)))
        writes_now = Signal()
        m.d.comb += writes_now.eq(complete & ~loads.planes.any())
        m.d.sync += self.done.eq(writes_now & (next_write == len(_PLANES) - 1))
        with m.If(writes_now):
            m.d.sync += next_write.eq(Mux(next_write == len(_PLANES) - 1, 0, next_write + 1))
        m.d.comb += [
            write.planes.eq(loads.planes),
            write.address.eq(loads.address),
            write.data.eq(loads.data),
        ]
        with m.If(writes_now):
            m.d.comb += write.address.eq(entry_number)
            with m.Switch(next_write):
                for number, planes in enumerate(_PLANES):
                    with m.Case(number):
                        m.d.comb += [
                            write.planes.eq(sum(1 << plane for plane in planes)),
                            write.data.eq(Cat(_byte(channel, planes[0]) for channel in channels)),
                        ]


def _byte(channel: data.View, plane: int) -> Value:
    """Return the byte of a channel in a plane."""
    if plane in MULTIPLIER_PLANES:
        return channel.multiplier.word_select(plane - MULTIPLIER_PLANES.start, 8)
    return Const(0, 8) if plane in _BIAS_PLANES else Cat(channel.shift, Const(0, 8 - SHIFT_BITS))
