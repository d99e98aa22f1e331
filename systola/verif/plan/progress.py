# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that prints a line for each build at once, unlike other output of tests."""

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
        if text.endswith("..."):  # the message that a build starts
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            with capture.global_and_fixture_disabled():
                print(f"\n{test}: {text}", file=sys.stderr, flush=True)

    notices.listeners.append(tell)
