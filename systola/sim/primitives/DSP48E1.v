// SPDX-License-Identifier: Apache-2.0
// Model of the multiplier of Xilinx' 7 series (UG479) as C + A * B, all registers in use, without
// pre-adder, cascades and resets.
module DSP48E1 #(
    parameter AREG = 1, ACASCREG = 1, BREG = 1, BCASCREG = 1, CREG = 1, MREG = 1, PREG = 1,
    parameter ADREG = 1, DREG = 1, INMODEREG = 1, OPMODEREG = 1, ALUMODEREG = 1,
    parameter CARRYINREG = 1, CARRYINSELREG = 1,
    parameter USE_DPORT = "FALSE"
) (
    input CLK,
    input CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP,
    input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
    input signed [29:0] A,
    input signed [17:0] B,
    input [47:0] C,
    input [24:0] D,
    input [29:0] ACIN,
    input [17:0] BCIN,
    input [47:0] PCIN,
    input CARRYIN, CARRYCASCIN, MULTSIGNIN,
    input [2:0] CARRYINSEL,
    input [4:0] INMODE,
    input [3:0] ALUMODE,
    input [6:0] OPMODE,
    output reg [47:0] P
);
  reg signed [24:0] a;
  reg signed [17:0] b;
  reg signed [47:0] c, product;
  always @(posedge CLK) begin
    if (CEA2) a <= A[24:0];
    if (CEB2) b <= B;
    if (CEC) c <= C;
    if (CEM) product <= a * b;
    if (CEP) P <= c + product;
  end
endmodule
