# SPDX-License-Identifier: Apache-2.0
"""The efficiency of eight cores that train both tutorials, by the timing model.

`python -m systola.bench.training_pod` prints a table; `--only TEXT` measures the steps with TEXT in
their name. Efficiency is the cycles of
one core that takes the whole batch, divided by the cycles of the pod and by its cores. One core
takes the batch in turns where it has no room.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from systola.arch.config import Config, preset
from systola.arch.image import Image
from systola.arch.pages import table
from systola.bench.moment import commit, today
from systola.timing.estimate import estimate
from systola.timing.memory_speed import MemorySpeed
from systola.timing.pod import estimate_pod
from systola.training import LSTM, SGD, Adam, Dense, Dropout, Embedding, Input
from systola.training.building import stages
from systola.training.fit import fitted
from systola.training.layers import Layer
from systola.training.moment_steps import Looked, moment_steps
from systola.training.moments import GRADIENT_BITS
from systola.training.optimizers import Optimizer
from systola.training.programs import train_program
from systola.training.schedules import rate_at
from systola.training.state import glorot
from systola.training.task import Task

CORES = 8
MEMORY = MemorySpeed(latency=30)
PRESET = "base-training"
WORDS, VOCABULARY = 250, 15000


@dataclass(frozen=True)
class Tutorial:
    """A step of a tutorial, with the batch that all cores share."""

    name: str
    layers: tuple[Layer, ...]
    optimizer: Optimizer
    batch: int
    loss: str = "sparse_categorical_crossentropy"


_DENSE = (Input((784,)), Dense(512, "relu"), Dropout(0.2), Dense(10))
_LSTM = (Input((WORDS,)), Embedding(VOCABULARY, 32), LSTM(100), Dense(1))
TUTORIALS = (
    Tutorial("784-512-10, SGD", _DENSE, SGD(0.1), 1024),
    Tutorial("784-512-10, Adam", _DENSE, Adam(), 1024),
    Tutorial("15000-32, LSTM 100, Adam", _LSTM, Adam(), 512, "binary_crossentropy"),
)


def programs(tutorial: Tutorial, config: Config, cores: int) -> list[Image]:
    """Return the program of each core for a step after the first one."""
    found, chosen = stages(tutorial.layers, None), tutorial.optimizer
    state = glorot(found, 0).for_optimizer(chosen.momentum, chosen.decays)
    rate = rate_at(chosen.learning_rate, 0)
    about = Task(found, 0, state.bits, tutorial.loss, tutorial.batch, rate, decays=chosen.decays)
    task, layout = fitted(config, replace(about, cores=cores), tutorial.batch)
    words = None
    if task.reads_words:
        words = np.random.default_rng(0).integers(0, VOCABULARY, (tutorial.batch, WORDS))
    count = len(state.masters)
    numbers = (
        moment_steps(task, state.moments, lambda _: Looked([GRADIENT_BITS] * count, []))
        if state.moments
        else []
    )
    images: list[Image] = []
    for core in range(cores):
        program = train_program(config, layout, replace(task, core=core), words)
        host = np.zeros(layout.window, np.uint8)
        code = program.place(layout, host, 0, numbers)
        images.append(Image(code, host, layout.program, np.zeros(0, np.uint8)))
    return images


def measure(tutorial: Tutorial) -> dict[str, Any]:
    """Return the cycles of one core with the whole batch, and the cycles of the pod."""
    config = preset(PRESET)
    linked = replace(config, name=f"{config.name}-links", links=True)
    (image,) = programs(tutorial, config, 1)
    one = round(estimate(config, image, MEMORY).cycles)
    pod = round(estimate_pod(linked, programs(tutorial, linked, CORES), MEMORY).cycles)
    about = {"name": tutorial.name, "batch": tutorial.batch, "one": one, "pod": pod}
    return about | {"date": today(), "commit": commit()}


def efficiency_table(results: Sequence[dict[str, Any]]) -> str:
    """Write the results as Markdown."""
    rows = [
        (
            each["name"],
            f"{each['batch']:,}",
            f"{each['one']:,}",
            f"{each['pod']:,}",
            f"{each['one'] / each['pod']:.2f}",
            f"{each['one'] / each['pod'] / CORES:.1%}",
            f"{each['date']}, {each['commit']}",
        )
        for each in results
    ]
    header = ("step", "batch", "one core", "eight cores", "times", "efficiency", "date, commit")
    return table(header, rows)


def main() -> int:
    """Measure the steps that the command line chooses and print the table; return the exit
    status.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="")
    only = parser.parse_args().only
    results = [measure(tutorial) for tutorial in TUTORIALS if only in tutorial.name]
    print(efficiency_table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
