# SPDX-License-Identifier: Apache-2.0
"""Machines that regressions run on: the presets, and one that no preset is."""

from __future__ import annotations

from dataclasses import replace

from systola.arch.config import Config, preset

BARE = replace(preset("tiny"), name="bare", tables=0)
"""Without any of the parts that a machine can do without."""


def machine(name: str) -> Config:
    """A preset, or `bare`. Raises ConfigError for an unknown name."""
    return BARE if name == BARE.name else preset(name)
