# SPDX-License-Identifier: Apache-2.0
"""Programs on machines.

For users: `compile` and `load` for networks, see systola.runtime.api; `ImageBuilder` and
`machine` for programs of one's own, see systola.runtime.image_builder; `Strategy` for pods of
several cores, see systola.runtime.pod.strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systola.runtime.api import compile, load, machine
    from systola.runtime.image_builder import ImageBuilder
    from systola.runtime.pod.strategy import Strategy

__all__ = ["ImageBuilder", "Strategy", "compile", "load", "machine"]


def __getattr__(name: str) -> object:
    """Imported when asked for: the compiler itself needs modules of this package."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from systola.runtime import api, image_builder
    from systola.runtime.pod import strategy

    modules = {"ImageBuilder": image_builder, "Strategy": strategy}
    return getattr(modules.get(name, api), name)
