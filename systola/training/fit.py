# SPDX-License-Identifier: Apache-2.0
"""Finds the turns in which a core takes its samples: one turn if the buffer has room for all
samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.training.errors import NoRoomError
from systola.training.layout import Layout
from systola.training.programs import train_program
from systola.training.task import Task

_TURN_BLOCKS = 0.1
"""Time that a turn takes beside the time for its samples. The unit is the time for a block of C
samples."""


def fitted(config: Config, task: Task, batch: int) -> tuple[Task, Layout]:
    """Return `task` with its batch size and number of turns, and the layout of a core's host
    memory.

    Raises NoRoomError for a network that has no room even with one block of samples a turn.
    """
    return _Search(config, replace(task, count=batch)).run()


def some_words(task: Task) -> NDArray[np.intp] | None:
    """Return made-up words for a program that is only built to see whether it fits.

    Returns None unless programs read words: for an Embedding, in several turns.
    """
    lstm = task.stages[0].lstm
    return np.zeros((task.count, lstm.steps), np.intp) if lstm and task.reads_words else None


def layout_of(config: Config, task: Task) -> Layout:
    """Return the layout of a core's host memory, with room for the largest share of samples of any
    core and turn.
    """
    shares = [
        len(replace(task, core=core, turn=turn).share(config.cols))
        for core in range(task.cores)
        for turn in range(task.turns)
    ]
    return Layout(config, task.stages, max(shares), beside=task.beside, turns=task.turns)


class _Search:
    def __init__(self, config: Config, task: Task) -> None:
        self._config = config
        self._task = task
        self._found: dict[int, tuple[Task, Layout] | NoRoomError] = {}

    def run(self) -> tuple[Task, Layout]:
        """Find the largest turns that fit, then the number of turns that takes the least time."""
        config, task = self._config, self._task
        blocks = -(-task.count // config.cols // task.cores)
        one = self._tried(1)
        if not isinstance(one, NoRoomError):
            return one
        most, none = 0, blocks + 1
        while none - most > 1:
            middle = (most + none) // 2
            if isinstance(self._tried(-(-blocks // middle)), NoRoomError):
                none = middle
            else:
                most = middle
        if not most:
            at_once = f"{config.cols} samples at a time"
            raise NoRoomError(f"{self._tried(blocks)}, even with {at_once}: take a larger preset")

        def time(each: int) -> float:
            return -(-blocks // each) * (each + _TURN_BLOCKS)

        found = self._tried(-(-blocks // min(range(1, most + 1), key=time)))
        assert not isinstance(found, NoRoomError)
        return found

    def _tried(self, turns: int) -> tuple[Task, Layout] | NoRoomError:
        if turns not in self._found:
            try:
                self._found[turns] = self._with(turns)
            except NoRoomError as error:
                self._found[turns] = error
        return self._found[turns]

    def _with(self, turns: int) -> tuple[Task, Layout]:
        """Return the task with `turns` turns, and its layout.

        Raises NoRoomError if a turn has no room.
        """
        config, task = self._config, replace(self._task, turns=turns)
        layout = layout_of(config, task)
        train_program(config, layout, task, some_words(task))
        return task, layout
