// SPDX-License-Identifier: Apache-2.0
`timescale 1ns / 1ps
// tpu_axi with a memory behind each of its masters. Loads the program of this folder, runs it, and
// compares the host window with expected.hex: prints a line with PASS or FAIL. It ends in $finish,
// or, when something is wrong, in $stop, which is a status other than 0 with `vvp -N`.
module testbench;
  localparam ADDRESS_BITS = @ADDRESS_BITS@;
  localparam HOST_BYTES = @HOST_BYTES@, WEIGHT_BYTES = @WEIGHT_BYTES@;  // of a beat
  localparam HOST_BEATS = @HOST_BEATS@, WEIGHT_BEATS = @WEIGHT_BEATS@;  // of a window
  localparam HOST_PAGES = @HOST_PAGES@, WEIGHT_TILES = @WEIGHT_TILES@, PROGRAM = 32'h@PROGRAM@;
  localparam HOST_BASE = 32'h4000_0000, WEIGHT_BASE = 32'h8000_0000;
  localparam LIMIT = @LIMIT@;  // cycles

  // Offsets and bits: registers.md.
  localparam CONTROL = 12'h008, STATUS = 12'h00c, IRQ_ENABLE = 12'h010, FAULT_CAUSE = 12'h040;
  localparam PROGRAM_AT = 12'h01c, HOST_BASE_LO = 12'h020, HOST_BASE_HI = 12'h024;
  localparam HOST_PAGES_AT = 12'h028, WEIGHT_BASE_LO = 12'h030, WEIGHT_BASE_HI = 12'h034;
  localparam WEIGHT_TILES_AT = 12'h038, BUS_TIMEOUT = 12'h04c;

  reg aclk = 0, aresetn = 0;
  always #5 aclk = !aclk;

  reg [8*HOST_BYTES-1:0] expected[0:HOST_BEATS-1];
  integer cycles = 0, wrong = 0, beat;
  reg [31:0] value;
  initial begin
    $readmemh("host.hex", host.content);
    $readmemh("weight.hex", weight.content);
    $readmemh("expected.hex", expected);
    repeat (5) @(posedge aclk);
    @(negedge aclk) aresetn = 1;
    write(HOST_BASE_LO, HOST_BASE);
    write(HOST_BASE_HI, 0);
    write(HOST_PAGES_AT, HOST_PAGES);
    write(WEIGHT_BASE_LO, WEIGHT_BASE);
    write(WEIGHT_BASE_HI, 0);
    write(WEIGHT_TILES_AT, WEIGHT_TILES);
    write(PROGRAM_AT, PROGRAM);
    write(BUS_TIMEOUT, 10000);
    write(IRQ_ENABLE, 3);
    write(CONTROL, 1);
    while (irq !== 1'b1) @(negedge aclk);
    read(STATUS);
    if (value !== 32'd2) begin
      read(FAULT_CAUSE);
      $display("FAIL: the program ended with fault %0d", value);
      $stop;
    end else begin
      for (beat = 0; beat < HOST_BEATS; beat = beat + 1)
        if (host.content[beat] !== expected[beat]) begin
          if (wrong < 5)
            $display("offset 0x%0h: 0x%h, not 0x%h", beat * HOST_BYTES, host.content[beat],
                     expected[beat]);
          wrong = wrong + 1;
        end
      if (wrong == 0) begin
        $display("PASS: all bytes of the host window are right, after %0d cycles", cycles);
        $finish;
      end else begin
        $display("FAIL: %0d of %0d words of the host window are wrong", wrong, HOST_BEATS);
        $stop;
      end
    end
  end

  always @(posedge aclk) begin
    cycles <= cycles + 1;
    if (cycles == LIMIT) begin
      $display("FAIL: no end after %0d cycles", cycles);
      $stop;
    end
  end

  // ---- The registers: one write or read at a time, driven at the falling edge.
  reg [11:0] awaddr = 0, araddr = 0;
  reg [31:0] wdata = 0;
  reg awvalid = 0, wvalid = 0, arvalid = 0, address_taken, data_taken;
  wire awready, wready, bvalid, arready, rvalid, irq;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;

  task write(input [11:0] offset, input [31:0] word);
    begin
      @(negedge aclk);
      awaddr = offset;
      wdata = word;
      awvalid = 1;
      wvalid = 1;
      while (awvalid || wvalid) begin
        @(posedge aclk);
        address_taken = awready === 1'b1;
        data_taken = wready === 1'b1;
        @(negedge aclk);
        if (address_taken) awvalid = 0;
        if (data_taken) wvalid = 0;
      end
      while (bvalid !== 1'b1) @(negedge aclk);
    end
  endtask

  task read(input [11:0] offset);
    begin
      @(negedge aclk);
      araddr = offset;
      arvalid = 1;
      @(posedge aclk);
      while (arready !== 1'b1) @(posedge aclk);
      @(negedge aclk);
      arvalid = 0;
      while (rvalid !== 1'b1) @(negedge aclk);
      value = rdata;
    end
  endtask

  // ---- The machine.
  wire host_arid, host_arvalid, host_arready, host_rid, host_rlast, host_rvalid, host_rready;
  wire host_awid, host_awvalid, host_awready, host_wlast, host_wvalid, host_wready;
  wire host_bid, host_bvalid, host_bready;
  wire weight_arid, weight_arvalid, weight_arready;
  wire weight_rid, weight_rlast, weight_rvalid, weight_rready;
  wire [ADDRESS_BITS-1:0] host_araddr, host_awaddr, weight_araddr;
  wire [7:0] host_arlen, host_awlen, weight_arlen;
  wire [1:0] host_rresp, host_bresp, weight_rresp;
  wire [8*HOST_BYTES-1:0] host_rdata, host_wdata;
  wire [8*WEIGHT_BYTES-1:0] weight_rdata;
  wire [HOST_BYTES-1:0] host_wstrb;
  tpu_axi tpu (
      .aclk(aclk),
      .aresetn(aresetn),
      .s_axil_awaddr(awaddr),
      .s_axil_awprot(3'd0),
      .s_axil_awvalid(awvalid),
      .s_axil_awready(awready),
      .s_axil_wdata(wdata),
      .s_axil_wstrb(4'hf),
      .s_axil_wvalid(wvalid),
      .s_axil_wready(wready),
      .s_axil_bresp(bresp),
      .s_axil_bvalid(bvalid),
      .s_axil_bready(1'b1),
      .s_axil_araddr(araddr),
      .s_axil_arprot(3'd0),
      .s_axil_arvalid(arvalid),
      .s_axil_arready(arready),
      .s_axil_rdata(rdata),
      .s_axil_rresp(rresp),
      .s_axil_rvalid(rvalid),
      .s_axil_rready(1'b1),
      .m_axi_host_arid(host_arid),
      .m_axi_host_araddr(host_araddr),
      .m_axi_host_arlen(host_arlen),
      .m_axi_host_arsize(),
      .m_axi_host_arburst(),
      .m_axi_host_arvalid(host_arvalid),
      .m_axi_host_arready(host_arready),
      .m_axi_host_rid(host_rid),
      .m_axi_host_rdata(host_rdata),
      .m_axi_host_rresp(host_rresp),
      .m_axi_host_rlast(host_rlast),
      .m_axi_host_rvalid(host_rvalid),
      .m_axi_host_rready(host_rready),
      .m_axi_host_awid(host_awid),
      .m_axi_host_awaddr(host_awaddr),
      .m_axi_host_awlen(host_awlen),
      .m_axi_host_awsize(),
      .m_axi_host_awburst(),
      .m_axi_host_awvalid(host_awvalid),
      .m_axi_host_awready(host_awready),
      .m_axi_host_wdata(host_wdata),
      .m_axi_host_wstrb(host_wstrb),
      .m_axi_host_wlast(host_wlast),
      .m_axi_host_wvalid(host_wvalid),
      .m_axi_host_wready(host_wready),
      .m_axi_host_bid(host_bid),
      .m_axi_host_bresp(host_bresp),
      .m_axi_host_bvalid(host_bvalid),
      .m_axi_host_bready(host_bready),
      .m_axi_weight_arid(weight_arid),
      .m_axi_weight_araddr(weight_araddr),
      .m_axi_weight_arlen(weight_arlen),
      .m_axi_weight_arsize(),
      .m_axi_weight_arburst(),
      .m_axi_weight_arvalid(weight_arvalid),
      .m_axi_weight_arready(weight_arready),
      .m_axi_weight_rid(weight_rid),
      .m_axi_weight_rdata(weight_rdata),
      .m_axi_weight_rresp(weight_rresp),
      .m_axi_weight_rlast(weight_rlast),
      .m_axi_weight_rvalid(weight_rvalid),
      .m_axi_weight_rready(weight_rready),
      .irq(irq)
  );

  memory #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .BYTES(HOST_BYTES),
      .BEATS(HOST_BEATS),
      .BASE(HOST_BASE)
  ) host (
      .clk(aclk),
      .resetn(aresetn),
      .arid(host_arid),
      .araddr(host_araddr),
      .arlen(host_arlen),
      .arvalid(host_arvalid),
      .arready(host_arready),
      .rid(host_rid),
      .rdata(host_rdata),
      .rresp(host_rresp),
      .rlast(host_rlast),
      .rvalid(host_rvalid),
      .rready(host_rready),
      .awid(host_awid),
      .awaddr(host_awaddr),
      .awlen(host_awlen),
      .awvalid(host_awvalid),
      .awready(host_awready),
      .wdata(host_wdata),
      .wstrb(host_wstrb),
      .wlast(host_wlast),
      .wvalid(host_wvalid),
      .wready(host_wready),
      .bid(host_bid),
      .bresp(host_bresp),
      .bvalid(host_bvalid),
      .bready(host_bready)
  );
  memory #(
      .ADDRESS_BITS(ADDRESS_BITS),
      .BYTES(WEIGHT_BYTES),
      .BEATS(WEIGHT_BEATS),
      .BASE(WEIGHT_BASE)
  ) weight (
      .clk(aclk),
      .resetn(aresetn),
      .arid(weight_arid),
      .araddr(weight_araddr),
      .arlen(weight_arlen),
      .arvalid(weight_arvalid),
      .arready(weight_arready),
      .rid(weight_rid),
      .rdata(weight_rdata),
      .rresp(weight_rresp),
      .rlast(weight_rlast),
      .rvalid(weight_rvalid),
      .rready(weight_rready),
      .awid(1'b0),
      .awaddr({ADDRESS_BITS{1'b0}}),
      .awlen(8'd0),
      .awvalid(1'b0),
      .awready(),
      .wdata({8*WEIGHT_BYTES{1'b0}}),
      .wstrb({WEIGHT_BYTES{1'b0}}),
      .wlast(1'b0),
      .wvalid(1'b0),
      .wready(),
      .bid(),
      .bresp(),
      .bvalid(),
      .bready(1'b1)
  );
endmodule

// BEATS words of BYTES bytes from address BASE on, behind an AXI4 slave that does one burst of each
// direction at a time. An address that is not in it is answered with DECERR.
module memory #(
    parameter ADDRESS_BITS = 40,
    parameter BYTES = 4,
    parameter BEATS = 1024,
    parameter BASE = 0
) (
    input clk,
    input resetn,
    input arid,
    input [ADDRESS_BITS-1:0] araddr,
    input [7:0] arlen,
    input arvalid,
    output arready,
    output reg rid,
    output [8*BYTES-1:0] rdata,
    output [1:0] rresp,
    output rlast,
    output rvalid,
    input rready,
    input awid,
    input [ADDRESS_BITS-1:0] awaddr,
    input [7:0] awlen,
    input awvalid,
    output awready,
    input [8*BYTES-1:0] wdata,
    input [BYTES-1:0] wstrb,
    input wlast,
    input wvalid,
    output wready,
    output reg bid,
    output reg [1:0] bresp,
    output bvalid,
    input bready
);
  localparam DECERR = 2'd3;
  localparam INDEX_BITS = $clog2(BEATS);
  localparam [ADDRESS_BITS-1:0] FIRST = BASE;
  reg [8*BYTES-1:0] content[0:BEATS-1];

  reg reading;
  reg [7:0] left;
  reg [ADDRESS_BITS-1:0] place;  // a beat, from BASE on: those before it have large numbers
  wire known = place < BEATS;
  wire [INDEX_BITS-1:0] index = place[INDEX_BITS-1:0];
  assign arready = !reading;
  assign rvalid = reading;
  assign rlast = left == 0;
  assign rdata = known ? content[index] : {8 * BYTES{1'b0}};
  assign rresp = known ? 2'd0 : DECERR;
  always @(posedge clk)
    if (!resetn) reading <= 0;
    else if (arvalid && arready) begin
      reading <= 1;
      rid <= arid;
      left <= arlen;
      place <= (araddr - FIRST) / BYTES;
    end else if (rvalid && rready) begin
      reading <= !rlast;
      left <= left - 8'd1;
      place <= place + 1;
    end

  reg writing, answering;
  reg [ADDRESS_BITS-1:0] target;
  wire [INDEX_BITS-1:0] target_index = target[INDEX_BITS-1:0];
  integer lane;
  assign awready = !writing && !answering;
  assign wready = writing;
  assign bvalid = answering;
  always @(posedge clk)
    if (!resetn) begin
      writing <= 0;
      answering <= 0;
    end else if (awvalid && awready) begin
      writing <= 1;
      bid <= awid;
      bresp <= 0;
      target <= (awaddr - FIRST) / BYTES;
    end else if (wvalid && wready) begin
      writing <= !wlast;
      answering <= wlast;
      target <= target + 1;
      if (target >= BEATS) bresp <= DECERR;
      else
        for (lane = 0; lane < BYTES; lane = lane + 1)
          if (wstrb[lane]) content[target_index][8*lane+:8] <= wdata[8*lane+:8];
    end else if (bready) answering <= 0;
endmodule
