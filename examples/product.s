# SPDX-License-Identifier: Apache-2.0
# The product of a matrix of 6 x 4 with one of 4 x 4, on a machine with an array of 4 x 4 (tiny).
#
# host memory     0   the matrix, a row every 4 bytes
#               128   one parameter entry
#               256   the result, a row every 4 bytes
# weight memory   one tile
read_host_memory host=0, buffer=0, rows=6, stride=4, blocks=1, tail=4
read_weights tile=0, count=1
load_parameters host=128, parameter=0, count=1
matrix_multiply buffer=0, accumulator=0, rows=6, k_tiles=1, n_tiles=1
activate accumulator=0, buffer=8, rows=6, n_tiles=1, parameter=0, function=relu, rounding=single
write_host_memory host=256, buffer=8, rows=6, stride=4, blocks=1, tail=4
halt
