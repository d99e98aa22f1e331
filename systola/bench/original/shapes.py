# SPDX-License-Identifier: Apache-2.0
"""The applications in shapes.toml, and their layers."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

SHAPES = Path(__file__).with_name("shapes.toml")


@dataclass(frozen=True)
class Application:
    """An application: one table of shapes.toml."""

    name: str
    """Name of the application, such as `mlp0`."""
    batch: int
    """Number of samples that the application computes at a time."""
    shape: dict[str, Any]
    """Entries of the table that describe the layers."""
    assumptions: tuple[str, ...]
    seed: int

    @property
    def title(self) -> str:
        """The name as the paper writes it."""
        return self.name.upper()


@lru_cache(maxsize=1)
def applications() -> dict[str, Application]:
    """Return all applications by their names, in the order of the file."""
    content = tomllib.loads(SHAPES.read_text())
    seed: int = content.pop("seed")
    return {
        name: Application(
            name,
            table.pop("batch"),
            table,
            tuple(table.pop("assumptions")),
            seed + number,
        )
        for number, (name, table) in enumerate(content.items())
    }
