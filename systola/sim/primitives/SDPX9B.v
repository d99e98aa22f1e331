// SPDX-License-Identifier: Apache-2.0
// Model of Gowin's block RAM with one port for writes and one for reads (UG285), for words of 36
// bits, one clock, the block selects at zero, and synchronous resets of the outputs.
//
// A read in the same cycle as a write to its word is undefined in the silicon; here it gives the
// inverse of the old word, so that a design that uses it is found out.
module SDPX9B #(
    parameter BIT_WIDTH_0 = 36,
    parameter BIT_WIDTH_1 = 36,
    parameter READ_MODE = 1'b0
) (
    input CLKA, CEA, RESETA, CLKB, CEB, OCE, RESETB,
    input [2:0] BLKSELA, BLKSELB,
    input [13:0] ADA, ADB,
    input [35:0] DI,
    output [35:0] DO
);
  reg [35:0] words[0:511];
  reg [35:0] latch, register;
  wire collision = CEA && ADA[13:5] == ADB[13:5];
  integer k;
  always @(posedge CLKA)
    if (CEA) for (k = 0; k < 4; k = k + 1) if (ADA[k]) words[ADA[13:5]][9*k+:9] <= DI[9*k+:9];
  always @(posedge CLKB) begin
    if (RESETB) latch <= 0;
    else if (CEB) latch <= words[ADB[13:5]] ^ {36{collision}};
    if (RESETB) register <= 0;
    else if (OCE) register <= latch;
  end
  assign DO = READ_MODE ? register : latch;
endmodule
