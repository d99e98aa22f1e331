# SPDX-License-Identifier: Apache-2.0
"""The parts of the machine that sleep, in a simulator, while nothing in them changes.

The array holds while a row of weights is late. All registers of a tile then keep their values until
a reset, except the shadow row that is loaded. A module around the tile stops its clock in such
cycles: an array that waits for weights costs a simulator little.

The lanes of the activation unit take no part in a long product until its last pass. Their clock
stops when their inputs have no effect any more.
"""

from __future__ import annotations

import re

TILE, AWAKE = "mxu_tile", "mxu_tile_awake"
_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", re.MULTILINE)

LANES_WAKE_FOR = 255
"""Cycles for which lanes stay awake after their last input: more than from an input to its last
effect.
"""
_LANES = re.compile(
    r"^module \w*__activation_unit__lanes\(.*?^endmodule$", re.MULTILINE | re.DOTALL
)
_CLOCK = re.compile(r"^  wire (\w*clk);\n", re.MULTILINE)
_TOLD = re.compile(
    r"^  input (?:\[\d+:0\] )?(\w+__(?:enable|planes)(?:_\d+)*|\w*rst|issue);", re.MULTILINE
)
"""Pattern of the lanes' inputs that can change registers, except `line`. Amaranth adds a number to
a name that is already taken."""
_TURN = re.compile(r"^  input turn;", re.MULTILINE)
_LINE = (
    *("load_tap", "load_tile", "load_seed", "scaling.scaled"),
    *(f"element.{name}" for name in ("low", "addend", "coefficient", "keep")),
    *(f"summing.{name}" for name in ("update", "scaled", "halved")),
)
"""Fields of `line` that can change registers of the lanes."""


def with_sleeping_tiles(verilog: str) -> str:
    """Return the text with `mxu_tile` renamed to `mxu_tile_awake`, inside a new `mxu_tile`."""
    begin = verilog.index(f"\nmodule {TILE}(") + 1
    end = verilog.index("endmodule", begin)
    ports = {name: (way, int(high or 0)) for way, high, name in _PORT.findall(verilog[begin:end])}
    declared = ",\n".join(f"  {way} wire [{high}:0] {name}" for name, (way, high) in ports.items())
    connected = ", ".join(f".{name}({name})" for name in ports if name != "clk")
    awake = verilog.replace(f"\nmodule {TILE}(", f"\nmodule {AWAKE}(", 1)
    return f"""{awake}
module {TILE}(
{declared}
);
  reg holds = 0;
  reg awake = 1;
  always @(posedge clk) holds <= hold_next;
  // All inputs come from registers. While the clock is low, so that no edge is cut in two.
  always @(negedge clk) awake <= !holds || !hold_next || load != 0 || rst;
  {AWAKE} tile (.clk(clk & awake), {connected});
endmodule
"""


def with_sleeping_lanes(verilog: str) -> str:
    """Return the Verilog text with lanes that stop their clock while they have no work.

    The names of modules stay. Lanes that several columns share do not stop: their registers move
    from column to column in each turn.
    """
    return _LANES.sub(_sleeping, verilog)


def _sleeping(lanes: re.Match[str]) -> str:
    module = lanes[0]
    if _TURN.search(module):
        return module
    declared = _CLOCK.search(module)
    assert declared is not None
    clock = declared[1]
    names = (*_TOLD.findall(module), *(f"\\line.{name} " for name in _LINE))
    told = " || ".join(f"{name} != 0" for name in names)
    rest = re.sub(rf"(?<=[ (]){clock}\b", "awake_clk", module[declared.end() :])
    return f"""{module[: declared.end()]}  wire awake_clk;
{rest.removesuffix("endmodule")}
  wire told = {told};
  reg [7:0] wakes_for = {LANES_WAKE_FOR};
  reg awake = 1;
  assign awake_clk = {clock} & awake;
  always @(posedge {clock})
    wakes_for <= told ? {LANES_WAKE_FOR} : wakes_for - (wakes_for != 0);
  // While the clock is low, so that no edge is cut in two.
  always @(negedge {clock}) awake <= told || wakes_for != 0;
endmodule"""
