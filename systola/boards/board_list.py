# SPDX-License-Identifier: Apache-2.0
"""The boards that `tpu bitstream` knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board. `preset` and `mhz` are the defaults of `tpu bitstream` for it."""

    name: str
    text: str
    module: str
    """Name of the module of amaranth_boards with class `platform`, which describes the board."""
    platform: str
    tools: Mapping[str, str]
    """Programs that the build script of Amaranth runs, by the environment variables that name them.
    """
    product: str
    """End of the name of the bitstream's file."""
    preset: str
    mhz: float
    memory_bytes: int
    """Bytes of memory that fit into the FPGA beside the machine."""


_TRELLIS = {"YOSYS": "yosys", "NEXTPNR_ECP5": "nextpnr-ecp5", "ECPPACK": "ecppack"}
_ICESTORM = {"YOSYS": "yosys", "NEXTPNR_ICE40": "nextpnr-ice40", "ICEPACK": "icepack"}

_ULX3S = Board(
    name="ulx3s",
    text="Radiona ULX3S with the ECP5 85F",
    module="ulx3s",
    platform="ULX3S_85F_Platform",
    tools=_TRELLIS,
    product="bit",
    preset="tiny",
    mhz=50,
    memory_bytes=256 << 10,
)

BOARDS = {
    board.name: board
    for board in (
        _ULX3S,
        replace(
            _ULX3S,
            name="ulx3s-25f",
            text="Radiona ULX3S with the ECP5 25F",
            platform="ULX3S_25F_Platform",
            memory_bytes=12 << 10,
        ),
        Board(
            name="ecpix5",
            text="LambdaConcept ECPIX-5 with the ECP5 85F",
            module="ecpix5",
            platform="ECPIX585Platform",
            tools=_TRELLIS,
            product="bit",
            preset="tiny",
            mhz=50,
            memory_bytes=256 << 10,
        ),
        Board(
            name="icebreaker",
            text="1BitSquared iCEBreaker, iCE40 UP5K",
            module="icebreaker",
            platform="ICEBreakerPlatform",
            tools=_ICESTORM,
            product="bin",
            preset="tiny",
            mhz=20.25,
            memory_bytes=128 << 10,
        ),
    )
}
