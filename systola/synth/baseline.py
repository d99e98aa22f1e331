# SPDX-License-Identifier: Apache-2.0
"""The project's accepted figures of synthesis, and the check that they still hold.

`python -m systola.synth.baseline --check` measures a set of designs. It fails if a design has
become larger or slower than in baseline.json. `--write` stores its figures as the new baseline.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systola.arch.config import preset
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.flow import folder_name, measure
from systola.synth.targets import target

BASELINE = Path(__file__).with_name("baseline.json")

GROWTH = {"lut": 0.03, "ff": 0.03, "dsp": 0.0, "block_ram": 0.0, "large_ram": 0.0}
"""Largest accepted growth of each resource, as a fraction.

Look-up tables and registers move a little with every change of the description. DSP blocks and
memory blocks may not grow: they come only where a description asks for them.
"""
SLOWER = 0.05
"""Largest fall of the median of Fmax that is accepted, as a fraction. Single placements of one
netlist differ by more."""


@dataclass(frozen=True)
class Design:
    """A design of the set; `seeds` is the number of placements, 0 for targets without place and
    route.
    """

    target: str
    preset: str
    unit: str | None = None
    seeds: int = 5
    cores: int | None = None
    """Number of cores of a pod; None for one machine."""

    @property
    def name(self) -> str:
        """Name of the design in baseline.json and in build/synth/."""
        return folder_name(target(self.target), preset(self.preset), self.unit, self.cores)


SET = (
    Design("ecp5-85f", "small", "mxu"),
    Design("ecp5-85f", "small", seeds=0),
    Design("ecp5-85f", "small-compact", seeds=0),
    Design("ecp5-85f", "tiny", seeds=0),
    Design("ecp5-85f", "12x12", seeds=0),
    Design("ecp5-85f", "16x16-int8-compact", seeds=0),
    Design("ecp5-85f", "small-packed-compact", seeds=0, cores=2),
    Design("nexus-40", "small", "mxu", seeds=3),
    Design("gw2a-18", "small", "mxu", seeds=3),
    Design("xc7a100t", "base", seeds=0),
    Design("up5k", "tiny", "mxu"),
    Design("up5k", "tiny", seeds=0),
)
"""Designs with figures in the baseline. There are fewer than five placements if they would take
hours, and none if the design does not fit."""


def stored() -> dict[str, Any]:
    """Return the accepted figures by design."""
    return json.loads(BASELINE.read_text())


def kept(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a design that the baseline keeps."""
    clocks: dict[str, Any] = figures.get("clocks", {})
    paths = ("start", "end", "logic", "routing")
    return {
        **{
            key: figures[key]
            for key in ("target", "device", "speed", "preset", "unit", "cores", "tools")
        },
        "resources": figures["resources"],
        "lacks": figures["lacks"],
        "units": {
            name: {kind: unit[kind] for kind in ("lut", "ff", "dsp", "block_ram")}
            for name, unit in figures["units"].items()
        },
        "crossings": figures["crossings"]["count"] if figures["crossings"] else None,
        "clocks": {
            name: {
                **{key: clock[key] for key in ("seeds", "min", "median", "max")},
                "critical_path": clock["critical_path"]
                and {key: clock["critical_path"][key] for key in paths},
            }
            for name, clock in clocks.items()
        },
        **{key: figures[key] for key in ("macs_per_cycle", "gops", "macs_per_dsp")},
    }


def worse(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure of `now` that is worse than the accepted figure in `then`."""
    found: list[str] = []
    if now["lacks"] and not then["lacks"]:
        found.append(f"does not fit any more: {', '.join(now['lacks'])}")
    for kind, tolerance in GROWTH.items():
        accepted, measured = then["resources"][kind], now["resources"][kind]
        if measured > accepted * (1 + tolerance):
            found.append(
                f"{kind}: {measured:,g}, was {accepted:,g} (+{100 * tolerance:g} % allowed)"
            )
    if then["crossings"] is not None and now["crossings"] > then["crossings"]:
        found.append(
            f"unregistered paths between units: {now['crossings']}, was {then['crossings']}"
        )
    for name, clock in then["clocks"].items():
        if name not in now["clocks"]:
            found.append(f"clock {name} is gone")
        elif now["clocks"][name]["median"] < clock["median"] * (1 - SLOWER):
            found.append(
                f"clock {name}: {now['clocks'][name]['median']:.1f} MHz, was "
                f"{clock['median']:.1f} (-{100 * SLOWER:g} % allowed)"
            )
    return found


def _measure(design: Design) -> dict[str, Any]:
    return kept(
        measure(
            target(design.target),
            preset(design.preset),
            unit=design.unit,
            speed=None,
            seeds=design.seeds,
            cores=design.cores,
        )
    )


def _check(designs: Sequence[Design]) -> int:
    accepted = stored()
    status = 0
    for design in designs:
        if design.name not in accepted:
            problems = ["not in the baseline (make synth-baseline)"]
        else:
            problems = worse(_measure(design), accepted[design.name])
        print(f"{design.name}: {'; '.join(problems) or 'as good as accepted'}", flush=True)
        status |= bool(problems)
    return int(status)


def _write(designs: Sequence[Design]) -> int:
    for design in designs:
        figures = _measure(design)
        # Each design is stored at once, as the next one may take an hour, or fail.
        everything = {**stored(), design.name: figures}
        ordered = {each.name: everything[each.name] for each in SET if each.name in everything}
        BASELINE.write_text(json.dumps(ordered, indent=1) + "\n")
        print(f"{design.name}: accepted", flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or write the baseline, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m systola.synth.baseline")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail where a figure is worse")
    action.add_argument("--write", action="store_true", help="accept what is measured")
    parser.add_argument("--only", metavar="DESIGN", help="one design of the set, by its name")
    options = parser.parse_args(arguments)
    designs = [each for each in SET if options.only in (None, each.name)]
    if not designs:
        names = ", ".join(each.name for each in SET)
        parser.error(f"unknown design '{options.only}' (known: {names})")
    try:
        return _write(designs) if options.write else _check(designs)
    except (SynthesisUsageError, SynthesisError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, SynthesisUsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
