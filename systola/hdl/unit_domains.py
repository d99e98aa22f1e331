# SPDX-License-Identifier: Apache-2.0
"""The clock domains of a core's units, each with a reset of its own."""

from typing import TypeVar

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Value
from amaranth.lib import wiring

from systola.arch.config import Config

Unit = TypeVar("Unit", bound=wiring.Component)

UNITS = (
    "core",
    "host_read_port",
    "fetch",
    "scalar_unit",
    "decoder",
    "sequencer",
    "scoreboard",
    "host_reader",
    "weight_fetch",
    "matrix_unit",
    "activation_unit",
    "host_writer",
    "unified_buffer",
    "accumulators",
)
"""Names of the clock domains: one for the core, and one for each unit in the core."""
LINK_UNIT = "link_unit"
"""Name of the clock domain of the link unit, where there is one."""


def units_of(config: Config) -> tuple[str, ...]:
    """Return the names of UNITS and, with links, the name of the link unit."""
    return (*UNITS, LINK_UNIT) if config.links else UNITS


def place_unit(m: Module, name: str, unit: Unit, clear: Value) -> Unit:
    """Add a unit with the clock domain `name`, which `clear` resets, and return the unit."""
    m.domains += ClockDomain(name, local=True)
    m.d.comb += [
        ClockSignal(name).eq(ClockSignal()),
        ResetSignal(name).eq(clear),
    ]
    m.submodules[name] = DomainRenamer(name)(unit)
    return unit
