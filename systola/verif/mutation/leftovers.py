# SPDX-License-Identifier: Apache-2.0
"""Trials of programs that run after an abandoned program, which has left the queues full.

A soft reset empties all queues. An entry that the reset fails to clear shows only under two
conditions: the abandoned program has filled the queue, and the next program uses the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, encode
from systola.sim.library import Simulator
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_memory, random_tiles
from systola.verif.kit.window_uses import memory_with_entry
from systola.verif.mutation.trial import MEMORIES, Facts, Trial, program_trial

_LINES = 400
"""Number of lines of a copy that is not finished when its program is abandoned."""
_ABANDONED = 300
"""Number of cycles after which a program with products that wait is abandoned."""
_WRITING = (150, 170, 190, 210)
"""Numbers of cycles after which a program that writes lines is abandoned."""
_LAST = 4
"""Number of lines of the product that waits for a copy; the lines are the copy's last lines."""
_PARAMETERS, _DATA, _OUTPUT = (HOST_PAGE_BYTES * page for page in (1, 2, 4))


def leftover_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of programs after an abandoned program in which products or lines wait."""
    data = np.random.default_rng(seed)
    lines = min(_LINES, config.buffer_lines // 2)
    for count in range(1, config.queue_depth + 1):
        before = _products_wait(config, data, lines, count)
        after = program_trial(config, "", _product_waits(config, data, lines), 0)
        yield _both(f"after {count} products that wait", before, after, _ABANDONED, 0)
    for memory in range(len(MEMORIES)):
        for cycles in _WRITING:
            before = _lines_wait(config, data, lines)
            after = program_trial(config, "", _lines_through(config, data), memory)
            yield _both(f"after lines of {cycles} cycles", before, after, cycles, memory)


def _both(name: str, before: Image, after: Trial, cycles: int, memory: int) -> Trial:
    """Make a trial that abandons program `before` after `cycles` cycles, then runs `after`."""

    def run(machine: Simulator, limit: int) -> Facts:
        result = machine.run(before, limit=limit, abandon_after=cycles)
        assert result.status == 0, f"STATUS is {result.status!r} after a soft reset"
        return after.run(machine, limit)

    return Trial(name, MEMORIES[memory], run)


def _products_wait(config: Config, data: np.random.Generator, lines: int, count: int) -> Image:
    """Return a program with `count` products that wait for the last of many lines.

    Each line has a burst of its own. So most bursts are not yet announced when the program is
    abandoned. The products are long, so that no product ends before the soft reset does.
    """
    stride = 2 * config.input_pitch
    copy = {**lines_in(config, host=_DATA, line=0, rows=lines), "stride": stride}
    rows = min(lines // 2, config.accumulator_rows)
    product = {"buffer": lines - rows, "rows": rows}
    words = [
        encode(Opcode.READ_HOST_MEMORY, **copy),
        encode(Opcode.READ_WEIGHTS, tile=0, count=count),
        *[encode(Opcode.MATRIX_MULTIPLY, accumulator=0, k_tiles=1, n_tiles=1, **product)] * count,
        encode(Opcode.HALT),
    ]
    pages = 2 + -(-lines * stride // HOST_PAGE_BYTES)
    weights = random_tiles(data, config, count)
    return make_image(words, host=random_memory(data, pages), weights=weights)


def _product_waits(config: Config, data: np.random.Generator, lines: int) -> Image:
    """Return a program with a product that waits for the second of two loads, and is copied out."""
    first = lines - _LAST
    size = {"rows": _LAST, "n_tiles": 1}
    pages = 4 + -(-lines * config.input_pitch // HOST_PAGE_BYTES)
    words = [
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1),
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_OUTPUT, line=0, rows=lines)),
        encode(Opcode.MATRIX_MULTIPLY, buffer=first, accumulator=0, k_tiles=1, **size),
        encode(Opcode.ACTIVATE, accumulator=0, buffer=lines, parameter=0, **size),
        encode(Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=_DATA, line=lines, rows=_LAST)),
        encode(Opcode.HALT),
    ]
    host = memory_with_entry(config, data, pages, _PARAMETERS)
    return make_image(words, host=host, weights=random_tiles(data, config, 1))


def _lines_wait(config: Config, data: np.random.Generator, lines: int) -> Image:
    """Return a program that writes many lines, each in a burst of its own.

    The contents of the lines do not matter.
    """
    stride = 2 * config.output_pitch
    copy = {**lines_out(config, host=_DATA, line=0, rows=lines), "stride": stride}
    words = [
        encode(Opcode.WRITE_HOST_MEMORY, **copy),
        encode(Opcode.HALT),
    ]
    pages = 2 + -(-lines * stride // HOST_PAGE_BYTES)
    return make_image(words, host=random_memory(data, pages))


def _lines_through(config: Config, data: np.random.Generator) -> Image:
    """Return a program that copies lines into the buffer and out."""
    words = [
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_DATA, line=0, rows=32)),
        encode(Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=_OUTPUT, line=0, rows=32)),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=random_memory(data, 6))
