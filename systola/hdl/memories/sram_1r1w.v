// SPDX-License-Identifier: Apache-2.0
// Behavioural model of the memories that a chip builds from macros; contract in hdl/memories/sram.py.
module sram_1r1w #(
    parameter WIDTH = 8,
    parameter DEPTH = 2,
    parameter ADDRESS_BITS = 1,
    parameter TRANSPARENT = 0
) (
    input clk,
    input read_enable,
    input [ADDRESS_BITS-1:0] read_address,
    output reg [WIDTH-1:0] read_data,
    input write_enable,
    input [ADDRESS_BITS-1:0] write_address,
    input [WIDTH-1:0] write_data
);
  reg [WIDTH-1:0] memory[0:DEPTH-1];

  always @(posedge clk) begin
    if (write_enable) memory[write_address] <= write_data;
    if (read_enable) begin
      if (TRANSPARENT != 0 && write_enable && read_address == write_address)
        read_data <= write_data;
      else read_data <= memory[read_address];
    end
  end
endmodule
