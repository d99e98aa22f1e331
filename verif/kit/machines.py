# SPDX-License-Identifier: Apache-2.0
"""Machines that regressions run on: the presets, and one that no preset is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from systola.arch.config import Config, ConfigError, preset

BARE = replace(preset("tiny"), name="bare", tables=0)
"""Without any of the parts that a machine can do without."""


def machine(name: str) -> Config:
    """A preset, or `bare`. Raises ConfigError for an unknown name."""
    return BARE if name == BARE.name else preset(name)


def wrong_name(names: Iterable[str]) -> str | None:
    """What is wrong with the first of these that is not the name of a machine."""
    for name in names:
        try:
            machine(name)
        except ConfigError as error:
            return str(error)
    return None
