# SPDX-License-Identifier: Apache-2.0
"""The units of the machine that can be synthesised alone."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from systola.arch.config import Config
from systola.hdl import module_of
from systola.hdl.parts.fabric import Fabric
from systola.synth.errors import SynthesisUsageError

if TYPE_CHECKING:
    from amaranth.lib.wiring import Component

UNITS = {
    "mxu": "MXU",
    "matrix_unit": "MatrixUnit",
    "activation_unit": "ActivationUnit",
    "unified_buffer": "UnifiedBuffer",
    "accumulators": "Accumulators",
    "weight_fetch": "WeightFetch",
    "host_read_port": "HostReadPort",
    "host_reader": "HostReader",
    "host_writer": "HostWriter",
    "fetch": "Fetch",
    "scalar_unit": "ScalarUnit",
    "decoder": "Decoder",
    "sequenced_decoder": "SequencedDecoder",
    "command_memory": "CommandMemory",
    "sequencer": "Sequencer",
    "scoreboard": "Scoreboard",
    "numbered_scoreboard": "NumberedScoreboard",
    "region_scan": "RegionScan",
    "link_unit": "LinkUnit",
    "control_registers": "ControlRegisters",
    "machine_control": "MachineControl",
    "counters": "Counters",
}
"""For each unit: the name of its file in hdl/, and of its class."""


def check_unit(name: str | None, cores: int | None = None) -> None:
    """Raise SynthesisUsageError for an unknown unit, or for any unit if a pod of `cores` is asked
    for.

    None stands for the whole machine.
    """
    if name is not None and cores is not None:
        raise SynthesisUsageError("--unit is of one machine: it does not go with --cores")
    if name is not None and name not in UNITS:
        raise SynthesisUsageError(f"unknown unit '{name}' (known: {', '.join(UNITS)})")


def design_of(config: Config, unit: str | None, fabric: Fabric, cores: int | None = None) -> str:
    """Return Verilog of the module `tpu`, of one unit, or of a pod.

    The module of a unit has its name. A pod has `cores` cores, and its module is `pod`.
    """
    # Imported here: Amaranth loads slowly.
    from systola.hdl.verilog import generate, generate_pod, generate_unit

    if cores is not None:
        return generate_pod(config, cores, fabric)
    if unit is None:
        return generate(config, fabric)
    return generate_unit(component_of(config, unit), unit, config, fabric)


def component_of(config: Config, unit: str) -> Component:
    """Return a unit of a machine, by its name in UNITS."""
    from systola.hdl.unit_domains import UNITS as CLEARED

    make = getattr(module_of(unit), UNITS[unit])
    taken = inspect.signature(make.__init__).parameters
    given = {"config": config, "units": CLEARED}
    return make(**{name: value for name, value in given.items() if name in taken})
