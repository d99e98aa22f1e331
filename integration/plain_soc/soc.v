// SPDX-License-Identifier: Apache-2.0
// The machine of preset `tiny` in a plain top without a processor: a memory, and a sequencer that
// writes the registers, starts the program and waits for the interrupt. A real system has a
// processor in place of the sequencer and its own memory; `tpu_axi` stays as it is here.
module soc #(
    parameter WORD_BITS = 13  // of a word's address in the memory: 32 KiB
) (
    input clk,
    input rst_n,
    // Loading and looking at the memory while no program runs.
    input load,
    input [WORD_BITS-1:0] word,
    input [31:0] load_data,
    output reg [31:0] data,
    // A program: both windows lie in the memory, that of the host at its start.
    input start,
    input [31:0] host_pages,
    input [31:0] weight_base,
    input [31:0] weight_tiles,
    input [31:0] program_offset,
    output reg done,
    output reg fault
);
  // Offsets and bits: registers.md.
  localparam CONTROL = 12'h008, STATUS = 12'h00c, IRQ_ENABLE = 12'h010, IRQ_STATUS = 12'h014;
  localparam PROGRAM = 12'h01c, HOST_BASE_LO = 12'h020, HOST_PAGES = 12'h028;
  localparam WEIGHT_BASE_LO = 12'h030, WEIGHT_TILES = 12'h038;

  wire irq;
  wire awready, wready, bvalid, arready, rvalid;
  wire [31:0] rdata;

  // ---- The sequencer: eight writes, the interrupt, one read.
  localparam IDLE = 3'd0, WRITE = 3'd1, ANSWER = 3'd2, RUN = 3'd3, ASK = 3'd4, READ = 3'd5;
  reg [2:0] state;
  reg [2:0] step;
  reg address_taken, data_taken;
  reg [11:0] awaddr;
  reg [31:0] wdata;
  always @* begin
    case (step)
      3'd0: {awaddr, wdata} = {IRQ_STATUS, 32'd7};
      3'd1: {awaddr, wdata} = {HOST_BASE_LO, 32'd0};
      3'd2: {awaddr, wdata} = {HOST_PAGES, host_pages};
      3'd3: {awaddr, wdata} = {WEIGHT_BASE_LO, weight_base};
      3'd4: {awaddr, wdata} = {WEIGHT_TILES, weight_tiles};
      3'd5: {awaddr, wdata} = {PROGRAM, program_offset};
      3'd6: {awaddr, wdata} = {IRQ_ENABLE, 32'd3};
      3'd7: {awaddr, wdata} = {CONTROL, 32'd1};
    endcase
  end
  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      step <= 0;
      done <= 0;
      fault <= 0;
      address_taken <= 0;
      data_taken <= 0;
    end else
      case (state)
        IDLE:
        if (start) begin
          done <= 0;
          step <= 0;
          state <= WRITE;
        end
        WRITE: begin
          address_taken <= address_taken | awready;
          data_taken <= data_taken | wready;
          if ((address_taken | awready) & (data_taken | wready)) begin
            address_taken <= 0;
            data_taken <= 0;
            state <= ANSWER;
          end
        end
        ANSWER:
        if (bvalid) begin
          step <= step + 1;
          state <= step == 3'd7 ? RUN : WRITE;
        end
        RUN: if (irq) state <= ASK;
        ASK: if (arready) state <= READ;
        READ:
        if (rvalid) begin
          fault <= rdata[2];
          done <= 1;
          state <= IDLE;
        end
        default: state <= IDLE;
      endcase
  end

  // ---- The machine.
  wire host_arid, host_arvalid, host_arready, host_rid, host_rlast, host_rvalid, host_rready;
  wire host_awid, host_awvalid, host_awready, host_wlast, host_wvalid, host_wready;
  wire host_bid, host_bvalid, host_bready;
  wire weight_arid, weight_arvalid, weight_arready;
  wire weight_rid, weight_rlast, weight_rvalid, weight_rready;
  wire [39:0] host_araddr, host_awaddr, weight_araddr;
  wire [7:0] host_arlen, host_awlen, weight_arlen;
  wire [31:0] host_rdata, host_wdata, weight_rdata;
  wire [3:0] host_wstrb;
  tpu_axi tpu (
      .aclk(clk),
      .aresetn(rst_n),
      .s_axil_awaddr(awaddr),
      .s_axil_awprot(3'd0),
      .s_axil_awvalid(state == WRITE && !address_taken),
      .s_axil_awready(awready),
      .s_axil_wdata(wdata),
      .s_axil_wstrb(4'hf),
      .s_axil_wvalid(state == WRITE && !data_taken),
      .s_axil_wready(wready),
      .s_axil_bresp(),
      .s_axil_bvalid(bvalid),
      .s_axil_bready(state == ANSWER),
      .s_axil_araddr(STATUS),
      .s_axil_arprot(3'd0),
      .s_axil_arvalid(state == ASK),
      .s_axil_arready(arready),
      .s_axil_rdata(rdata),
      .s_axil_rresp(),
      .s_axil_rvalid(rvalid),
      .s_axil_rready(state == READ),
      .m_axi_host_arid(host_arid),
      .m_axi_host_araddr(host_araddr),
      .m_axi_host_arlen(host_arlen),
      .m_axi_host_arsize(),
      .m_axi_host_arburst(),
      .m_axi_host_arvalid(host_arvalid),
      .m_axi_host_arready(host_arready),
      .m_axi_host_rid(host_rid),
      .m_axi_host_rdata(host_rdata),
      .m_axi_host_rresp(2'd0),
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
      .m_axi_host_bresp(2'd0),
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
      .m_axi_weight_rresp(2'd0),
      .m_axi_weight_rlast(weight_rlast),
      .m_axi_weight_rvalid(weight_rvalid),
      .m_axi_weight_rready(weight_rready),
      .irq(irq)
  );

  // ---- The memory, with a port for each of the machine's.
  reg [31:0] memory[0:(1<<WORD_BITS)-1];

  wire [WORD_BITS-1:0] host_word, weight_word;
  read_channels #(
      .WORD_BITS(WORD_BITS)
  ) host_read (
      .clk(clk),
      .rst_n(rst_n),
      .arid(host_arid),
      .first(host_araddr[WORD_BITS+1:2]),
      .arlen(host_arlen),
      .arvalid(host_arvalid),
      .arready(host_arready),
      .rid(host_rid),
      .rdata(host_rdata),
      .rlast(host_rlast),
      .rvalid(host_rvalid),
      .rready(host_rready),
      .word(host_word),
      .data(memory[host_word])
  );
  read_channels #(
      .WORD_BITS(WORD_BITS)
  ) weight_read (
      .clk(clk),
      .rst_n(rst_n),
      .arid(weight_arid),
      .first(weight_araddr[WORD_BITS+1:2]),
      .arlen(weight_arlen),
      .arvalid(weight_arvalid),
      .arready(weight_arready),
      .rid(weight_rid),
      .rdata(weight_rdata),
      .rlast(weight_rlast),
      .rvalid(weight_rvalid),
      .rready(weight_rready),
      .word(weight_word),
      .data(memory[weight_word])
  );

  reg writing, answering;
  reg write_id;
  reg [WORD_BITS-1:0] write_word;
  assign host_awready = !writing && !answering;
  assign host_wready = writing;
  assign host_bvalid = answering;
  assign host_bid = write_id;
  integer lane;
  always @(posedge clk) begin
    if (!rst_n) begin
      writing <= 0;
      answering <= 0;
    end else begin
      if (host_awvalid && host_awready) begin
        writing <= 1;
        write_id <= host_awid;
        write_word <= host_awaddr[WORD_BITS+1:2];
      end
      if (host_wvalid && host_wready) begin
        write_word <= write_word + 1;
        writing <= !host_wlast;
        answering <= host_wlast;
      end
      if (host_bvalid && host_bready) answering <= 0;
    end
    data <= memory[word];
    if (load) memory[word] <= load_data;
    else if (host_wvalid && host_wready)
      for (lane = 0; lane < 4; lane = lane + 1)
        if (host_wstrb[lane]) memory[write_word][8*lane+:8] <= host_wdata[8*lane+:8];
  end

  // Addresses beyond the memory wrap; sizes and kinds of bursts are always the same.
  wire unused = &{host_araddr, host_awaddr, weight_araddr, host_awlen, 1'b0};
endmodule

// The read channels of an AXI4 slave over a memory that is read without delay: a beat a cycle.
module read_channels #(
    parameter WORD_BITS = 1
) (
    input clk,
    input rst_n,
    input arid,
    input [WORD_BITS-1:0] first,
    input [7:0] arlen,
    input arvalid,
    output arready,
    output reg rid,
    output reg [31:0] rdata,
    output reg rlast,
    output reg rvalid,
    input rready,
    output reg [WORD_BITS-1:0] word,
    input [31:0] data
);
  reg busy;
  reg id;
  reg [7:0] left;
  assign arready = !busy;
  always @(posedge clk) begin
    if (!rst_n) begin
      busy <= 0;
      rvalid <= 0;
    end else begin
      if (arvalid && arready) begin
        busy <= 1;
        id <= arid;
        word <= first;
        left <= arlen;
      end
      if (rready) rvalid <= 0;
      if (busy && (!rvalid || rready)) begin
        rvalid <= 1;
        rdata <= data;
        rid <= id;
        rlast <= left == 0;
        word <= word + 1;
        left <= left - 1;
        if (left == 0) busy <= 0;
      end
    end
  end
endmodule
