# SPDX-License-Identifier: Apache-2.0
"""The checkout that the tests belong to."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The folder with README.md and pyproject.toml; `systola/` in it has all packages."""
PACKAGE = ROOT / "systola"
