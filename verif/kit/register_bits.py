# SPDX-License-Identifier: Apache-2.0
"""Which bits of the registers keep what the host writes."""

from __future__ import annotations

from systola.arch.config import Config
from systola.arch.registers import Register


def writable_bits(config: Config) -> dict[Register, int]:
    """By register; the others cannot be written, or do not keep it."""
    high = (1 << config.address_bits - 32) - 1
    return {
        Register.IRQ_ENABLE: 0x7,
        Register.PROGRAM: 0xFFFF_FF80,
        Register.HOST_BASE_LO: 0xFFFF_F000,
        Register.HOST_BASE_HI: high,
        Register.HOST_PAGES: 0x1F_FFFF,
        Register.WEIGHT_BASE_LO: 0xFFFF_F000,
        Register.WEIGHT_BASE_HI: high,
        Register.WEIGHT_TILES: 0x1FF_FFFF,
        Register.BUS_TIMEOUT: 0xFFFF_FFFF,
    }
