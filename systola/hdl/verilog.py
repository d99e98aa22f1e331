# SPDX-License-Identifier: Apache-2.0
"""Functions that turn a configuration into Verilog."""

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
    """Return the machine as one Verilog text; the top module is `tpu`.

    `fabric` determines the blocks of an FPGA that are placed. It does not change the behaviour in
    any cycle. Modules with many copies (tiles and lanes of large arrays) are converted once. With
    `promises`, for simulators, the text has assertions for the promises between units.
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
    """Return a ring of `cores` machines as one Verilog text; the top module is `pod`.

    Each core is an instance of the module `tpu`, which is converted once. A configuration without
    links gets links. Pod describes `shared`.
    """
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
    """Return the module `pod` of a pod alone.

    Pod describes `stages`, `shared` and `uneven`. `promises` has the meaning that it has for
    `generate`.
    """
    top = Pod(config=config, cores=cores, stages=stages, shared=shared, uneven=uneven)
    platform = Checked(Fabric.GENERIC) if promises else Fabric.GENERIC
    return convert(top, "pod", platform, flat_ports(top))


def generate_rtlil(config: Config) -> str:
    """Return the machine in Yosys' own language, with the source line of each cell and wire.

    This is not for large arrays. Large memories are instances of `sram_1r1w`, which is not in the
    text.
    """
    top = TPU(config=config)
    return rtlil.convert(top, name="tpu", platform=Fabric.GENERIC, ports=flat_ports(top))


def generate_pod_rtlil(config: Config, cores: int, shared: SharedMemory | None) -> str:
    """Return a pod in Yosys' own language, as `generate_rtlil` does; the top module is `pod`."""
    top = Pod(config=config, cores=cores, shared=shared)
    ring = rtlil.convert(top, name="pod", platform=Fabric.GENERIC, ports=flat_ports(top))
    return f"{ring}\n{generate_rtlil(config)}"


def generate_unit(unit: wiring.Component, name: str, config: Config, fabric: Fabric) -> str:
    """Return one unit of the machine as the Verilog module `name`.

    The names of a port's members are joined by `__`.
    """
    return _with_modules(convert(unit, name, fabric), config, fabric)


def _with_modules(text: str, config: Config, platform: Fabric | Checked) -> str:
    """Return a Verilog text, followed by the modules that the text places by name."""
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
    if any("  replica #(" in part for part in parts):
        register = files("systola.hdl.parts").joinpath("replica.v").read_text()
        parts.append(register.partition("\n")[2])  # only the first text keeps its licence line
    return "\n".join(parts)


def _convert_merged(component: wiring.Component, name: str, platform: Fabric | Checked) -> str:
    """Convert a component to one flat module, with equal registers merged.

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
