// SPDX-License-Identifier: Apache-2.0
// Model of the ECP5's flip-flop (parameters as Project Trellis names them): rising edge, without
// reset, always enabled.
module TRELLIS_FF #(
    parameter GSR = "ENABLED",
    parameter CEMUX = "1",
    parameter CLKMUX = "CLK",
    parameter LSRMUX = "LSR",
    parameter REGSET = "RESET"
) (
    input CLK, LSR, DI,
    output reg Q
);
  initial Q = REGSET == "SET";
  always @(posedge CLK) Q <= DI;
endmodule
