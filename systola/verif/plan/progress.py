# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that prints a line when a test starts to build a simulator.

Pytest captures other output of tests, but this line appears at once."""

from __future__ import annotations

import os
import sys

import pytest

from systola.sim import notices


def pytest_configure(config: pytest.Config) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or config.option.capture == "no":
        return

    def tell(text: str) -> None:
        if text.endswith("..."):  # only the message at a build's start ends with dots
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            with capture.global_and_fixture_disabled():
                print(f"\n{test}: {text}", file=sys.stderr, flush=True)

    notices.listeners.append(tell)
