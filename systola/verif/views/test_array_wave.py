# SPDX-License-Identifier: Apache-2.0
"""Tests of the array's registers read from a waveform: they must compute a correct product."""

from __future__ import annotations

import numpy as np
import pytest

from systola.cli.gemm import random_gemm
from systola.compiler.layer import Layer
from systola.compiler.schedule import compile_chain
from systola.runtime.rtl import RtlBackend
from systola.verif.kit.seeds import random_seed
from systola.views.array_wave import CONFIG, read_states

ROWS, COLS = CONFIG.rows, CONFIG.cols
SUMMED = 3
"""Cycles from an activation in the operand register to the partial sum with its product."""

VCD = """$scope module tpu $end
$scope module tpu $end
$scope module core $end
$scope module matrix_unit $end
$scope module mxu $end
 $var wire 8 % weights[0] [7:0] $end
 $scope module tile $end
  $scope module row_0 $end
   $var wire 8 ! activation_0 [7:0] $end
   $var wire 8 " factor_0_0 [7:0] $end
  $upscope $end
  $var wire 18 # partial_0_0 [17:0] $end
  $var wire 18 # $11 [17:0] $end
 $upscope $end
$upscope $end
$upscope $end
$scope module other $end
 $var wire 8 " factor_0_0 [7:0] $end
$upscope $end
$upscope $end
$upscope $end
$upscope $end
$enddefinitions $end
#20
b11111111 !
b101 "
b0 #
#21
b111111111111111110 #
#22
b1 !
#23
#24
"""


def test_reads_what_has_settled(tmp_path):
    """Check that values are read, with their sign, at the end of the first half of each cycle."""
    path = tmp_path / "w.vcd"
    path.write_text(VCD)
    states = list(read_states(path, 1, 1))
    found = [(s.activations, s.weights, s.sums) for s in states]
    assert found == [([[-1]], [[5]], [[0]]), ([[1]], [[5]], [[-2]])]


@pytest.mark.thorough
def test_every_sum(tmp_path):
    """Check each partial sum of the array while it computes a matrix product.

    A partial sum is the sum of the row above, one cycle earlier, plus activation times weight. The
    sums of the last row must equal numpy's product.
    """
    m, k, n = 25, ROWS, COLS
    a, layer = random_gemm(m, k, n, random_seed())
    assert isinstance(layer, Layer)
    image = compile_chain(CONFIG, [layer], m).bind(a)
    path = tmp_path / "w.vcd"
    with RtlBackend(CONFIG, waves=path, window=(1, 1 << 30)) as machine:
        result = machine.run(image)
    states = list(read_states(path, ROWS, COLS))
    assert len(states) >= result.cycles - 1
    sums, weights, activations = (
        np.array([getattr(each, name) for each in states])
        for name in ("sums", "weights", "activations")
    )
    products = activations[:-SUMMED] * weights[:-SUMMED]
    above = np.zeros_like(products)
    above[:, 1:] = sums[SUMMED - 1 : -1, :-1]
    assert np.array_equal(sums[SUMMED:], above + products)
    # Column 0 of the operand A enters row 0 of the array. The results of column 0 leave the array
    # from cycle `leaves` on.
    enters = activations[:, 0, 0]
    wanted = a[:, 0].astype(int)
    first = next(t for t in range(len(enters)) if np.array_equal(enters[t : t + m], wanted))
    leaves = first + ROWS - 1 + SUMMED
    product = a.astype(int) @ layer.weights.astype(int)
    for c in range(COLS):
        assert np.array_equal(sums[leaves + c : leaves + c + m, ROWS - 1, c], product[:, c])
