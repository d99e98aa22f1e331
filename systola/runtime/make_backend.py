# SPDX-License-Identifier: Apache-2.0
"""The function that makes a back end from its name."""

from __future__ import annotations

from systola.arch.config import Config
from systola.runtime.backend import Backend

BACKENDS = ("rtl", "iss")
"""Names of back ends: the simulated RTL, and the golden model, which has no clock."""
MAX_LATENCY = 1_000_000
"""Largest latency of a memory, in cycles."""


def make_backend(
    name: str, config: Config, *, latency: int = 0, stall: float = 0.0, seed: int = 0
) -> Backend:
    """Make the back end called `name`.

    `latency`, `stall` and `seed` describe the memories, see RtlBackend. Raises ValueError for an
    unknown name, and BackendError if the simulator cannot be built.
    """
    # Imported here: runs on the golden model need none of the tools of the other back end.
    if name == "iss":
        from systola.runtime.iss import GoldenBackend

        return GoldenBackend(config)
    if name == "rtl":
        from systola.runtime.rtl import RtlBackend

        return RtlBackend(config, latency=latency, stall=stall, seed=seed)
    raise ValueError(f"unknown back end '{name}' (known: {', '.join(BACKENDS)})")
