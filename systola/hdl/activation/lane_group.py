# SPDX-License-Identifier: Apache-2.0
"""The lanes of the activation unit side by side.

A machine with many lanes has groups of them, all instances of one module. So the module is
converted to Verilog only once.
"""

from collections.abc import Mapping, Sequence
from math import gcd

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Instance,
    Module,
    ResetSignal,
    Shape,
    Signal,
    ValueLike,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.activation.activation_lane import ActivationLane, lane_members

OF_EACH = (
    *("accumulator", "byte", "before", "tap", "bias", "multiplier", "shift_right", "shift_left"),
    "byte_out",
    *("magnitude", "dither"),
    "sum",
)
"""Names of the ports that each lane has for itself; the lanes of a group share all others."""


def group_size(config: Config) -> int:
    """Return the number of lanes in a group: at most an eighth of all lanes, the same for all
    groups.
    """
    return gcd(config.cols, max(1, config.cols // 8))


def lane_ports(config: Config) -> dict[str, tuple[wiring.Flow, int]]:
    """Return direction and width in bits of each port of an ActivationLane, by its Verilog name."""
    lane = wiring.Signature(lane_members(config))
    return {
        "__".join(map(str, path)): (member.flow, Shape.cast(member.shape).width)
        for path, member, _ in lane.flatten(lane.create())
    }


class LaneGroup(wiring.Component):
    """A module that contains only `group_size` instances of the module `activation_lane`.

    Each port is a port of ActivationLane, named with `lane_` before its name, as some of the names
    are keywords of Verilog. A port in OF_EACH is `group_size` times as wide: lane 0 has its lowest
    bits. All other ports go to every lane.
    """

    def __init__(self, *, config: Config):
        self._ports = lane_ports(config)
        self._size = group_size(config)
        super().__init__(
            {
                f"lane_{name}": (In if flow is In else Out)(
                    bits * (self._size if name in OF_EACH else 1)
                )
                for name, (flow, bits) in self._ports.items()
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for lane in range(self._size):
            connected: dict[str, object] = {}
            for name, (flow, bits) in self._ports.items():
                value: Signal = getattr(self, f"lane_{name}")
                direction = "i" if flow is In else "o"
                part = value.word_select(lane, bits) if name in OF_EACH else value
                connected[f"{direction}_{name}"] = part
            m.submodules[f"lane_{lane}"] = Instance(
                "activation_lane", i_clk=ClockSignal(), i_rst=ResetSignal(), **connected
            )
        return m


def place_lanes(
    m: Module,
    config: Config,
    lanes: Sequence[Mapping[str, ValueLike]],
    outputs: Mapping[str, Sequence[Signal]],
) -> None:
    """Place the lanes one by one, and connect the inputs and `outputs` of each lane."""
    for number, values in enumerate(lanes):
        lane = m.submodules[f"lane_{number}"] = ActivationLane(config=config)
        for path, member, port in lane.signature.flatten(lane):
            name = "__".join(map(str, path))
            if member.flow is In:
                m.d.comb += port.eq(values[name])
            else:
                m.d.comb += outputs[name][number].eq(port)


def place_groups(
    m: Module,
    config: Config,
    lanes: Sequence[Mapping[str, ValueLike]],
    outputs: Mapping[str, Sequence[Signal]],
) -> None:
    """Place the lanes as `place_lanes` does, but as instances of the module `lane_group`."""
    size = group_size(config)
    for number in range(len(lanes) // size):
        first, end = number * size, (number + 1) * size
        values = {
            name: Cat(lane[name] for lane in lanes[first:end]) if name in OF_EACH else value
            for name, value in lanes[first].items()
        }
        results = {name: Cat(of_lanes[first:end]) for name, of_lanes in outputs.items()}
        m.submodules[f"lanes_{number}"] = Instance(
            "lane_group",
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            **{f"i_lane_{name}": value for name, value in values.items()},
            **{f"o_lane_{name}": value for name, value in results.items()},
        )
