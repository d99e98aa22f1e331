# SPDX-License-Identifier: Apache-2.0
"""The families of FPGAs whose own multipliers and memories the design knows.

A component with several implementations chooses by `fabric_of(platform)` in `elaborate`; all have
the same ports and the same behaviour, cycle by cycle.
"""

from dataclasses import dataclass
from enum import Enum


class Fabric(Enum):
    """What the machine is made of. May be passed to Amaranth as a platform."""

    GENERIC = "generic"
    """Plain Verilog: simulators, and any FPGA whose synthesis infers what it needs."""
    CHIP = "chip"
    """The same, but every Sram is an instance of `sram_1r1w`, for which a chip has macros."""
    ECP5 = "ecp5"
    ICE40 = "ice40"
    NEXUS = "nexus"
    GOWIN = "gowin"
    XILINX7 = "xilinx7"


@dataclass(frozen=True)
class Checked:
    """The platform of simulations: a fabric, and what units promise each other is checked."""

    fabric: Fabric
    promises = True


def fabric_of(platform: object) -> Fabric:
    """The fabric of an Amaranth platform; GENERIC without one or for a family not listed above."""
    if isinstance(platform, Fabric):
        return platform
    if isinstance(platform, Checked):
        return platform.fabric
    if platform is None:
        return Fabric.GENERIC

    from amaranth.vendor import (
        GowinPlatform,
        LatticePlatform,
        SiliconBluePlatform,
        XilinxPlatform,
    )

    if isinstance(platform, SiliconBluePlatform):
        return Fabric.ICE40
    if isinstance(platform, GowinPlatform):
        return Fabric.GOWIN
    if isinstance(platform, LatticePlatform | XilinxPlatform):
        families = {"ecp5": Fabric.ECP5, "nexus": Fabric.NEXUS, "series7": Fabric.XILINX7}
        return families.get(platform.family, Fabric.GENERIC)
    return Fabric.GENERIC
