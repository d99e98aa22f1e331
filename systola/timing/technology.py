# SPDX-License-Identifier: Apache-2.0
"""Published energies of single operations. No figure here is scaled or made up.

HOROWITZ: M. Horowitz, "Computing's energy problem", ISSCC 2014, figure 1.1.9: 45 nm at 0.9 V.
JOUPPI: N. Jouppi et al., "Ten Lessons From Three Generations Shaped Google's TPUv4i", ISCA 2021,
table 2: the same operations at 45 nm and 7 nm; accesses of memories are of 64 bits.
HAN: S. Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NIPS
2015, figure 1: 45 nm; an access of 32 bits to a register file takes 1 pJ.
DALLY: W. Dally, "Power, Programmability, and Granularity: The Challenges of ExaScale Computing",
keynote at IPDPS 2011: 28 nm; 256 bits over an efficient link between chips take 500 pJ.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCESS_BYTES = 8
"""Bytes of an access to a memory in the tables of HOROWITZ and JOUPPI."""
LINK_BYTE = 500 / 32
"""Picojoules to send a byte over a link.

DALLY's figure for 28 nm serves for all processes, as no other figure is known.
"""


@dataclass(frozen=True, kw_only=True)
class Technology:
    """The energies of operations in one process, in picojoules."""

    name: str
    multiply_8: float
    """Energy of a multiplication of two integers of 8 bits."""
    multiply_32: float
    add_32: float
    """Energy of an addition of two integers of 32 bits."""
    register_byte: float | None
    """Energy of an access to a byte of a register; None if no figure is published."""
    memories: tuple[tuple[int, float], ...]
    """Size in bytes of each published on-chip memory, rising, and its energy for ACCESS_BYTES."""
    dram_access: float
    """Energy of an access of ACCESS_BYTES to memory outside the chip, DDR3 or DDR4."""

    def memory_byte(self, size: int) -> float:
        """Return the energy of an access to a byte of an on-chip memory of `size` bytes.

        The figure belongs to the smallest published memory that is large enough, or else to the
        largest memory.
        """
        fits = [energy for most, energy in self.memories if size <= most]
        return (fits[0] if fits else self.memories[-1][1]) / ACCESS_BYTES

    @property
    def dram_byte(self) -> float:
        """Energy of an access to a byte of memory outside the chip, in picojoules."""
        return self.dram_access / ACCESS_BYTES


TECHNOLOGIES = (
    Technology(
        name="45 nm",  # HOROWITZ, JOUPPI; registers: HAN
        multiply_8=0.2,
        multiply_32=3.1,
        add_32=0.1,
        register_byte=1 / 4,
        memories=((8 << 10, 10.0), (32 << 10, 20.0), (1 << 20, 100.0)),
        dram_access=1300.0,
    ),
    Technology(
        name="7 nm",  # JOUPPI
        multiply_8=0.07,
        multiply_32=1.48,
        add_32=0.03,
        register_byte=None,
        memories=((8 << 10, 7.5), (32 << 10, 8.5), (1 << 20, 14.0)),
        dram_access=1300.0,
    ),
)
