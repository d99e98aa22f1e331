// SPDX-License-Identifier: Apache-2.0
// A register that is one of several equal ones; contract in hdl/parts/replica.py. Synthesis for a chip flattens
// modules and merges equal registers, but leaves a module with this attribute alone.
(* keep_hierarchy *)
module replica #(
    parameter WIDTH = 1
) (
    input clk,
    input [WIDTH-1:0] in,
    output [WIDTH-1:0] out
);
  reg [WIDTH-1:0] held = {WIDTH{1'b1}};

  always @(posedge clk) held <= in;
  assign out = held;
endmodule
