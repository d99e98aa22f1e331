# SPDX-License-Identifier: Apache-2.0
"""The writable bits of the control registers, and a check that they keep their values."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.config import Config
from systola.arch.registers import Register
from systola.sim.model import VerilatedModel


def writable_bits(config: Config) -> dict[Register, int]:
    """Return the writable bits of each register that keeps a value of the host."""
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


def check_register(model: VerilatedModel, register: int, value: int) -> None:
    """Fail unless a control register of the simulated module `model` has the given value."""
    found = model.read(register)
    assert found == value, f"register 0x{register:03x} is 0x{found:x}, not 0x{value:x}"


def check_registers(
    model: VerilatedModel, writable: Mapping[int, int], constants: Mapping[int, int]
) -> None:
    """Check that each register in `writable` keeps the bits of its mask when others are written.

    Each register in `constants` must keep its value there, although the register is written.
    """
    for pattern in (0, 0xFFFF_FFFF, 0xA5C3_96F0, 0x5A3C_690F):
        values = {reg: pattern ^ n * 0x0101_1000 for n, reg in enumerate(writable)}
        for register, value in values.items():
            model.write(register, value)
        for register, mask in writable.items():
            check_register(model, register, values[register] & mask)
        for register, value in constants.items():
            model.write(register, pattern)
            check_register(model, register, value)
