# SPDX-License-Identifier: Apache-2.0
"""What the tests share: pytest's -k finds cocotb tests by their names, and sets of data are few
where a bound is not proven for all data."""

import pytest

from systola.verif.kit.launch import cocotb_tests
from systola.verif.kit.seeds import random_seed

FOLDERS = ("boards", "integration", "system", "units")
"""Those with cocotb tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder, module = item.path.parent.name, item.path.stem
        if folder in FOLDERS:
            names = cocotb_tests(f"systola.verif.{folder}.{module}")
            item.extra_keyword_matches.update(names)


DATA_SETS = 10


@pytest.fixture
def data_set() -> int:
    """Return the number of the data that a test is about, one of DATA_SETS.

    A test asks for it, not for a seed, where a bound does not follow from the arithmetic but was
    measured: then it holds for all of the sets, which `pytest --exhaustive` runs one by one.
    """
    return random_seed() % DATA_SETS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "data_set" in metafunc.fixturenames and metafunc.config.getoption("--exhaustive"):
        metafunc.parametrize("data_set", range(DATA_SETS))
