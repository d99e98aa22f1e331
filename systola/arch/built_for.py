# SPDX-License-Identifier: Apache-2.0
"""The instruction by which a program names the machine that it was built for."""

from __future__ import annotations

from systola.arch.config import Config
from systola.arch.isa import Opcode, encode


def machine_operands(config: Config) -> dict[str, int]:
    """Return the operands, by name, of a Require_Machine that a machine of `config` accepts."""
    return {
        "rows": config.rows,
        "columns": config.cols,
        "host_bus": config.host_bus_bytes,
        "weight_bus": config.weight_bus_bytes,
    }


def require_machine(config: Config) -> bytes:
    """Encode the first instruction of every program that is built for `config`."""
    return encode(Opcode.REQUIRE_MACHINE, **machine_operands(config))
