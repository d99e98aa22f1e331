# SPDX-License-Identifier: Apache-2.0
"""The machines that regressions run on: the presets, and one machine that is no preset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from systola.arch.config import Config, ConfigError, preset

BARE = replace(preset("tiny"), name="bare", tables=0)
"""A machine without any of the optional parts."""


def machine(name: str) -> Config:
    """Return the configuration of a preset, or of `bare`; raise ConfigError for an unknown name."""
    return BARE if name == BARE.name else preset(name)


def wrong_name(names: Iterable[str]) -> str | None:
    """Return the error message for the first unknown name; None if each name has a machine."""
    for name in names:
        try:
            machine(name)
        except ConfigError as error:
            return str(error)
    return None
