# SPDX-License-Identifier: Apache-2.0
"""The command `make chain`: it runs random programs on the golden model and on all simulators.

These are Amaranth's simulator, the C++ library, both cocotb simulators, and netlists. The bytes are
the same everywhere, and the cycles are the same wherever there is a clock.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Sequence

from systola.arch.config import Config, ConfigError, preset
from systola.cli.arguments import OneLineParser, whole_number
from systola.sim.runner import SIMULATORS
from systola.synth.simulation_netlist import NETLISTS
from systola.verif.chain.facts import Facts, golden_facts
from systola.verif.chain.links import amaranth_facts, cocotb_facts, library_facts
from systola.verif.kit.launch import NETLIST_MACHINE

GOLDEN = "golden model"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make chain` and return the exit status, 1 if two results differ."""
    options = _parser().parse_args(arguments)
    try:
        config = preset(options.preset)
    except ConfigError as error:
        print(f"chain: {error}", file=sys.stderr)
        return 2
    print(f"SEED={options.seed}, {options.programs} programs on '{config.name}'", flush=True)
    return compare(config, options.seed, options.programs, links(options.netlist))


Link = Callable[[Config, int, int], list[Facts]]


def links(netlists: Sequence[str] = ()) -> dict[str, Link]:
    """Return a function for each simulator, by name, that runs programs and returns their facts."""
    found: dict[str, Link] = {"C++ library": library_facts, "Amaranth": amaranth_facts}
    for simulator in SIMULATORS:
        found[f"cocotb, {simulator}"] = cocotb_facts(simulator)
    for netlist in netlists:
        found[f"netlist, {netlist}"] = cocotb_facts("verilator", netlist)
    return found


def compare(config: Config, seed: int, count: int, others: dict[str, Link]) -> int:
    """Run programs on the golden model and all simulators; return 1 if a result differs, else 0."""
    expected = golden_facts(config, seed, count)
    print(f"{GOLDEN}: {sum(facts.fault != (0, 0, 0) for facts in expected)} faults", flush=True)
    times: list[tuple[object, ...]] | None = None
    failed = False
    for name, link in others.items():
        found = link(config, seed, count)
        problems = [
            f"program {index}: {field} is not that of the golden model"
            for index, (ours, theirs) in enumerate(zip(expected, found, strict=True))
            for field in ("host", "fault", "interrupt", "tags")
            if getattr(ours, field) != getattr(theirs, field)
        ]
        own = [facts.times for facts in found]
        times = times or own
        if own != times:
            problems.append("the cycles are not those of the others")
        total = sum(int(str(facts.times[0])) for facts in found)
        print(f"{name}: {total} cycles, {'; '.join(problems) or 'equal'}", flush=True)
        failed |= bool(problems)
    return int(failed)


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="chain", description=__doc__)
    parser.add_argument("--preset", default=os.environ.get("PRESET") or NETLIST_MACHINE)
    parser.add_argument("--programs", type=whole_number(1), default=4, metavar="N")
    parser.add_argument("--seed", type=whole_number(1), default=random.randrange(1, 1 << 32))
    parser.add_argument("--netlist", nargs="*", choices=NETLISTS, default=[])
    return parser


if __name__ == "__main__":
    sys.exit(main())
