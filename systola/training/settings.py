# SPDX-License-Identifier: Apache-2.0
"""The settings of compile(): how a network learns, and on which machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from systola.runtime import make_backend
from systola.runtime.pod.strategy import MAX_CORES
from systola.training.checks import choice, items, whole
from systola.training.names import loss_name, metric_name
from systola.training.optimizers import Optimizer

FAST = "fast"
"""Name of the back end without a machine, which makes the machine's bytes in numpy."""
BACKENDS = (*make_backend.BACKENDS, FAST)
MOST_SEED = (1 << 31) - 1
MOST_BATCH = 1 << 24
"""Largest batch size that a model remembers of its last fit(), and that a saved file may have."""


@dataclass(frozen=True)
class Settings:
    """The arguments of compile(). Raises TrainingError for a value of the wrong type or range."""

    optimizer: Optimizer
    loss: str
    metrics: tuple[str, ...]
    """Names of the metrics as the user gave them to compile(); the logs have the same names."""
    seed: int
    preset: str
    """Name of the machine's configuration, such as base-training."""
    backend: str
    latency: int
    """Latency of the machine's memories, in cycles."""
    cores: int

    def __post_init__(self) -> None:
        loss = loss_name(self.loss)
        given: Any = self.metrics
        names = (
            [given]
            if isinstance(given, str)
            else items("metrics", () if given is None else given, "names")
        )
        for name in names:
            metric_name(name, loss)
        choice("back end", self.backend, BACKENDS)
        kept = {
            "loss": loss,
            "metrics": tuple(names),
            "seed": whole("seed", self.seed, 0, MOST_SEED),
            "latency": whole("latency", self.latency, 0, make_backend.MAX_LATENCY),
            "cores": whole("cores", self.cores, 1, MAX_CORES),
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)
