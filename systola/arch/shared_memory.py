# SPDX-License-Identifier: Apache-2.0
"""The memory that the cores of a pod share."""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import Config, ConfigError

MAX_WORD_BYTES = 128
"""Widest word of an AXI4 port, in bytes (IHI 0022, A1.2.1)."""


@dataclass(frozen=True)
class SharedMemory:
    """A memory with one AXI4 port of `word_bytes` bytes for the host and weight ports of all cores.

    With `broadcast`, weights that several cores request at about the same time are read once.
    """

    word_bytes: int = 64
    broadcast: bool = True

    def check(self, config: Config) -> None:
        """Raise ConfigError if the memory's port does not fit the ports of cores of `config`."""
        largest = max(config.host_bus_bytes, config.weight_bus_bytes)
        whole = self.word_bytes & (self.word_bytes - 1) == 0
        if not (whole and largest <= self.word_bytes <= MAX_WORD_BYTES):
            raise ConfigError(
                f"the shared port has {self.word_bytes} bytes, and not a power of two from "
                f"{largest}, as wide as a port of a core, to {MAX_WORD_BYTES}"
            )
