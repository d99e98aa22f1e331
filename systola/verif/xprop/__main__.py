# SPDX-License-Identifier: Apache-2.0
"""The command `make xprop`: it looks for unknown values that get out of a unit after a reset.

The exit status is 1 if an output may be unknown that has to be known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from amaranth.lib import data, wiring

from systola.arch.config import preset
from systola.cli.arguments import OneLineParser
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.transfers.burst_cutter import BurstCutter
from systola.sim.build import build_root
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.units import component_of
from systola.verif.formal.proof import ToolsMissing
from systola.verif.xprop.unit import CYCLES, check_unit

UNITS: Mapping[str, Callable[[], wiring.Component]] = {
    "skid_buffer": lambda: SkidBuffer(payload=data.StructLayout({"value": 4})),
    "burst_cutter": lambda: BurstCutter(
        address_bits=16, beat_bits=6, bus_bytes=4, max_burst_beats=16
    ),
    **{
        name: lambda name=name: component_of(preset("tiny"), name)
        for name in ("machine_control", "sequencer", "host_read_port")
    },
}
"""Units that are checked, all without large memories.

Any inputs of these units are legal, or the result does not depend on illegal inputs."""


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
            found = check_unit(UNITS[name](), build_root() / "xprop" / name)
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
