# SPDX-License-Identifier: Apache-2.0
"""Systola, an open Tensor Processing Unit, for scripts that have a model in any form.

`systola.quantize` makes an int8 network of a float one, see systola.runtime.quantiser.quantize.
The modules of this folder have the interfaces of libraries that such scripts use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systola.runtime.quantiser.quantize import quantize

__all__ = ["quantize"]


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: most users of this package need another part of it."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from systola.runtime.quantiser.quantize import quantize

    return quantize
