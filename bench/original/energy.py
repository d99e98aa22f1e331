# SPDX-License-Identifier: Apache-2.0
"""An estimate of energy: what is moved and multiplied, times published constants.

M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9,
for 45 nm at 0.9 V: an 8-bit multiplication 0.2 pJ, a 32-bit addition 0.1 pJ, 64 bits of a 1 MB SRAM
100 pJ, 64 bits of DRAM 1.3 to 2.6 nJ. The original is of 28 nm; no constant is scaled.
"""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import Config
from systola.timing.record import Estimate, Unit

MAC = 0.2 + 0.1
SRAM_BYTE = 100 / 8
DRAM_BYTE = 1300 / 8
"""Picojoules."""
BUSY_WATTS, IDLE_WATTS, TDP_WATTS = 40, 28, 75
"""Of the original, as its paper measured them; 75 is what its server allows for."""


@dataclass(frozen=True)
class Moved:
    """What a program does, as far as it costs energy."""

    macs: float
    """Of all multipliers in the cycles in which the array is active, useful or not."""
    sram: float
    """Bytes read from and written to the unified buffer, the accumulators and the weight FIFO."""
    dram: float
    """Bytes of weights, and over the host port."""

    @property
    def joules(self) -> float:
        """Their energy."""
        return (MAC * self.macs + SRAM_BYTE * self.sram + DRAM_BYTE * self.dram) * 1e-12


def moved(config: Config, result: Estimate) -> Moved:
    """What the program of an estimate does."""
    vectors, lines = result.busy[Unit.ARRAY], result.busy[Unit.ACTIVATION]
    traffic = result.traffic
    host = traffic.host_in + traffic.host_out
    sums = 4 * config.cols
    return Moved(
        macs=vectors * config.peak_macs,
        # A vector is read and its sums are added to those of a row; a line of results is read as
        # sums and written as bytes; weights go in and out of their FIFO.
        sram=vectors * (config.rows + 2 * sums)
        + lines * (sums + config.cols)
        + 2 * traffic.weights
        + host,
        dram=traffic.weights + host,
    )
