# SPDX-License-Identifier: Apache-2.0
"""Lets pytest's -k find the cocotb tests inside a module by their names."""

import pytest

from systola.verif.kit.launch import cocotb_tests

FOLDERS = ("boards", "integration", "system", "units")
"""Those with cocotb tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder, module = item.path.parent.name, item.path.stem
        if folder in FOLDERS:
            names = cocotb_tests(f"systola.verif.{folder}.{module}")
            item.extra_keyword_matches.update(names)
