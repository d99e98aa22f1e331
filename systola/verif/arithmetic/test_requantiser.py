# SPDX-License-Identifier: Apache-2.0
"""Tests of `make arithmetic`: some of its random cases, and a case that must fail."""

import pytest

from systola.hdl.activation.requantiser import Requantiser
from systola.verif.arithmetic.requantiser import WIDTHS, compare, main
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

CASES = 500_000


@pytest.mark.parametrize("bits", [WIDTHS[0], *map(thorough, WIDTHS[1:])])
def test_random_cases(bits):
    assert compare(bits, random_seed(), CASES) == (True, f"{CASES} cases are equal")


@pytest.mark.thorough
def test_an_offset_that_comes_too_early():
    equal, text = compare(8, random_seed(), CASES, OFFSET_STAGE=Requantiser.OFFSET_STAGE - 1)
    assert not equal
    assert " instead of " in text


@pytest.mark.thorough
def test_command(capsys):
    assert main(["--cases", "1000", "--seed", "3"]) == 0
    assert capsys.readouterr().out.count("1000 cases are equal") == len(WIDTHS)
    with pytest.raises(SystemExit) as stop:
        main(["--cases", "0"])
    assert stop.value.code == 2
