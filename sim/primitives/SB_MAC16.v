// SPDX-License-Identifier: Apache-2.0
// Model of the iCE40's multiplier (FPGA-TN-02007): signed, all registers in use; one product of 16
// bits, or two of 8 that pass through the registered adders, to which C and D are added.
module SB_MAC16 #(
    parameter [0:0] A_REG = 0, B_REG = 0, TOP_8x8_MULT_REG = 0, BOT_8x8_MULT_REG = 0,
    parameter [0:0] PIPELINE_16x16_MULT_REG1 = 0, PIPELINE_16x16_MULT_REG2 = 0,
    parameter [0:0] MODE_8x8 = 0, A_SIGNED = 0, B_SIGNED = 0,
    parameter [1:0] TOPOUTPUT_SELECT = 0, BOTOUTPUT_SELECT = 0,
    parameter [1:0] TOPADDSUB_LOWERINPUT = 0, BOTADDSUB_LOWERINPUT = 0,
    parameter [0:0] TOPADDSUB_UPPERINPUT = 0, BOTADDSUB_UPPERINPUT = 0
) (
    input CLK, CE,
    input [15:0] A, B, C, D,
    input AHOLD, BHOLD, CHOLD, DHOLD, IRSTTOP, IRSTBOT, ORSTTOP, ORSTBOT,
    input OLOADTOP, OLOADBOT, ADDSUBTOP, ADDSUBBOT, OHOLDTOP, OHOLDBOT, CI, ACCUMCI, SIGNEXTIN,
    output [31:0] O
);
  reg signed [15:0] a, b, top, bottom;
  reg [15:0] top_sum, bottom_sum;
  reg signed [31:0] whole, whole_output;
  wire signed [7:0] a_top = a[15:8], a_bottom = a[7:0], b_top = b[15:8], b_bottom = b[7:0];
  always @(posedge CLK)
    if (CE) begin
      a <= A;
      b <= B;
      top <= a_top * b_top;
      bottom <= a_bottom * b_bottom;
      top_sum <= C + top;
      bottom_sum <= D + bottom;
      whole <= a * b;
      whole_output <= whole;
    end
  assign O = TOPOUTPUT_SELECT == 3 ? whole_output : {top_sum, bottom_sum};
endmodule
