# SPDX-License-Identifier: Apache-2.0
"""Programs on machines. For users: `compile` and `load`, see systola.runtime.api."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systola.runtime.api import compile, load

__all__ = ["compile", "load"]


def __getattr__(name: str) -> object:
    """Imported when asked for: the compiler itself needs modules of this package."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from systola.runtime import api

    return getattr(api, name)
