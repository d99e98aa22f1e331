# SPDX-License-Identifier: Apache-2.0
"""The cells of an ECP5 netlist that nextpnr has packed, and the connections between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from systola.synth.ecp5_delays import (
    ALONG_CHAIN,
    FF,
    INTO_CHAIN,
    INTO_MUX,
    LUT,
    LUT_OF_CHAIN,
    SELECT,
    SETUPS,
    STARTS,
)
from systola.synth.netlist import top_module

COMB = "TRELLIS_COMB"
CARRY = "CCU2"
"""Mode of a COMB in a carry chain."""

CONSTANTS = ("$PACKER_GND", "$PACKER_VCC")
"""Names of nextpnr's sources of 0 and 1."""
NEVER = -99.0
"""Time for "no path", in nanoseconds: arrival of a constant, and delay after an unused output."""

_LUT_INPUTS = ("A", "B", "C", "D", "FCI")
_MUX_INPUTS = ("F1", "FXA", "FXB")
_INPUTS = {FF: ("DI", "CE", "LSR", "M"), COMB: (*_LUT_INPUTS, *_MUX_INPUTS, "M")}


class Graph:
    """A graph of cells, outputs and pins, each with a number.

    An output drives a net. Outputs are numbered so that combinational paths lead from lower to
    higher numbers. A pin is an input of a cell that an output leads to. Clocks, and nets from the
    pads, are left out.
    """

    def __init__(self, design: Mapping[str, Any]):
        cells: Mapping[str, Any] = top_module(design)["cells"]
        self.names = list(cells)
        self.kinds = [str(cell["type"]) for cell in cells.values()]
        self.parameters: list[Mapping[str, str]] = [cell["parameters"] for cell in cells.values()]
        self.modes = [parameters.get("MODE", "") for parameters in self.parameters]
        self.nets: list[dict[str, int]] = [
            {port: bits[0] for port, bits in cell["connections"].items() if bits}
            for cell in cells.values()
        ]
        directions = [cell["port_directions"] for cell in cells.values()]
        drivers = {
            net: number
            for number, nets in enumerate(self.nets)
            if self.kinds[number] in (COMB, *STARTS)
            for port, net in nets.items()
            if directions[number][port] == "output"
        }
        order = self._in_order(drivers, directions)
        self.outputs = {net: output for output, net in enumerate(order)}
        """Number of the output that drives a net."""
        self.drivers = [drivers[net] for net in order]
        """Cell of an output."""
        self.starts = [
            NEVER if self.names[driver] in CONSTANTS else STARTS.get(self.kinds[driver], 0.0)
            for driver in self.drivers
        ]

        self.owned: list[list[int]] = [[] for _ in self.names]
        """Outputs of a cell."""
        for output, driver in enumerate(self.drivers):
            self.owned[driver].append(output)

        self.sources: list[int] = []
        """Output that leads to a pin."""
        self.owners: list[int] = []
        """Cell of a pin."""
        self.direct: list[bool] = []
        """Whether the wire to a pin lies within a slice, or along a carry chain."""
        self.setups: list[float | None] = []
        """Set-up time of a pin at which a path ends, in nanoseconds; None at other pins."""
        self.leads: list[list[tuple[int, float]]] = []
        """Outputs that a pin leads to through its cell, with the delay in nanoseconds."""
        self.inputs: list[list[int]] = [[] for _ in self.names]
        """Pins of a cell."""
        self.sinks: list[list[int]] = [[] for _ in order]
        """Pins that an output leads to."""
        self.into: list[list[tuple[int, float]]] = [[] for _ in order]
        """Pins that lead to an output through its cell, with the delay in nanoseconds."""
        for cell in range(len(self.names)):
            for port, net in self._ends(cell, directions[cell]):
                if net in self.outputs:
                    self._add(cell, port, self.outputs[net])

    def _ends(self, cell: int, directions: Mapping[str, str]) -> list[tuple[str, int]]:
        """Return the inputs of a cell that can end or continue a path, with their nets."""
        kind, nets = self.kinds[cell], self.nets[cell]
        if kind in _INPUTS:
            ports = [port for port in _INPUTS[kind] if port in nets]
        elif kind in STARTS:
            ports = [
                port
                for port in nets
                if directions[port] == "input" and "CLK" not in port and "RST" not in port
            ]
        else:
            ports = []
        return [(port, nets[port]) for port in ports]

    def _through(self, cell: int, port: str) -> list[tuple[str, float]]:
        """Return the outputs of a COMB that an input leads to, with the delay in nanoseconds."""
        nets = self.nets[cell]
        chain = self.modes[cell] == CARRY
        found: list[tuple[str, float]] = []
        if port in _LUT_INPUTS:
            into_carry = ALONG_CHAIN if port == "FCI" else INTO_CHAIN
            found += [("F", LUT_OF_CHAIN if chain else LUT), ("FCO", into_carry)]
        found.append(("OFX", SELECT if port == "M" else INTO_MUX if port in _MUX_INPUTS else LUT))
        return [(output, delay) for output, delay in found if output in nets]

    def _in_order(
        self, drivers: Mapping[int, int], directions: list[Mapping[str, str]]
    ) -> list[int]:
        """Return the nets, each after the nets that it depends on without a register between."""
        followers: dict[int, list[int]] = {net: [] for net in drivers}
        missing = dict.fromkeys(drivers, 0)
        for cell in range(len(self.names)):
            if self.kinds[cell] == COMB:
                for port, net in self._ends(cell, directions[cell]):
                    if net in drivers:
                        for output, _ in self._through(cell, port):
                            followers[net].append(self.nets[cell][output])
                            missing[self.nets[cell][output]] += 1
        order: list[int] = []
        ready = deque(net for net in drivers if not missing[net])
        while ready:
            net = ready.popleft()
            order.append(net)
            for follower in followers[net]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        return order

    def _add(self, cell: int, port: str, source: int) -> None:
        pin = len(self.sources)
        kind, driver = self.kinds[cell], self.drivers[source]
        within = port in ("FCI", *_MUX_INPUTS) or port == "DI"
        self.sources.append(source)
        self.owners.append(cell)
        self.direct.append(within and self.kinds[driver] == COMB and kind in _INPUTS)
        setup = None
        leads: list[tuple[int, float]] = []
        if kind == COMB:
            for output, delay in self._through(cell, port):
                number = self.outputs.get(self.nets[cell][output])
                if number is not None:
                    leads.append((number, delay))
                    self.into[number].append((pin, delay))
        else:
            setup = SETUPS[kind]
        self.setups.append(setup)
        self.leads.append(leads)
        self.inputs[cell].append(pin)
        self.sinks[source].append(pin)
