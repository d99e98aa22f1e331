// SPDX-License-Identifier: Apache-2.0
// Model of half a multiplier of Lattice Nexus (FPGA-TN-02096), all registers in use, synchronous
// resets.
module MULT9X9 #(
    parameter REGINPUTA = "REGISTER",
    parameter REGINPUTB = "REGISTER",
    parameter REGOUTPUT = "REGISTER",
    parameter GSR = "ENABLED"
) (
    input CLK, CEA, CEB, CEOUT, RSTA, RSTB, RSTOUT, SIGNEDA, SIGNEDB,
    input [8:0] A, B,
    output reg [17:0] Z
);
  reg signed [9:0] a, b;
  always @(posedge CLK) begin
    if (RSTA) a <= 0;
    else if (CEA) a <= {SIGNEDA & A[8], A};
    if (RSTB) b <= 0;
    else if (CEB) b <= {SIGNEDB & B[8], B};
    if (RSTOUT) Z <= 0;
    else if (CEOUT) Z <= a * b;
  end
endmodule
