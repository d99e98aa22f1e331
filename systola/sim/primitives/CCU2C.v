// SPDX-License-Identifier: Apache-2.0
// Model of two bits of a carry chain of Lattice's ECP5: a look-up table of four inputs each, whose
// value says whether the carry is passed on, and of two of them, which else is the carry.
module CCU2C #(
    parameter [15:0] INIT0 = 0,
    parameter [15:0] INIT1 = 0,
    parameter INJECT1_0 = "YES",
    parameter INJECT1_1 = "YES"
) (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
  wire passes_0 = INIT0[{D0, C0, B0, A0}];
  wire passes_1 = INIT1[{D1, C1, B1, A1}];
  wire carries_0 = INJECT1_0 != "YES" & INIT0[{2'b00, B0, A0}];
  wire carries_1 = INJECT1_1 != "YES" & INIT1[{2'b00, B1, A1}];
  wire half = passes_0 ? CIN : carries_0;
  assign COUT = passes_1 ? half : carries_1;
  assign S0 = INJECT1_0 == "YES" ? passes_0 : passes_0 ^ CIN;
  assign S1 = INJECT1_1 == "YES" ? passes_1 : passes_1 ^ half;
endmodule
