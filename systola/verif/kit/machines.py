# SPDX-License-Identifier: Apache-2.0
"""The machines that regressions run on: the presets, and one other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from systola.arch.config import Config, ConfigError, preset

BARE = replace(preset("tiny"), name="bare", tables=0)
"""Machine without any of the optional parts."""


def machine(name: str) -> Config:
    """Return a preset, or `bare`. Raises ConfigError for an unknown name."""
    return BARE if name == BARE.name else preset(name)


def wrong_name(names: Iterable[str]) -> str | None:
    """Return the error of the first of these names that is not a machine; None if all are."""
    for name in names:
        try:
            machine(name)
        except ConfigError as error:
            return str(error)
    return None
