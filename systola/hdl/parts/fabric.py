# SPDX-License-Identifier: Apache-2.0
"""The families of FPGAs of which the design can place the multipliers and memories.

A component with several implementations chooses one by `fabric_of(platform)` in `elaborate`. All of
them have the same ports and the same behaviour, cycle by cycle.
"""

from dataclasses import dataclass
from enum import Enum


class Fabric(Enum):
    """A fabric that the machine is made of. It may be passed to Amaranth as a platform."""

    GENERIC = "generic"
    """Plain Verilog, for simulators and for any FPGA with a synthesis that infers blocks."""
    CHIP = "chip"
    """Plain Verilog in which every Sram is an instance of `sram_1r1w`, for which a chip has
    macros."""
    ECP5 = "ecp5"
    ICE40 = "ice40"
    NEXUS = "nexus"
    GOWIN = "gowin"
    GATEMATE = "gatemate"
    XILINX7 = "xilinx7"


@dataclass(frozen=True)
class Checked:
    """A platform for simulations: a fabric, with checks of the promises between units."""

    fabric: Fabric
    promises = True


def fabric_of(platform: object) -> Fabric:
    """Return the fabric of an Amaranth platform.

    The fabric is GENERIC without a platform, and for a family that Fabric does not list. A platform
    for a family that Amaranth does not have names its `fabric`.
    """
    if isinstance(platform, Fabric):
        return platform
    named = getattr(platform, "fabric", None)
    if isinstance(named, Fabric):
        return named
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
