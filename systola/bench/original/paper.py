# SPDX-License-Identifier: Apache-2.0
"""Measured figures of the original, from its paper: Jouppi et al., ISCA 2017 (arXiv 1704.04760)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A column of the paper's Table 3, in per cent of all cycles, with figures of its Table 1."""

    active: float
    useful: float
    unused: float
    weight_stall: float
    weight_shift: float
    non_matrix: float
    raw_stalls: float
    input_stalls: float
    tops: float
    macs_a_byte: float
    """Multiply-accumulates for each byte of weights."""


BUSY_WATTS, IDLE_WATTS, TDP_WATTS = 40, 28, 75
"""Power of the original's chip, of 28 nm, in watts: measured busy and idle, and its thermal limit.
"""
MEASURED = {
    "mlp0": Measured(12.7, 12.5, 0.3, 53.9, 15.9, 17.5, 3.3, 6.1, 12.3, 200),
    "mlp1": Measured(10.6, 9.4, 1.2, 44.2, 13.4, 31.9, 8.4, 8.8, 9.7, 168),
    "lstm0": Measured(8.2, 8.2, 0.0, 58.1, 15.8, 17.9, 14.6, 5.1, 3.7, 64),
    "lstm1": Measured(10.5, 6.3, 4.2, 62.1, 17.1, 10.3, 10.6, 2.4, 2.8, 96),
    "cnn0": Measured(78.2, 78.2, 0.0, 0.0, 0.0, 21.8, 3.5, 3.4, 86.0, 2888),
    "cnn1": Measured(46.2, 22.5, 23.7, 28.1, 7.0, 18.7, 22.8, 0.6, 14.1, 1750),
}
