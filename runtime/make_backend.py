# SPDX-License-Identifier: Apache-2.0
"""Back ends by name."""

from __future__ import annotations

from systola.arch.config import Config
from systola.runtime.backend import Backend

BACKENDS = ("rtl", "iss")
"""The simulated RTL, and the golden model, which has no clock."""
MAX_LATENCY = 1_000_000
"""Cycles that a memory can be given as its latency at most."""


def make_backend(
    name: str, config: Config, *, latency: int = 0, stall: float = 0.0, seed: int = 0
) -> Backend:
    """The back end called `name`; raises ValueError where there is none.

    `latency`, `stall` and `seed` are those of the memories, see RtlBackend. Raises BackendError
    where the simulator cannot be built.
    """
    # Whoever runs on the golden model needs none of the tools that the other one asks for.
    if name == "iss":
        from systola.runtime.iss import GoldenBackend

        return GoldenBackend(config)
    if name == "rtl":
        from systola.runtime.rtl import RtlBackend

        return RtlBackend(config, latency=latency, stall=stall, seed=seed)
    raise ValueError(f"unknown back end '{name}' (known: {', '.join(BACKENDS)})")
