# SPDX-License-Identifier: Apache-2.0
"""The package that compiles networks and runs programs on machines.

- `compile` and `load` take networks, see systola.runtime.api.
- `quantize` takes networks in floating point, see systola.runtime.quantiser.quantize.
- `ImageBuilder` and `machine` are for programs of one's own, see systola.runtime.image_builder.
- `Strategy` describes a pod of several cores, see systola.runtime.pod.strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systola.runtime.api import compile, load, machine
    from systola.runtime.image_builder import ImageBuilder
    from systola.runtime.pod.strategy import Strategy
    from systola.runtime.quantiser.quantize import quantize

__all__ = ["ImageBuilder", "Strategy", "compile", "load", "machine", "quantize"]


def __getattr__(name: str) -> object:
    """Import a name when it is first used: the compiler itself needs modules of this package."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from systola.runtime import api, image_builder
    from systola.runtime.pod import strategy
    from systola.runtime.quantiser import quantize

    modules = {"ImageBuilder": image_builder, "Strategy": strategy, "quantize": quantize}
    return getattr(modules.get(name, api), name)
