# SPDX-License-Identifier: Apache-2.0
"""Names of the ports of a machine in Verilog: flat names that AXI tools recognise."""

from collections.abc import Callable

from amaranth.hdl import Value
from amaranth.hdl._ir import PortDirection  # named ports need this class, which has no public name
from amaranth.lib import wiring

PORT_PREFIX = {
    "control": "s_axil_",
    "host_read": "m_axi_host_",
    "host_write": "m_axi_host_",
    "weight_read": "m_axi_weight_",
    "memory_read": "m_axi_memory_",
    "memory_write": "m_axi_memory_",
    "irq": "irq",
    **{
        f"{way}_{side}": f"link_{way}_{side}_"
        for way in ("to", "from")
        for side in ("left", "right")
    },
    "cores": "cores",
    "pod": "pod_",
}
"""Prefix of the Verilog ports of each member of TPU and Pod.

If there is a member for each core, the number of the core comes before the last `_`.
"""


def port_name(path: tuple[str | int, ...]) -> str:
    """Return the flat name of a member of a signature."""
    prefix, rest = PORT_PREFIX[str(path[0])], path[1:]
    if rest and isinstance(rest[0], int):
        prefix, rest = f"{prefix[:-1]}{rest[0]}_", rest[1:]
    return prefix + "".join(map(str, rest))


def flat_ports(
    top: wiring.Component, name_of: Callable[[tuple[str | int, ...]], str] = port_name
) -> dict[str, tuple[Value, PortDirection]]:
    """Return all ports of a machine, or of another component with `name_of`, by their names."""
    return {
        name_of(path): (
            Value.cast(value),
            PortDirection.Input if member.flow is wiring.In else PortDirection.Output,
        )
        for path, member, value in top.signature.flatten(top)
    }
