// SPDX-License-Identifier: Apache-2.0
// Model of Gowin's multiplier (UG287), without cascades and with constant signs: the registers in use have one
// clock enable and a synchronous reset.
module MULT18X18 #(
    parameter AREG = 1'b0,
    parameter BREG = 1'b0,
    parameter PIPE_REG = 1'b0,
    parameter OUT_REG = 1'b0
) (
    input CLK, CE, RESET, ASIGN, BSIGN, ASEL, BSEL,
    input [17:0] A, B, SIA, SIB,
    output [35:0] DOUT
);
  reg signed [18:0] a, b;
  reg [35:0] pipeline, product;
  wire signed [18:0] a_used = AREG ? a : {ASIGN & A[17], A};
  wire signed [18:0] b_used = BREG ? b : {BSIGN & B[17], B};
  wire [35:0] raw = a_used * b_used;
  wire [35:0] piped = PIPE_REG ? pipeline : raw;
  always @(posedge CLK)
    if (RESET) begin
      a <= 0;
      b <= 0;
      pipeline <= 0;
      product <= 0;
    end else if (CE) begin
      a <= {ASIGN & A[17], A};
      b <= {BSIGN & B[17], B};
      pipeline <= raw;
      product <= piped;
    end
  assign DOUT = OUT_REG ? product : piped;
endmodule
