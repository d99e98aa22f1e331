# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx, which makes a site of the pages for `make site`."""

from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent

project = "Systola"
html_title = "Systola"
html_theme = "furo"
html_extra_path = ["index.html"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
root_doc = "README"
include_patterns = [
    "*.md",
    ".github/*.md",
    "docs/**",
    "examples/**",
    "integration/**",
    "systola/**/README.md",
]
exclude_patterns = ["docs/site/**"]


def _add_contents(app: Sphinx, name: str, text: list[str]) -> None:
    """Append the contents of the side bar to the first page, where hosts of sources show none."""
    if name == root_doc:
        text[0] += (HERE / "contents.md").read_text(encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Let Sphinx call this module before it reads a page."""
    app.connect("source-read", _add_contents)
