# SPDX-License-Identifier: Apache-2.0
"""Sums of float32 numbers, added in the order of ONNX Runtime's ReduceMean for equal rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PACKET = 4
"""Number of float32 that Eigen, the library in ONNX Runtime, adds at once: a packet."""


def sum_of_rows(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return, for each array in `x`, the sum of all rows: a single row.

    The rows are added one after another, from the first on. The shape of `x` is arrays x rows x
    numbers, and the shape of the result is arrays x numbers.
    """
    total = x[:, 0].copy()
    for row in range(1, x.shape[1]):
        total += x[:, row]
    return total


def sum_of_numbers(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sum of each row's numbers, added in the order of Eigen's function redux.

    The shape of `x` is samples x rows x numbers, and the shape of the result is samples x rows. A
    packet begins where the index of a number in the sample is a multiple of _PACKET. For each row,
    Eigen first adds all whole packets, with one sum for even and one for odd packets. The numbers
    before the packets are added to the total, and then the numbers after the packets.
    """
    count = x.shape[2]
    total = np.empty(x.shape[:2], np.float32)
    for row in range(x.shape[1]):
        first = min(-row * count % _PACKET, count)
        last = first + (count - first) // _PACKET * _PACKET
        packets = x[:, row, first:last].reshape(len(x), -1, _PACKET)
        rest = [x[:, row, n] for n in (*range(first), *range(last, count))]
        if packets.shape[1]:
            rest.insert(0, _sum_of_packets(packets))
        total[:, row] = rest[0]
        for each in rest[1:]:
            total[:, row] += each
    return total


def _sum_of_packets(packets: NDArray[np.float32]) -> NDArray[np.float32]:
    paired = packets.shape[1] // 2 * 2
    total = packets[:, 0].copy()
    if paired:
        odd = packets[:, 1].copy()
        for number in range(2, paired, 2):
            total += packets[:, number]
            odd += packets[:, number + 1]
        total += odd
    if paired < packets.shape[1] and paired:
        total += packets[:, -1]
    total[:, :2] += total[:, 2:]
    total[:, 0] += total[:, 1]
    return total[:, 0]
