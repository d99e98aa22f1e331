// SPDX-License-Identifier: Apache-2.0
// Model of Lattice's ECP5 multiplier (FPGA-TN-02205), without cascades and dynamic sources: each of
// its registers is in the path when its clock is CLK0, with clock enable and synchronous reset.
module MULT18X18D #(
    parameter REG_INPUTA_CLK = "NONE",
    parameter REG_INPUTA_CE = "CE0",
    parameter REG_INPUTA_RST = "RST0",
    parameter REG_INPUTB_CLK = "NONE",
    parameter REG_INPUTB_CE = "CE0",
    parameter REG_INPUTB_RST = "RST0",
    parameter REG_PIPELINE_CLK = "NONE",
    parameter REG_PIPELINE_CE = "CE0",
    parameter REG_PIPELINE_RST = "RST0",
    parameter REG_OUTPUT_CLK = "NONE",
    parameter REG_OUTPUT_CE = "CE0",
    parameter REG_OUTPUT_RST = "RST0",
    parameter GSR = "ENABLED"
) (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3, RST2, RST1, RST0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19,
        P18, P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
  wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1,
      A0};
  wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1,
      B0};
  // The signs travel through the operands' registers.
  wire [18:0] a_used, b_used;
  wire [37:0] pipeline, product;
  wire [37:0] raw = {{19{a_used[18]}}, a_used} * {{19{b_used[18]}}, b_used};
  MULT18X18D_register #(
      .WIDTH(19), .CLK(REG_INPUTA_CLK), .CE(REG_INPUTA_CE), .RST(REG_INPUTA_RST)
  ) input_a (
      .clk(CLK0), .ce({CE3, CE2, CE1, CE0}), .rst({RST3, RST2, RST1, RST0}),
      .d({SIGNEDA & a[17], a}), .q(a_used)
  );
  MULT18X18D_register #(
      .WIDTH(19), .CLK(REG_INPUTB_CLK), .CE(REG_INPUTB_CE), .RST(REG_INPUTB_RST)
  ) input_b (
      .clk(CLK0), .ce({CE3, CE2, CE1, CE0}), .rst({RST3, RST2, RST1, RST0}),
      .d({SIGNEDB & b[17], b}), .q(b_used)
  );
  MULT18X18D_register #(
      .WIDTH(38), .CLK(REG_PIPELINE_CLK), .CE(REG_PIPELINE_CE), .RST(REG_PIPELINE_RST)
  ) register_pipeline (
      .clk(CLK0), .ce({CE3, CE2, CE1, CE0}), .rst({RST3, RST2, RST1, RST0}),
      .d(raw), .q(pipeline)
  );
  MULT18X18D_register #(
      .WIDTH(38), .CLK(REG_OUTPUT_CLK), .CE(REG_OUTPUT_CE), .RST(REG_OUTPUT_RST)
  ) register_output (
      .clk(CLK0), .ce({CE3, CE2, CE1, CE0}), .rst({RST3, RST2, RST1, RST0}),
      .d(pipeline), .q(product)
  );
  assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19,
      P18, P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} =
      product[35:0];
endmodule

module MULT18X18D_register #(
    parameter WIDTH = 1,
    parameter CLK = "NONE",
    parameter CE = "CE0",
    parameter RST = "RST0"
) (
    input clk,
    input [3:0] ce,
    input [3:0] rst,
    input [WIDTH-1:0] d,
    output [WIDTH-1:0] q
);
  wire enable = CE == "CE0" ? ce[0] : CE == "CE1" ? ce[1] : CE == "CE2" ? ce[2] : ce[3];
  wire reset = RST == "RST0" ? rst[0] : RST == "RST1" ? rst[1] : RST == "RST2" ? rst[2] : rst[3];
  generate
    if (CLK == "NONE") begin : bypassed
      assign q = d;
    end else begin : used
      reg [WIDTH-1:0] value;
      always @(posedge clk)
        if (reset) value <= 0;
        else if (enable) value <= d;
      assign q = value;
    end
  endgenerate
endmodule
