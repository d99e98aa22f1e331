# SPDX-License-Identifier: Apache-2.0
"""The FPGAs that `tpu synth` knows: their tools, options, and capacities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from systola.hdl.parts.fabric import Fabric
from systola.synth.ecp5_delays import ecp5_models
from systola.synth.errors import SynthesisUsageError
from systola.synth.resources import Kind

PINS = "pins.txt"
"""Name of the file with pin constraints for the frame around a unit, if a target needs some."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An FPGA. `speeds` are the grades that a user can choose; the first is the default."""

    name: str
    device: str
    fabric: Fabric
    synthesis: str
    """Yosys' command for the family, with options that all its designs need."""
    memory_step: str
    """Step of the family's synthesis command at which the mapping of memories begins."""
    models: str = ""
    """Verilog of cells, with delays and the wires to them, for Yosys' mapper; empty if the mapper
    takes Yosys' own models.
    """
    place_and_route: str | None
    """Name of the family's nextpnr; None if no place and route is published."""
    options: tuple[str, ...] = ()
    """Options of nextpnr; `{speed}` stands for the speed grade."""
    pins: str = ""
    """Text of the file PINS: pin constraints for the frame around a unit, if nextpnr does not
    choose pins.
    """
    speeds: tuple[str, ...] = ("",)
    frequency: int = 100
    """Frequency that nextpnr is asked to reach, in MHz."""
    machine_frequency: int | None = None
    """Frequency for the whole machine, in MHz, if it differs.

    If many paths are too slow for the frequency, nextpnr's router removes its routes again and
    again.
    """
    capacity: Mapping[Kind, int] = field(default_factory=dict)

    def speed(self, wanted: str | None) -> str:
        """Return the speed grade to use. Raises SynthesisUsageError for an unknown one."""
        if wanted is None:
            return self.speeds[0]
        if wanted not in self.speeds:
            known = ", ".join(filter(None, self.speeds)) or "only one"
            raise SynthesisUsageError(f"target '{self.name}' has no speed '{wanted}' ({known})")
        return wanted


_NEXUS_PINS = {"clk": "L5", "rst": "E17", "pin_in": "F13", "pin_out": "G13"}
_GOWIN_PINS = {"clk": "H11", "rst": "T10", "pin_in": "T3", "pin_out": "L14"}
"""Any pins suit the frame, except for the clock."""

TARGETS = {
    target.name: target
    for target in (
        Target(
            name="ecp5-85f",
            device="Lattice ECP5 LFE5U-85F, CABGA381",
            fabric=Fabric.ECP5,
            synthesis="synth_lattice -family ecp5 -noiopad",
            memory_step="map_ram",
            models=ecp5_models(),
            place_and_route="nextpnr-ecp5",
            options=(
                *("--85k", "--package", "CABGA381", "--speed", "{speed}"),
                "--lpf-allow-unconstrained",
            ),
            speeds=("6", "7", "8"),
            frequency=160,
            machine_frequency=100,
            capacity={
                Kind.LUT: 83640,
                Kind.FF: 83640,
                Kind.DSP: 156,
                Kind.BLOCK_RAM: 208,
            },
        ),
        Target(
            name="up5k",
            device="Lattice iCE40 UP5K, SG48",
            fabric=Fabric.ICE40,
            synthesis="synth_ice40 -device u -dsp -spram",
            memory_step="map_ram",
            place_and_route="nextpnr-ice40",
            options=("--up5k", "--package", "sg48", "--pcf-allow-unconstrained"),
            frequency=24,
            capacity={
                Kind.LUT: 5280,
                Kind.FF: 5280,
                Kind.DSP: 8,
                Kind.BLOCK_RAM: 30,
                Kind.LARGE_RAM: 4,
            },
        ),
        Target(
            name="nexus-40",
            device="Lattice CrossLink-NX LIFCL-40, CABGA400",
            fabric=Fabric.NEXUS,
            synthesis="synth_lattice -family lifcl -iopad",
            memory_step="map_ram",
            place_and_route="nextpnr-nexus",
            options=(
                *("--device", "LIFCL-40-{speed}BG400C", "--pdc", PINS),
                *("--router", "router1"),  # the default finds no way from a pin to the clock net
            ),
            pins="".join(
                f"ldc_set_location -site {{{site}}} [get_ports {port}]\n"
                f"ldc_set_port -iobuf {{IO_TYPE=LVCMOS33}} [get_ports {port}]\n"
                for port, site in _NEXUS_PINS.items()
            ),
            speeds=("7", "8", "9"),
            frequency=120,
            capacity={
                Kind.LUT: 32256,
                Kind.FF: 32256,
                Kind.DSP: 56,
                Kind.BLOCK_RAM: 84,
                Kind.LARGE_RAM: 2,
            },
        ),
        Target(
            name="gw2a-18",
            device="Gowin GW2A-LV18PG256C8/I7",
            fabric=Fabric.GOWIN,
            synthesis="synth_gowin -family gw2a",
            memory_step="map_ram",
            place_and_route="nextpnr-himbaechel-gowin",
            options=(
                *("--device", "GW2A-LV18PG256C8/I7", "--vopt", "family=GW2A-18"),
                *("--vopt", f"cst={PINS}"),
            ),
            pins="".join(f'IO_LOC "{port}" {pin};\n' for port, pin in _GOWIN_PINS.items()),
            frequency=80,
            capacity={
                Kind.LUT: 20736,
                Kind.FF: 15552,
                Kind.DSP: 48,
                Kind.BLOCK_RAM: 46,
            },
        ),
        Target(
            name="gatemate-a1",
            device="Cologne Chip GateMate CCGM1A1",
            fabric=Fabric.GATEMATE,
            synthesis="synth_gatemate -luttree -nomx8",
            memory_step="map_bram",
            place_and_route="nextpnr-himbaechel-gatemate",
            options=("--device", "CCGM1A1", "--vopt", "allow-unconstrained"),
            frequency=20,
            capacity={Kind.LUT: 40960, Kind.FF: 40960, Kind.BLOCK_RAM: 64},
        ),
        Target(
            name="xc7a100t",
            device="Xilinx Artix-7 100T, synthesis only",
            fabric=Fabric.XILINX7,
            synthesis="synth_xilinx -family xc7 -flatten -noiopad",
            memory_step="map_memory",
            place_and_route=None,
            capacity={
                Kind.LUT: 63400,
                Kind.FF: 126800,
                Kind.DSP: 240,
                Kind.BLOCK_RAM: 270,
            },
        ),
        Target(
            name="xc7z020",
            device="Xilinx Zynq-7020, synthesis only",
            fabric=Fabric.XILINX7,
            synthesis="synth_xilinx -family xc7 -flatten -noiopad",
            memory_step="map_memory",
            place_and_route=None,
            capacity={
                Kind.LUT: 53200,
                Kind.FF: 106400,
                Kind.DSP: 220,
                Kind.BLOCK_RAM: 280,
            },
        ),
    )
}
"""Targets by name. DSP blocks are counted as multipliers of 18x18 bits (25x18 on Xilinx, 16x16 on
iCE40), block RAM in the smallest piece: 16 to 20 Kbit, 4 Kbit on iCE40."""

DEFAULT_TARGET = "ecp5-85f"


def target(name: str) -> Target:
    """Return the target of that name. Raises SynthesisUsageError for an unknown one."""
    if name not in TARGETS:
        raise SynthesisUsageError(f"unknown target '{name}' (known: {', '.join(TARGETS)})")
    return TARGETS[name]
