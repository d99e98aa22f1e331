// SPDX-License-Identifier: Apache-2.0
// Model of Lattice's ECP5 block RAM (FPGA-TN-02204), for ports A and B with one clock, chip selects
// at zero, and resets of the outputs at the clock's edge. With a width of 36 port A writes and port
// B reads; the halves of the words then use the data pins of both.
//
// A read in the same cycle as a write to its word through the other port is undefined in the
// silicon; here it gives the inverse of the old word, so that whoever uses it is found out.
/* verilator lint_off MULTIDRIVEN */
module DP16KD #(
    parameter [319:0] INITVAL_00 = 320'h0,
    parameter [319:0] INITVAL_01 = 320'h0,
    parameter [319:0] INITVAL_02 = 320'h0,
    parameter [319:0] INITVAL_03 = 320'h0,
    parameter [319:0] INITVAL_04 = 320'h0,
    parameter [319:0] INITVAL_05 = 320'h0,
    parameter [319:0] INITVAL_06 = 320'h0,
    parameter [319:0] INITVAL_07 = 320'h0,
    parameter [319:0] INITVAL_08 = 320'h0,
    parameter [319:0] INITVAL_09 = 320'h0,
    parameter [319:0] INITVAL_0A = 320'h0,
    parameter [319:0] INITVAL_0B = 320'h0,
    parameter [319:0] INITVAL_0C = 320'h0,
    parameter [319:0] INITVAL_0D = 320'h0,
    parameter [319:0] INITVAL_0E = 320'h0,
    parameter [319:0] INITVAL_0F = 320'h0,
    parameter [319:0] INITVAL_10 = 320'h0,
    parameter [319:0] INITVAL_11 = 320'h0,
    parameter [319:0] INITVAL_12 = 320'h0,
    parameter [319:0] INITVAL_13 = 320'h0,
    parameter [319:0] INITVAL_14 = 320'h0,
    parameter [319:0] INITVAL_15 = 320'h0,
    parameter [319:0] INITVAL_16 = 320'h0,
    parameter [319:0] INITVAL_17 = 320'h0,
    parameter [319:0] INITVAL_18 = 320'h0,
    parameter [319:0] INITVAL_19 = 320'h0,
    parameter [319:0] INITVAL_1A = 320'h0,
    parameter [319:0] INITVAL_1B = 320'h0,
    parameter [319:0] INITVAL_1C = 320'h0,
    parameter [319:0] INITVAL_1D = 320'h0,
    parameter [319:0] INITVAL_1E = 320'h0,
    parameter [319:0] INITVAL_1F = 320'h0,
    parameter [319:0] INITVAL_20 = 320'h0,
    parameter [319:0] INITVAL_21 = 320'h0,
    parameter [319:0] INITVAL_22 = 320'h0,
    parameter [319:0] INITVAL_23 = 320'h0,
    parameter [319:0] INITVAL_24 = 320'h0,
    parameter [319:0] INITVAL_25 = 320'h0,
    parameter [319:0] INITVAL_26 = 320'h0,
    parameter [319:0] INITVAL_27 = 320'h0,
    parameter [319:0] INITVAL_28 = 320'h0,
    parameter [319:0] INITVAL_29 = 320'h0,
    parameter [319:0] INITVAL_2A = 320'h0,
    parameter [319:0] INITVAL_2B = 320'h0,
    parameter [319:0] INITVAL_2C = 320'h0,
    parameter [319:0] INITVAL_2D = 320'h0,
    parameter [319:0] INITVAL_2E = 320'h0,
    parameter [319:0] INITVAL_2F = 320'h0,
    parameter [319:0] INITVAL_30 = 320'h0,
    parameter [319:0] INITVAL_31 = 320'h0,
    parameter [319:0] INITVAL_32 = 320'h0,
    parameter [319:0] INITVAL_33 = 320'h0,
    parameter [319:0] INITVAL_34 = 320'h0,
    parameter [319:0] INITVAL_35 = 320'h0,
    parameter [319:0] INITVAL_36 = 320'h0,
    parameter [319:0] INITVAL_37 = 320'h0,
    parameter [319:0] INITVAL_38 = 320'h0,
    parameter [319:0] INITVAL_39 = 320'h0,
    parameter [319:0] INITVAL_3A = 320'h0,
    parameter [319:0] INITVAL_3B = 320'h0,
    parameter [319:0] INITVAL_3C = 320'h0,
    parameter [319:0] INITVAL_3D = 320'h0,
    parameter [319:0] INITVAL_3E = 320'h0,
    parameter [319:0] INITVAL_3F = 320'h0,
    parameter DATA_WIDTH_A = 18,
    parameter DATA_WIDTH_B = 18,
    parameter REGMODE_A = "NOREG",
    parameter REGMODE_B = "NOREG",
    parameter WRITEMODE_A = "NORMAL",
    parameter WRITEMODE_B = "NORMAL",
    parameter RESETMODE = "SYNC",
    parameter ASYNC_RESET_RELEASE = "SYNC",
    parameter CSDECODE_A = "0b000",
    parameter CSDECODE_B = "0b000",
    parameter CLKAMUX = "CLKA",
    parameter CLKBMUX = "CLKB",
    parameter GSR = "ENABLED"
) (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5,
        DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5,
        DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
        DOA4, DOA3, DOA2, DOA1, DOA0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
        DOB4, DOB3, DOB2, DOB1, DOB0
);
  localparam [64*320-1:0] INIT = {INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B,
      INITVAL_3A, INITVAL_39, INITVAL_38, INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34,
      INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E, INITVAL_2D,
      INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26,
      INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20, INITVAL_1F,
      INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
      INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11,
      INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A,
      INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03,
      INITVAL_02, INITVAL_01, INITVAL_00};

  // Bytes of 9 bits; words of 4 bits and fewer leave the ninth unused.
  reg [8:0] bytes[0:2047];
  integer n;
  initial
    for (n = 0; n < 2048; n = n + 1)
      bytes[n] = INIT[(n/32)*320+(n/2%16)*20+(n%2)*9+:9];

  wire [13:0] ada = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2,
      ADA1, ADA0};
  wire [13:0] adb = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2,
      ADB1, ADB0};
  wire [17:0] dia = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7,
      DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
  wire [17:0] dib = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7,
      DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};
  wire pdp = DATA_WIDTH_B == 36;

  function integer low(input integer width);  // address bits within a word
    low = width == 36 ? 5 : width == 18 ? 4 : width == 9 ? 3 : width == 4 ? 2 : width == 2 ? 1 : 0;
  endfunction
  localparam LOW_A = low(DATA_WIDTH_A), LOW_B = low(DATA_WIDTH_B);
  localparam LOW = LOW_A > LOW_B ? LOW_A : LOW_B;

  function [35:0] word(input [13:0] address, input integer width);
    reg [35:0] line;
    reg [8:0] part;
    begin
      line = {
        bytes[{address[13:5], 2'd3}],
        bytes[{address[13:5], 2'd2}],
        bytes[{address[13:5], 2'd1}],
        bytes[{address[13:5], 2'd0}]
      };
      part = line[9*address[4:3]+:9];
      case (width)
        36: word = line;
        18: word = {18'd0, address[4] ? line[35:18] : line[17:0]};
        9: word = {27'd0, part};
        4: word = {32'd0, part[{address[2], 2'd0}+:4]};
        2: word = {34'd0, part[{address[2:1], 1'd0}+:2]};
        default: word = {35'd0, part[address[2:0]]};
      endcase
    end
  endfunction

  integer k;

  wire write_a = CEA & WEA;
  wire [35:0] written_a = {dib, dia};
  always @(posedge CLKA)
    if (write_a)
      case (DATA_WIDTH_A)
        36: for (k = 0; k < 4; k = k + 1) if (ada[k]) bytes[{ada[13:5], k[1:0]}] <= written_a[9*k+:9];
        18: for (k = 0; k < 2; k = k + 1) if (ada[k]) bytes[{ada[13:4], k[0]}] <= written_a[9*k+:9];
        9: bytes[ada[13:3]] <= written_a[8:0];
        4: bytes[ada[13:3]][{1'd0, ada[2], 2'd0}+:4] <= written_a[3:0];
        2: bytes[ada[13:3]][{1'd0, ada[2:1], 1'd0}+:2] <= written_a[1:0];
        default: bytes[ada[13:3]][{1'd0, ada[2:0]}] <= written_a[0];
      endcase

  wire write_b = CEB & WEB;
  wire [35:0] written_b = {18'd0, dib};
  always @(posedge CLKB)
    if (write_b)
      case (DATA_WIDTH_B)
        36: for (k = 0; k < 4; k = k + 1) if (adb[k]) bytes[{adb[13:5], k[1:0]}] <= written_b[9*k+:9];
        18: for (k = 0; k < 2; k = k + 1) if (adb[k]) bytes[{adb[13:4], k[0]}] <= written_b[9*k+:9];
        9: bytes[adb[13:3]] <= written_b[8:0];
        4: bytes[adb[13:3]][{1'd0, adb[2], 2'd0}+:4] <= written_b[3:0];
        2: bytes[adb[13:3]][{1'd0, adb[2:1], 1'd0}+:2] <= written_b[1:0];
        default: bytes[adb[13:3]][{1'd0, adb[2:0]}] <= written_b[0];
      endcase

  wire collision = (ada >> LOW) == (adb >> LOW);

  reg [35:0] latch_a, register_a;
  always @(posedge CLKA) begin
    if (RSTA) latch_a <= 0;
    else if (CEA) begin
      if (!write_a || WRITEMODE_A == "READBEFOREWRITE")
        latch_a <= word(ada, DATA_WIDTH_A) ^ {36{collision & write_b}};
      else if (WRITEMODE_A == "WRITETHROUGH") latch_a <= written_a;
    end
    if (RSTA) register_a <= 0;
    else if (OCEA) register_a <= latch_a;
  end
  wire [35:0] read_a = REGMODE_A == "OUTREG" ? register_a : latch_a;

  reg [35:0] latch_b, register_b;
  always @(posedge CLKB) begin
    if (RSTB) latch_b <= 0;
    else if (CEB) begin
      if (!write_b || WRITEMODE_B == "READBEFOREWRITE")
        latch_b <= word(adb, DATA_WIDTH_B) ^ {36{collision & write_a}};
      else if (WRITEMODE_B == "WRITETHROUGH") latch_b <= written_b;
    end
    if (RSTB) register_b <= 0;
    else if (OCEB) register_b <= latch_b;
  end
  wire [35:0] read_b = REGMODE_B == "OUTREG" ? register_b : latch_b;

  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
      DOA4, DOA3, DOA2, DOA1, DOA0} = pdp ? read_b[17:0] : read_a[17:0];
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
      DOB4, DOB3, DOB2, DOB1, DOB0} = pdp ? read_b[35:18] : read_b[17:0];
endmodule
