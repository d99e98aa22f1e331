# SPDX-License-Identifier: Apache-2.0
"""Fixtures with a browser for tests of HTML pages; without a browser the tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Generator[Any]:
    """Yield a headless Chromium, as an object of type playwright.sync_api.Browser."""
    library = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("Chromium is missing (on Debian: apt-get install chromium)")
    with library.sync_playwright() as playwright:
        # The root user, as in CI, may start Chromium only with this option.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Generator[Callable[..., Any]]:
    """Yield a function that opens an address in a window of a given width and colour scheme.

    The test fails if a page reports an error.
    """
    troubles: list[str] = []
    contexts: list[Any] = []

    def opened(address: str, *, width: int = 1024, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda said: troubles.append(f"{said.type}: {said.text}"))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles
