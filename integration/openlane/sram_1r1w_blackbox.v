// SPDX-License-Identifier: Apache-2.0
// What synthesis sees of the memories; the contract is in the delivered sram_1r1w.v. Each pair of
// WIDTH and DEPTH needs macros of its own, see README.md.
(* blackbox *)
module sram_1r1w #(
    parameter WIDTH = 8,
    parameter DEPTH = 2,
    parameter ADDRESS_BITS = 1,
    parameter TRANSPARENT = 0
) (
    input clk,
    input read_enable,
    input [ADDRESS_BITS-1:0] read_address,
    output [WIDTH-1:0] read_data,
    input write_enable,
    input [ADDRESS_BITS-1:0] write_address,
    input [WIDTH-1:0] write_data
);
endmodule
