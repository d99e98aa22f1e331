# SPDX-License-Identifier: Apache-2.0
"""The test of Amaranth's platforms and the fabrics that are chosen for them."""

import pytest
from amaranth.vendor import (
    AlteraPlatform,
    GowinPlatform,
    LatticePlatform,
    SiliconBluePlatform,
    XilinxPlatform,
)

from systola.boards.gatemate_a1_evb import GateMateA1EvbPlatform
from systola.hdl.parts.fabric import Fabric, fabric_of

PLATFORMS = [
    (LatticePlatform, "LFE5U-85F", Fabric.ECP5),
    (LatticePlatform, "LIFCL-40", Fabric.NEXUS),
    (LatticePlatform, "LCMXO2-7000HC", Fabric.GENERIC),
    (SiliconBluePlatform, "iCE40UP5K", Fabric.ICE40),
    (XilinxPlatform, "xc7a100t", Fabric.XILINX7),
    (XilinxPlatform, "xc6slx9", Fabric.GENERIC),
    (AlteraPlatform, "5CEBA4", Fabric.GENERIC),
]


def board(kind, **facts):
    """Return an Amaranth platform of class `kind`, as a board without resources or connectors."""
    named = {"package": "", "speed": "1", "resources": [], "connectors": [], **facts}
    return type("Board", (kind,), named)()


@pytest.mark.parametrize(("kind", "device", "fabric"), PLATFORMS)
def test_platforms(kind, device, fabric):
    assert fabric_of(board(kind, device=device)) is fabric


def test_gowin():
    assert fabric_of(board(GowinPlatform, part="GW1NR-LV9QN88PC6/I5", family="GW1NR-9C")) is (
        Fabric.GOWIN
    )


def test_gatemate():
    assert fabric_of(GateMateA1EvbPlatform()) is Fabric.GATEMATE


@pytest.mark.parametrize("fabric", Fabric)
def test_a_fabric_stands_for_itself(fabric):
    assert fabric_of(fabric) is fabric


def test_no_platform():
    assert fabric_of(None) is Fabric.GENERIC
