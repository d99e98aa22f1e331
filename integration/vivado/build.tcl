# SPDX-License-Identifier: Apache-2.0
# A bitstream for a board with a Zynq, from a folder of `tpu deliver`:
#
#   vivado -mode batch -source build.tcl -tclargs FOLDER BOARD [MHZ]
#
# BOARD is pynq-z2, zybo-z7-20 or kv260. README.md beside this file says what comes out. Vivado is not
# among the project's tools, so this script has never been run.

set parts {pynq-z2 xc7z020clg400-1 zybo-z7-20 xc7z020clg400-1 kv260 xck26-sfvc784-2LV-c}

if {$argc < 2 || ![dict exists $parts [lindex $argv 1]]} {
    puts stderr "usage: vivado -mode batch -source build.tcl -tclargs FOLDER BOARD \[MHZ\]"
    puts stderr "BOARD is one of: [dict keys $parts]"
    exit 2
}
lassign $argv folder board mhz
if {$mhz eq ""} { set mhz 50 }
if {![file exists $folder/tpu_axi.v]} {
    puts stderr "$folder has no tpu_axi.v: make the folder with tpu deliver, without --cores"
    exit 2
}

create_project -force -part [dict get $parts $board] systola vivado_$board
add_files -norecurse [glob $folder/*.v]
update_compile_order -fileset sources_1
create_bd_design design

create_bd_cell -type module -reference tpu_axi tpu
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect registers
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect host
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect weights
foreach connect {registers host weights} {
    set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells $connect]
}

# The processor: a master for the registers, two ports to its memory, a clock, an interrupt.
if {$board eq "kv260"} {
    create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e processor
    set_property -dict [list \
        CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 \
        CONFIG.PSU__USE__S_AXI_GP2 1 CONFIG.PSU__USE__S_AXI_GP3 1 CONFIG.PSU__USE__IRQ0 1 \
        CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $mhz] [get_bd_cells processor]
    set clock pl_clk0
    set reset pl_resetn0
    set irq pl_ps_irq0
    set master M_AXI_HPM0_FPD
    set memory {S_AXI_HP0_FPD S_AXI_HP1_FPD}
    set clocks {maxihpm0_fpd_aclk saxihp0_fpd_aclk saxihp1_fpd_aclk}
} else {
    create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7 processor
    set_property -dict [list \
        CONFIG.PCW_USE_M_AXI_GP0 1 CONFIG.PCW_USE_S_AXI_HP0 1 CONFIG.PCW_USE_S_AXI_HP1 1 \
        CONFIG.PCW_USE_FABRIC_INTERRUPT 1 CONFIG.PCW_IRQ_F2P_INTR 1 \
        CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz] [get_bd_cells processor]
    foreach pins {DDR FIXED_IO} {
        make_bd_intf_pins_external [get_bd_intf_pins processor/$pins]
    }
    set clock FCLK_CLK0
    set reset FCLK_RESET0_N
    set irq IRQ_F2P
    set master M_AXI_GP0
    set memory {S_AXI_HP0 S_AXI_HP1}
    set clocks {M_AXI_GP0_ACLK S_AXI_HP0_ACLK S_AXI_HP1_ACLK}
}

set clocked {tpu/aclk reset/slowest_sync_clk registers/aclk host/aclk weights/aclk}
foreach pin $clocks { lappend clocked processor/$pin }
foreach pin $clocked { connect_bd_net [get_bd_pins processor/$clock] [get_bd_pins $pin] }
connect_bd_net [get_bd_pins processor/$reset] [get_bd_pins reset/ext_reset_in]
foreach cell {tpu registers host weights} {
    connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins $cell/aresetn]
}
connect_bd_net [get_bd_pins tpu/irq] [get_bd_pins processor/$irq]

foreach {from to} [list \
    processor/$master registers/S00_AXI   registers/M00_AXI tpu/s_axil \
    tpu/m_axi_host host/S00_AXI           host/M00_AXI processor/[lindex $memory 0] \
    tpu/m_axi_weight weights/S00_AXI      weights/M00_AXI processor/[lindex $memory 1]] {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}
assign_bd_address
validate_bd_design
save_bd_design

make_wrapper -files [get_files design.bd] -top -import
set_property top design_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
    puts stderr "no bitstream: see vivado_$board/systola.runs/impl_1/runme.log"
    exit 1
}
open_run impl_1
report_utilization -file vivado_$board/utilization.txt
report_timing_summary -file vivado_$board/timing.txt
if {[get_property SLACK [get_timing_paths]] < 0} {
    puts stderr "the clock of $mhz MHz is missed: see vivado_$board/timing.txt, and ask for less"
    exit 1
}
write_hw_platform -fixed -include_bit -force vivado_$board/systola.xsa
puts "vivado_$board/systola.xsa"
