# SPDX-License-Identifier: Apache-2.0
"""Tiles of a large array that sleep, in a simulator, while nothing in them changes.

While the array holds, since a row of weights is late, all registers of a tile keep their values but
for the shadow row that is loaded, until a reset. A module around the tile leaves out its clock in
such cycles: an array that waits for weights costs a simulator little.
"""

from __future__ import annotations

import re

TILE, AWAKE = "mxu_tile", "mxu_tile_awake"
_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", re.MULTILINE)


def with_sleeping_tiles(verilog: str) -> str:
    """The text with module `mxu_tile` as `mxu_tile_awake`, in another one with its name."""
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
