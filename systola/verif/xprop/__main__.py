# SPDX-License-Identifier: Apache-2.0
"""The command `make xprop`: it looks for unknown values that get out of a unit after a reset.

The exit status is 1 if an output may be unknown that has to be known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.lib import data, wiring

from systola.arch.config import preset
from systola.arch.registers import Register
from systola.cli.arguments import OneLineParser
from systola.hdl.commands import Transfer
from systola.hdl.control.command_queue import CommandQueue
from systola.hdl.control.tag_queue import TagQueue
from systola.hdl.link.pod_barrier import PodBarrier
from systola.hdl.parts.in_flight import InFlight
from systola.hdl.parts.interlock import Check, Interlock
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.pod.page_router import PageRouter
from systola.hdl.pod.pod_control import PodControl
from systola.hdl.pod.weight_broadcast import WeightBroadcast
from systola.hdl.ports import WindowsSignature
from systola.hdl.transfers.burst_cutter import BurstCutter
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.hdl.transfers.tile_reader import TileReader
from systola.sim.build import build_root
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.units import component_of
from systola.verif.formal.proof import ToolsMissing
from systola.verif.xprop.unit import CYCLES, Result, check_unit


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A unit to examine: a function that makes the unit, and arguments of `check_unit`."""

    make: Callable[[], wiring.Component]
    legal: Sequence[str] = ()
    when: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self, folder: Path) -> Result:
        """Return the outputs of the unit, as known, free or unknown."""
        return check_unit(self.make(), folder, self.legal, self.when)


def _of_tiny(name: str, **about: Any) -> Examined:
    return Examined(make=lambda: component_of(preset("tiny"), name), **about)


_WORD = data.StructLayout({"word": 4})
_ITEM = data.StructLayout({"address": 3, "used": 1})
_WINDOWS = [f"windows__{name}" for name in WindowsSignature(config=preset("tiny")).members]
UNITS: Mapping[str, Examined] = {
    "skid_buffer": Examined(make=lambda: SkidBuffer(payload=_WORD)),
    "burst_cutter": Examined(
        make=lambda: BurstCutter(address_bits=16, beat_bits=6, bus_bytes=4, max_burst_beats=16)
    ),
    "burst_planner": Examined(
        make=lambda: BurstPlanner(
            transfer=Transfer(address_bits=16, beat_bits=7),
            **{"bus_bytes": 4, "max_burst_beats": 16, "pitch": 512},
        )
    ),
    "round_robin": Examined(make=lambda: RoundRobin(count=4), when={"chosen": "1"}),
    "in_flight": Examined(
        make=lambda: InFlight(width=3, depth=4),
        legal=("!(push && full_d)", "!retire || valid_d[0]"),
        when=dict.fromkeys(("rising", "free", "progress", "valid"), "1"),
    ),
    "interlock": Examined(
        make=lambda: Interlock(
            item=_ITEM,
            checks=[Check(watched="list", address="address", used="used")],
            **{"depth": 4, "widths": {"list": 3}},
        ),
        when={"oldest": "oldest_valid_d"},
    ),
    "command_queue": Examined(
        make=lambda: CommandQueue(
            command=_WORD, depth=4, masks={"first": 2, "second": 2}, list_depth=4
        ),
        legal=("!(push && full_d)", "!pop || valid_d"),
        when=dict.fromkeys(("command", "masks", "blocked"), "valid_d"),
    ),
    "tag_queue": Examined(
        make=lambda: TagQueue(depth=4),
        legal=("!(push && full_d)",),
        when={"entering": "enters_d"},
    ),
    "tile_reader": Examined(make=lambda: TileReader(config=preset("2x2-training"))),
    # Words come only for requested bursts. A condition on the inputs of one cycle cannot say that,
    # so words come at any time here.
    "weight_broadcast": Examined(
        make=lambda: WeightBroadcast(cores=2, address_bits=4, word_bytes=1, patience=3)
    ),
    "pod_barrier": Examined(make=PodBarrier),
    "pod_control": Examined(
        make=lambda: PodControl(cores=2, settle=2), when={"status": "1", "cause": "faulted_d"}
    ),
    "page_router": Examined(make=lambda: PageRouter(cores=2)),
    **{name: _of_tiny(name) for name in ("machine_control", "sequencer", "host_read_port")},
    # Trace entries are unknown until a tag is written, so the trace is not read here.
    "control_registers": _of_tiny(
        "control_registers",
        legal=(f"bus__araddr < {int(Register.TRACE)}",),
        when=dict.fromkeys((*_WINDOWS, "bus_timeout"), "1"),
    ),
    # A row comes in the cycle after `valid` and `pop`, so `rows__row` is left out here.
    "weight_fetch": _of_tiny(
        "weight_fetch", legal=("!rows__pop || rows__valid_d",), when={"rows__row": ""}
    ),
}
"""Units that are checked, all without large memories.

A unit has no conditions `legal` if even illegal inputs make none of its outputs unknown.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the units for unknown outputs, print each result, and return the exit status."""
    parser = OneLineParser(prog="xprop", description=__doc__)
    parser.add_argument("units", nargs="*", metavar="UNIT", help=f"of {', '.join(UNITS)}")
    names = parser.parse_args(arguments).units or list(UNITS)
    if unknown := [name for name in names if name not in UNITS]:
        print(f"xprop: unknown unit '{unknown[0]}' (known: {', '.join(UNITS)})", file=sys.stderr)
        return 2
    good = True
    for name in names:
        try:
            found = UNITS[name].check(build_root() / "xprop" / name)
        except (SynthesisUsageError, ToolsMissing) as error:
            print(f"xprop: {error}", file=sys.stderr)
            return 2
        except (SynthesisError, RuntimeError) as error:
            print(f"xprop: {name}: {error}", file=sys.stderr)
            return 1
        good &= not found.unknown
        print(f"{name}: {len(found.known)} outputs are known in the first {CYCLES} cycles", end="")
        for outputs, text in ((found.free, "not asked of"), (found.unknown, "UNKNOWN:")):
            print(f"; {text} {', '.join(outputs)}" if outputs else "", end="")
        print()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
