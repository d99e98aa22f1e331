# SPDX-License-Identifier: Apache-2.0
"""The page docs/synthesis.md and its picture, generated from the baseline.

`python -m systola.synth.page --write docs` writes them, `--check docs` exits with status 1 where
one is missing or out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from systola.arch.pages import Pages, table, write_or_check
from systola.synth import baseline, memories
from systola.synth.picture import picture
from systola.synth.report import fmax
from systola.synth.targets import DEFAULT_TARGET, TARGETS
from systola.synth.tools import MINIMUM

_NOTICE = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by `python -m systola.synth.page --write docs` from synth/baseline.json.
     Edit synth/page.py instead. -->
"""

_HOW_TO = """
```
make synth                                        # {default}, preset small, the whole machine
make synth TARGET=up5k PRESET=tiny UNIT=mxu SEEDS=5
tpu synth --target xc7a100t --preset base --json figures.json
tpu synth --unit activation_unit --speed 8 --seeds 1
tpu verilog --preset small --fabric ecp5 -o tpu.v   # for a flow of your own
```

`make synth` installs Yosys and nextpnr from PyPI into `.venv` when it runs for the first time. A
`yosys` or `nextpnr-*` on PATH goes first when it is new enough: Yosys {yosys}, nextpnr {nextpnr}.
Everything is left in `build/synth/TARGET_PRESET[_UNIT]/`: the Verilog, the netlist, the tools'
logs and reports, and `report.json` with all figures. What would come out the same is not run again.
"""

_MEANING = """
- **LUT** is the number of places of look-up tables: logic, carry chains (two places for each
  `CCU2C`) and small memories, so that it can be compared with what the device has. **carry** and
  **LUT RAM** are contained in it.
- **DSP** counts multipliers of 18x18 bits (25x18 on Xilinx 7, 16x16 on iCE40), **RAM** block RAMs
  in their smallest size.
- **By unit**: the netlist is flat, its cells are told apart by their names, which begin with the
  path of the module. Where synthesis merged logic of two units into one look-up table, it counts
  for one of them.
- A machine has more ports than an FPGA has pins. It is placed in a **frame**: inputs come from a
  shift register, outputs end in registers behind exclusive ors. All paths from and to ports are
  therefore timed. The frame's own cells are left out of the figures, and stand beside them in
  the JSON as `frame`. The reset comes from a pin and is not timed.
- On the ECP5 the multipliers of a whole machine have **places** that follow its data: the array on
  two rows of DSP blocks, the lanes on the third. nextpnr's placers leave them far from what they
  feed, and all else finds its place around them. What nextpnr has placed is then **improved**
  before it routes (`synth/refine`): its placers look at wire more than at time, so look-up tables
  and registers of slow paths are moved until fewer are slow, alone and with what slow paths connect
  them to, for about four minutes.
- **Fmax** is what nextpnr's timing analysis says for the slowest corner of the speed grade, after
  routing, for seeds 1 to N. The table has the median, with the lowest and highest in brackets. The
  critical path is that of the median, told in modules and signals of the design: nanoseconds in
  logic and on wires.
- **GOPS** is 2 x R x C x the median of Fmax: what the array could do if it never waited.
- **Memories**: synthesis fails when a memory is not in block RAM. Queues may be LUT RAM up to
  {luts:,} bits, and flip-flops up to {flip_flops} bits, or as many as LUT RAM where there is none
  (iCE40); the report names each of them.
- **Unregistered paths between units** are looked for before anything is mapped: from a register of
  one unit to one of another, with logic of both on the way, or of a third. The JSON has the list.
"""

_CHECK = """
`synth/baseline.json` has the figures below. `make synth-check` measures the designs again and fails
where one has become worse: LUTs and registers by more than {growth:g} %, as they move a little with
every change of a description; DSPs, block RAMs and unregistered paths at all; the median of Fmax
by more than {slower:g} %, as placement is a matter of luck. `make synth-baseline` measures and
accepts. `DESIGN=` is one of the set: {names}.
"""

_UP5K = """
No size of the machine fits the iCE40 UP5K: `tiny` is the smallest, its registers alone would fill
five of these FPGAs, and the activation unit alone has more logic than there is room for. What fits
is the array by itself, up to 4x4, which takes all eight DSP blocks. Stripped of its tables, with an
array of 2x2, queues of two instructions and memories of 256 lines, 64 rows and 16 entries, the
machine still has 16,503 look-up tables and 19,546 registers. Its instructions ask for
addresses of 20 bits, lists of what is under way and a requantiser with products of 32x31 bits for
each column at any size; a machine for this FPGA would have to do one after the other what this one
does side by side.
"""

_CROSSINGS = """
`small` has {count}. Where a register would cost cycles, there is none:

- The ports of the unified buffer and of the accumulators: who may read or write is decided in the
  cycle in which it is asked for, and so is which lines have been written (`advance`), for those
  that follow a line behind.
- Issue: decoder, sequencer and scoreboard agree in one cycle that an instruction goes, scalar unit
  and decoder that one comes.
- What is dropped from a queue, and the row of weights that is taken: the next one shows in the
  cycle behind.
- `ready` of the host's read channel goes to two units, and `stop`, with which a program ends,
  shuts the channels in its first cycle.
- The watchdog, the counters, the trace and the status see what happens through a few gates of the
  units in which it does.
"""

_NEVER = """
No bitstream of this project was ever run on a physical board. Clocks are those of nextpnr's timing
models. Gowin's shows no path through a multiplier, so its clocks are too good to be true. No clock
is given for Xilinx 7, as no place and route is published for it with the tools used here. Power was
not looked at.
"""


def synthesis_page() -> str:
    """The text of docs/synthesis.md."""
    figures = baseline.stored()
    versions = {name: ".".join(map(str, number)) for name, number in MINIMUM.items()}
    return "\n".join(
        (
            _NOTICE,
            "# Synthesis",
            _HOW_TO.format(default=DEFAULT_TARGET, **versions),
            table(
                ("Target", "Device", "Speed", "Place and route"),
                (
                    (
                        f"`{target.name}`",
                        target.device.removesuffix(", synthesis only"),
                        ", ".join(filter(None, target.speeds)) or "-",
                        target.place_and_route or "none: synthesis only",
                    )
                    for target in TARGETS.values()
                ),
            ),
            "## What the figures mean",
            _MEANING.format(luts=memories.LUT_LIMIT, flip_flops=memories.FLIP_FLOP_LIMIT),
            "## Figures",
            _CHECK.format(
                growth=100 * baseline.GROWTH["lut"],
                slower=100 * baseline.SLOWER,
                names=", ".join(f"`{design.name}`" for design in baseline.SET),
            ),
            _resources(figures),
            _speeds(figures),
            f"![Where the logic is]({_PICTURE})\n",
            "## What does not fit",
            _too_large(figures),
            _UP5K,
            "## Paths between units without a register",
            _CROSSINGS.format(count=figures[_PLACED]["crossings"]),
            "## What was never tried",
            _NEVER,
        )
    )


def synthesis_picture() -> str:
    """The text of docs/synthesis.svg: the first whole machine of the baseline, unit by unit."""
    for figures in baseline.stored().values():
        if figures["unit"] is None:
            title = f"{figures['device']}, preset {figures['preset']}, by unit"
            return picture(title, figures["units"])
    return picture("no whole machine in the baseline yet", {})


_PICTURE = "synthesis.svg"
_PLACED = "ecp5-85f_small"
"""The whole machine of which everything is measured."""
_LARGEST = 5
"""Units that are named where a design does not fit."""
PAGES: Pages = {"synthesis.md": synthesis_page, _PICTURE: synthesis_picture}


def _resources(all_figures: Mapping[str, Any]) -> str:
    kinds = ("lut", "ff", "dsp", "block_ram", "large_ram")
    rows: list[tuple[str, ...]] = []
    for figures in all_figures.values():
        capacity = {kind.value: n for kind, n in TARGETS[figures["target"]].capacity.items()}
        cells = [_used(figures["resources"][kind], capacity.get(kind)) for kind in kinds]
        rows.append((*_design(figures), *cells, _optional(figures["macs_per_dsp"], "{:g}")))
    header = ("Target", "Design", "LUT", "FF", "DSP", "RAM", "large RAM", "MACs per DSP")
    return table(header, rows)


def _speeds(all_figures: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    for figures in all_figures.values():
        for clock in figures["clocks"].values():
            rows.append(
                (
                    *_design(figures),
                    figures["speed"] or "-",
                    fmax(clock, digits=0),
                    _optional(figures["gops"], "{:.1f}"),
                    _path(clock["critical_path"]),
                )
            )
    return table(("Target", "Design", "Speed", "Fmax", "GOPS", "Critical path"), rows)


def _too_large(all_figures: Mapping[str, Any]) -> str:
    rows = [
        (
            *_design(figures),
            ", ".join(figures["lacks"]),
            ", ".join(
                f"{name} {unit['lut']:,g}"
                for name, unit in sorted(
                    figures["units"].items(), key=lambda item: item[1]["lut"], reverse=True
                )[:_LARGEST]
            ),
        )
        for figures in all_figures.values()
        if figures["lacks"]
    ]
    header = ("Target", "Design", "Needs", "LUTs of the largest units")
    return f"\nSynthesised, but not placed:\n\n{table(header, rows)}"


def _path(path: Mapping[str, Any] | None) -> str:
    if path is None:
        return "-"
    times = f"{path['logic']:.1f} ns logic, {path['routing']:.1f} ns wires"
    return f"`{path['start']}` to `{path['end']}`, {times}"


def _design(figures: Mapping[str, Any]) -> tuple[str, str]:
    what = f"{figures['unit']} of {figures['preset']}" if figures["unit"] else figures["preset"]
    return f"`{figures['target']}`", what


def _used(count: float, available: int | None) -> str:
    if not available:
        return "-"
    return f"{count:,.0f} ({100 * count / available:.0f} %)"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; the exit status."""
    return write_or_check(PAGES, "systola.synth.page", arguments)


if __name__ == "__main__":
    sys.exit(main())
