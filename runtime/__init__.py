# SPDX-License-Identifier: Apache-2.0
"""Programs on machines.

For users: `compile` and `load` for networks, see systola.runtime.api; `ImageBuilder` and
`machine` for programs of one's own, see systola.runtime.image_builder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systola.runtime.api import compile, load, machine
    from systola.runtime.image_builder import ImageBuilder

__all__ = ["ImageBuilder", "compile", "load", "machine"]


def __getattr__(name: str) -> object:
    """Imported when asked for: the compiler itself needs modules of this package."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from systola.runtime import api, image_builder

    return getattr(image_builder if name == "ImageBuilder" else api, name)
