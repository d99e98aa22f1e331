# SPDX-License-Identifier: Apache-2.0
"""Shared parts of all tests: names of cocotb tests for pytest's -k, and the fixture `data_set`.

The fixture is for tests with a measured bound, which is not proven for all data.
"""

import pytest

from systola.verif.kit.checkout import module_name
from systola.verif.kit.launch import cocotb_tests
from systola.verif.kit.seeds import random_seed

pytest_plugins = (
    "systola.verif.plan.rules",
    "systola.verif.plan.selection",
    "systola.verif.plan.progress",
    "systola.verif.plan.failure_report",
    "systola.verif.plan.budget",
    "systola.verif.soak.outcomes",
)

FOLDERS = ("boards/", "integration/", "system/", "units/")
"""Folders of systola/verif that have cocotb tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = module_name(item.path)
        if module.startswith(FOLDERS):
            names = cocotb_tests(f"systola.verif.{module.replace('/', '.')}")
            item.extra_keyword_matches.update(names)


DATA_SETS = 10


@pytest.fixture
def data_set() -> int:
    """Return the number of the data set that a test uses, one of DATA_SETS.

    A test uses this number in place of a seed if its bound does not follow from the arithmetic but
    was measured. The bound holds for all sets, which `pytest --exhaustive` runs one by one.
    """
    return random_seed() % DATA_SETS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "data_set" in metafunc.fixturenames and metafunc.config.getoption("--exhaustive"):
        metafunc.parametrize("data_set", range(DATA_SETS))
