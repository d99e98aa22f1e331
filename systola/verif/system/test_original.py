# SPDX-License-Identifier: Apache-2.0
"""Tests of a tenth of each application of the original TPU, on the RTL of the full-size `v1`.

Whole applications take an hour and are left to `make bench-original`. These tests run the first
layers, with a tenth of the multiply-accumulates, for the whole batch. The simulator of a machine of
this size takes ten minutes to build, so the tests run with `--exhaustive` only.
"""

import pytest

from systola.arch.config import preset
from systola.bench.original.compiled import beginning, compiled
from systola.bench.original.measure import measure
from systola.bench.original.networks import operations_of
from systola.bench.original.result import PRESET
from systola.bench.original.shapes import applications


@pytest.mark.thorough
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(applications()))
def test_a_tenth(name: str) -> None:
    """Check the golden model's bytes, and cycles within 2 % of the timing model's."""
    application = applications()[name]
    operations = beginning(operations_of(application), 0.1)
    result = measure(compiled(preset(PRESET), application, operations), lambda cycles: None)
    assert result.cycles == pytest.approx(result.estimate, rel=0.02)
