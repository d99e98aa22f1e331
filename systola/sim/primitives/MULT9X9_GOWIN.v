// SPDX-License-Identifier: Apache-2.0
// Model of half of Gowin's multiplier (UG287), without cascades and with constant signs: the registers in use have one
// clock enable and a synchronous reset.
module MULT9X9 #(
    parameter AREG = 1'b0,
    parameter BREG = 1'b0,
    parameter PIPE_REG = 1'b0,
    parameter OUT_REG = 1'b0
) (
    input CLK, CE, RESET, ASIGN, BSIGN, ASEL, BSEL,
    input [8:0] A, B, SIA, SIB,
    output [17:0] DOUT
);
  reg signed [9:0] a, b;
  reg [17:0] pipeline, product;
  wire signed [9:0] a_used = AREG ? a : {ASIGN & A[8], A};
  wire signed [9:0] b_used = BREG ? b : {BSIGN & B[8], B};
  wire [17:0] raw = a_used * b_used;
  wire [17:0] piped = PIPE_REG ? pipeline : raw;
  always @(posedge CLK)
    if (RESET) begin
      a <= 0;
      b <= 0;
      pipeline <= 0;
      product <= 0;
    end else if (CE) begin
      a <= {ASIGN & A[8], A};
      b <= {BSIGN & B[8], B};
      pipeline <= raw;
      product <= piped;
    end
  assign DOUT = OUT_REG ? product : piped;
endmodule
