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
    """Name of the module with class `platform`, which describes the board."""
    platform: str
    tools: Mapping[str, str]
    """Names of the programs that Amaranth's build script runs, each by the environment variable for
    its path.
    """
    product: str
    """End of the name of the file with the bitstream."""
    load: str
    """Command that loads a bitstream into the board; the file's name follows it."""
    preset: str
    mhz: float
    memory_bytes: int
    """Bytes of memory that fit into the FPGA beside the machine."""


_TRELLIS = {"YOSYS": "yosys", "NEXTPNR_ECP5": "nextpnr-ecp5", "ECPPACK": "ecppack"}
_APICULA = {
    "YOSYS": "yosys",
    "NEXTPNR_HIMBAECHEL_GOWIN": "nextpnr-himbaechel-gowin",
    "GOWIN_PACK": "gowin_pack",
}
_PEPPERCORN = {
    "YOSYS": "yosys",
    "NEXTPNR_HIMBAECHEL_GATEMATE": "nextpnr-himbaechel-gatemate",
    "GMPACK": "gmpack",
}
_ICESTORM = {"YOSYS": "yosys", "NEXTPNR_ICE40": "nextpnr-ice40", "ICEPACK": "icepack"}

_ULX3S = Board(
    name="ulx3s",
    text="Radiona ULX3S with the ECP5 85F",
    module="amaranth_boards.ulx3s",
    platform="ULX3S_85F_Platform",
    tools=_TRELLIS,
    product="bit",
    load="openFPGALoader --board ulx3s",
    preset="tiny",
    mhz=50,
    memory_bytes=256 << 10,
)
_ULX3S_25F = replace(
    _ULX3S,
    name="ulx3s-25f",
    text="Radiona ULX3S with the ECP5 25F",
    platform="ULX3S_25F_Platform",
    memory_bytes=12 << 10,
)

BOARDS = {
    board.name: board
    for board in (
        _ULX3S,
        _ULX3S_25F,
        replace(
            _ULX3S_25F,
            name="ulx3s-12f",
            text="Radiona ULX3S with the ECP5 12F",
            platform="ULX3S_12F_Platform",
        ),
        Board(
            name="ecpix5",
            text="LambdaConcept ECPIX-5 with the ECP5 85F",
            module="amaranth_boards.ecpix5",
            platform="ECPIX585Platform",
            tools=_TRELLIS,
            product="bit",
            load="openFPGALoader --board ecpix5",
            preset="tiny",
            mhz=50,
            memory_bytes=256 << 10,
        ),
        Board(
            name="tang-nano-20k",
            text="Sipeed Tang Nano 20K, Gowin GW2AR-18",
            module="systola.boards.tang_nano_20k",
            platform="TangNano20kPlatform",
            tools=_APICULA,
            product="fs",
            load="openFPGALoader --board tangnano20k",
            preset="tiny",
            mhz=50,
            memory_bytes=16 << 10,
        ),
        Board(
            name="gatemate-a1-evb",
            text="Olimex GateMate A1-EVB, Cologne Chip CCGM1A1",
            module="systola.boards.gatemate_a1_evb",
            platform="GateMateA1EvbPlatform",
            tools=_PEPPERCORN,
            product="bit",
            load="openFPGALoader --cable dirtyJtag",
            preset="tiny",
            mhz=20,
            memory_bytes=16 << 10,
        ),
        Board(
            name="icebreaker",
            text="1BitSquared iCEBreaker, iCE40 UP5K",
            module="amaranth_boards.icebreaker",
            platform="ICEBreakerPlatform",
            tools=_ICESTORM,
            product="bin",
            load="iceprog",
            preset="tiny",
            mhz=20.25,
            memory_bytes=128 << 10,
        ),
    )
}
