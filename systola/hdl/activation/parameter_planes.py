# SPDX-License-Identifier: Apache-2.0
"""The parameter memory: bias, multiplier and shift of the channels, in planes.

A plane is a memory that has, for each entry, one byte for each of its C channels.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.memories.sram import Sram
from systola.hdl.ports import ParameterWriteSignature

ENTRY_LATENCY = 2
"""Cycles from the number of an entry, at the memory of a plane, to the bytes of the plane."""
MULTIPLIER_PLANES = range(4, 8)


class ParameterPlanes(wiring.Component):
    """A memory that reads a parameter entry in every cycle.

    Whether a vector needs the entry is known too late to leave out a read.

    | port     | meaning |
    |---|---|
    | `write`  | some planes of an entry are written, at the end of the cycle |
    | `entry`  | number of the entry that is read |
    | `planes` | C bytes of each plane |

    Latency: LATENCY cycles from `entry` to `planes`, so that the planes come with the accumulator
    row. The planes of the multiplier come after LATE cycles, when the requantiser needs them.
    Throughput: an entry a cycle. No back-pressure. The interlocks keep reads away from an entry
    that is being written.
    """

    LATENCY = ROW_LATENCY
    LATE = ROW_LATENCY + Requantiser.MULTIPLIER_STAGE

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "write": In(ParameterWriteSignature(config=config)),
                "entry": In(bits_for(config.parameter_entries)),
                "planes": Out(data.ArrayLayout(8 * config.cols, PARAMETER_PLANES)),
            }
        )

    @classmethod
    def latency(cls, plane: int) -> int:
        """Return the cycles from the number of an entry to the bytes of a plane."""
        return cls.LATE if plane in MULTIPLIER_PLANES else cls.LATENCY

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [self.entry]
        for stage in range(self.LATE - ENTRY_LATENCY):
            entry_later = Signal.like(self.entry, name=f"entry_{stage}", reset_less=True)
            m.d.sync += entry_later.eq(entries[-1])
            entries.append(entry_later)
        for plane in range(PARAMETER_PLANES):
            memory = m.submodules[f"plane_{plane}"] = Sram(
                width=8 * self._config.cols,
                depth=self._config.parameter_entries,
                output_register=True,
            )
            m.d.comb += [
                memory.write_enable.eq(self.write.planes[plane]),
                memory.write_address.eq(self.write.address),
                memory.write_data.eq(self.write.data),
                memory.read_enable.eq(1),
                memory.read_address.eq(entries[self.latency(plane) - ENTRY_LATENCY]),
                self.planes[plane].eq(memory.read_data),
            ]
        return m
