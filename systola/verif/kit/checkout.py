# SPDX-License-Identifier: Apache-2.0
"""The folder of the checkout that the tests belong to, and the names of test modules."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The checkout's folder, with README.md and pyproject.toml; `systola/` in it has all packages."""
PACKAGE = ROOT / "systola"


def module_name(path: Path) -> str:
    """Return the name of a test module: its path in verif/, such as "units/matrix/test_mxu"."""
    parts = path.with_suffix("").parts
    return "/".join(parts[len(parts) - parts[::-1].index("verif") :])
