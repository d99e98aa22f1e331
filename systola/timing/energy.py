# SPDX-License-Identifier: Apache-2.0
"""The energy of an activity: each count multiplied by the energy of one such operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systola.arch.config import Config
from systola.timing.activity import SUM_BYTES, Activity
from systola.timing.technology import LINK_BYTE, TECHNOLOGIES, Technology

PICO = 1e-12


@dataclass(frozen=True)
class Energy:
    """The energy of some work in one technology."""

    technology: str
    units: Mapping[str, float]
    """Joules of each part of the machine, and of each port."""
    macs: float
    """Multiply-accumulates of the network that were done, without padding of any kind."""

    @property
    def joules(self) -> float:
        """The energy of all parts together, in joules."""
        return sum(self.units.values())

    @property
    def tops_per_watt(self) -> float | None:
        """Speed for each watt, in 10^12 operations a second; None without multiply-accumulates.

        A multiply-accumulate counts as two operations.
        """
        return 2 * self.macs * PICO / self.joules if self.macs and self.joules else None

    @property
    def largest(self) -> list[tuple[str, float]]:
        """Parts that take energy and their shares of the total, the largest share first."""
        total = self.joules
        found = [(name, part / total) for name, part in self.units.items() if part]
        return sorted(found, key=lambda each: -each[1])

    def figures(self) -> dict[str, object]:
        """Return the total, the parts and the speed for each watt, with names for a JSON file."""
        return {
            "joules": self.joules,
            "tops_per_watt": self.tops_per_watt,
            "units": dict(self.units),
        }


def unit_energies(config: Config, done: Activity, per: Technology) -> dict[str, float]:
    """Return the joules of each part of a machine of `config` for the activity `done`.

    A part without a published figure is left out.
    """
    mac = per.multiply_8 + per.add_32
    registers = {}
    if per.register_byte is not None:
        registers = {"array registers": per.register_byte * done.array_registers}
    picojoules = {
        "array": mac * (done.macs + done.wide_macs),
        **registers,
        "unified buffer": done.buffer * per.memory_byte(config.buffer_lines * config.line_bytes),
        "accumulators": done.accumulators
        * per.memory_byte(config.accumulator_rows * SUM_BYTES * config.cols)
        + done.accumulator_adds * per.add_32,
        "weight FIFO": done.weight_fifo
        * per.memory_byte(config.weight_fifo_tiles * config.peak_macs),
        "activation unit": done.lane_macs * mac
        + done.lane_multiplies * per.multiply_32
        + done.lane_adds * per.add_32,
        "host memory": done.host * per.dram_byte,
        "weight memory": done.weights * per.dram_byte,
        "links": done.links * LINK_BYTE,
    }
    return {name: PICO * energy for name, energy in picojoules.items()}


def energies(config: Config, done: Activity, macs: float) -> tuple[Energy, ...]:
    """Return the energy of the activity `done` in each technology.

    `macs` are the multiply-accumulates of the network itself, without padding.
    """
    return tuple(Energy(t.name, unit_energies(config, done, t), macs) for t in TECHNOLOGIES)
