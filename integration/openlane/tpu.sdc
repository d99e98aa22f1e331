# SPDX-License-Identifier: Apache-2.0
# Module tpu: one clock, everything synchronous to it; half the period is left to what is around.
set period 20
create_clock -name clk -period $period [get_ports clk]
set_clock_uncertainty 0.25 [get_clocks clk]
set inputs [remove_from_collection [all_inputs] [get_ports clk]]
set_input_delay [expr {$period / 2.0}] -clock clk $inputs
set_output_delay [expr {$period / 2.0}] -clock clk [all_outputs]
set_driving_cell -lib_cell sky130_fd_sc_hd__buf_2 $inputs
set_load 0.033 [all_outputs]
