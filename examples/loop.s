# SPDX-License-Identifier: Apache-2.0
# Copies 5 blocks of 2 rows, each block to where it comes from plus 128 bytes, with two registers:
# r1 is the place in host memory, r2 the line in the unified buffer. For tiny, whose rows have 4 bytes:
# any other machine stops at the first instruction.
require_machine rows=4, columns=4, host_bus=4, weight_bus=4
set_register register=1, value=0
set_register register=2, value=0
loop count=5
    read_host_memory host=r1, buffer=r2, rows=2, stride=4, blocks=1, tail=4
    write_host_memory host=128+r1, buffer=r2, rows=2, stride=4, blocks=1, tail=4
    set_register register=1, first=1, value=8
    set_register register=2, first=2, value=2
end_loop
halt
