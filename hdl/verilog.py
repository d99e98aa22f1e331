# SPDX-License-Identifier: Apache-2.0
"""From a configuration to Verilog."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

from amaranth.back import rtlil
from amaranth.lib import wiring

from systola.arch.config import Config
from systola.arch.shared_memory import SharedMemory
from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.lane_group import LaneGroup
from systola.hdl.activation.result_lanes import lanes_are_instances
from systola.hdl.matrix.mxu import is_grid, make_tile
from systola.hdl.parts.fabric import Checked, Fabric, fabric_of
from systola.hdl.pod.pod import LINK_STAGES, Pod
from systola.hdl.port_names import flat_ports
from systola.hdl.tpu import TPU
from systola.hdl.verilog_text import STEPS, verilog_text


def generate(config: Config, fabric: Fabric = Fabric.GENERIC, *, promises: bool = False) -> str:
    """The machine as one Verilog text; the top module is `tpu`.

    `fabric` decides which blocks of an FPGA it places, not what it does in any cycle. Modules of
    which there are many copies (tiles and lanes of large arrays) are converted once. With
    `promises`, for simulators, it has assertions of what its units promise each other.
    """
    top = TPU(config=config)
    platform = Checked(fabric) if promises else fabric
    return _with_modules(convert(top, "tpu", platform, flat_ports(top)), config, platform)


def generate_pod(
    config: Config,
    cores: int,
    fabric: Fabric = Fabric.GENERIC,
    shared: SharedMemory | None = None,
) -> str:
    """`cores` machines of a configuration in a ring, as one Verilog text; the top module is `pod`,
    and each core a `tpu`, which is converted once. The configuration gets links, where it has
    none. `shared` as of Pod."""
    linked = replace(config, links=True)
    return f"{generate_ring(linked, cores, shared=shared)}\n{generate(linked, fabric)}"


def generate_ring(
    config: Config,
    cores: int,
    stages: int = LINK_STAGES,
    shared: SharedMemory | None = None,
    *,
    promises: bool = False,
    uneven: bool = False,
) -> str:
    """Of a pod the module `pod` alone; `stages`, `shared` and `uneven` as of Pod, `promises` as of
    generate."""
    top = Pod(config=config, cores=cores, stages=stages, shared=shared, uneven=uneven)
    platform = Checked(Fabric.GENERIC) if promises else Fabric.GENERIC
    return convert(top, "pod", platform, flat_ports(top))


def generate_rtlil(config: Config) -> str:
    """The same in Yosys' own language, with the place in the source of each cell and wire.

    Not for large arrays; large memories are instances of `sram_1r1w`, which is not in it.
    """
    top = TPU(config=config)
    return rtlil.convert(top, name="tpu", platform=Fabric.GENERIC, ports=flat_ports(top))


def generate_pod_rtlil(config: Config, cores: int, shared: SharedMemory | None) -> str:
    """A pod likewise; the top module is `pod`."""
    top = Pod(config=config, cores=cores, shared=shared)
    ring = rtlil.convert(top, name="pod", platform=Fabric.GENERIC, ports=flat_ports(top))
    return f"{ring}\n{generate_rtlil(config)}"


def generate_unit(unit: wiring.Component, name: str, config: Config, fabric: Fabric) -> str:
    """One unit of the machine as the module `name`; members of its ports are joined by `__`."""
    return _with_modules(convert(unit, name, fabric), config, fabric)


def _with_modules(text: str, config: Config, platform: Fabric | Checked) -> str:
    """The text with the modules behind it that it places by name."""
    parts = [text]
    if is_grid(config) and "mxu_tile" in text:
        generic = fabric_of(platform) is Fabric.GENERIC
        convert_tile = _convert_merged if generic else convert
        parts.append(convert_tile(make_tile(config), "mxu_tile", platform))
    if lanes_are_instances(config) and "lane_group" in text:
        parts.append(convert(LaneGroup(config=config), "lane_group", platform))
        parts.append(convert(ActivationLane(config=config), "activation_lane", platform))
    if "sram_1r1w" in text:
        parts.append(files("systola.hdl.memories").joinpath("sram_1r1w.v").read_text())
    return "\n".join(parts)


def _convert_merged(component: wiring.Component, name: str, platform: Fabric | Checked) -> str:
    """Convert a component to a module without others in it, with equal registers merged.

    Synthesis merges them anyway. A simulator compiles the module in a third of the time.
    """
    text = rtlil.convert(component, name=name, platform=platform, emit_src=False)
    merged = ("proc", "flatten", "opt_expr", "opt_merge", "opt_dff", "opt_clean")
    return verilog_text(text, *merged, "write_verilog -noattr")


def convert(
    component: wiring.Component,
    name: str,
    platform: Fabric | Checked = Fabric.GENERIC,
    ports: object = None,
) -> str:
    """Convert a component to the module `name`.

    Ports are called as in Amaranth, members joined by `__`, unless `ports` names them. A name that
    is a keyword gets an underscore at its end. Memories have no contents until they are written.
    """
    text = rtlil.convert(component, name=name, platform=platform, ports=ports, emit_src=False)
    return verilog_text(text, *STEPS)
