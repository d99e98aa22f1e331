# SPDX-License-Identifier: Apache-2.0
"""A matrix product shared by the cores of a pod: by rows of A, or by columns of the weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.compiler.layer import Layer
from systola.compiler.program import Program
from systola.compiler.schedule import compile_chain
from systola.runtime.backend import Result
from systola.runtime.engine import run_in_threads
from systola.runtime.pod.work import Cores
from systola.timing.memory_speed import MemorySpeed


@dataclass(frozen=True)
class Share:
    """A core's share of the result, with the program and the image that calculate it."""

    rows: slice
    columns: slice
    program: Program
    image: Image
    """The program with the core's rows of A."""


def even_shares(size: int, count: int) -> list[slice]:
    """Divide `size` things into up to `count` parts; none is empty.

    The sizes of the parts differ by at most one.
    """
    part, larger = divmod(size, count)
    ends = [0]
    for number in range(min(size, count)):
        ends.append(ends[-1] + part + (number < larger))
    return [slice(begin, end) for begin, end in pairwise(ends)]


def share_gemm(
    config: Config, a: NDArray[np.int8], layer: Layer, cores: int, memory: MemorySpeed
) -> list[Share]:
    """Divide the product of `a` and `layer` into shares, at most one for each of `cores` cores.

    `a` is int8 [M, K], `layer` has N columns. Rows or whole tiles of columns are divided, whichever
    takes less time in the timing model. Raises CompileError for a share that does not fit a core.
    """
    m, n = a.shape[0], layer.n
    rows = [(part, slice(0, n)) for part in even_shares(m, cores)]
    tiles = even_shares(-(-n // config.cols), cores)
    columns = [
        (slice(0, m), slice(part.start * config.cols, min(part.stop * config.cols, n)))
        for part in tiles
    ]
    best = rows
    if cores > 1:
        # Imported here: the estimate takes its constants from the hardware, and Amaranth loads
        # slowly.
        from systola.timing.estimate import estimate

        def cycles(choice: Sequence[tuple[slice, slice]]) -> int:
            # The first share is the largest.
            return estimate(config, _share(config, a, layer, *choice[0]).image, memory).cycles

        best = min((rows, columns), key=cycles)
    return [_share(config, a, layer, *part) for part in best]


def _share(config: Config, a: NDArray[np.int8], layer: Layer, rows: slice, columns: slice) -> Share:
    part = replace(
        layer,
        weights=layer.weights[:, columns],
        bias=layer.bias[columns],
        multiplier=layer.multiplier[columns],
        shift=layer.shift[columns],
    )
    program = compile_chain(config, [part], rows.stop - rows.start)
    return Share(rows, columns, program, program.bind(a[rows]))


def run_shares(cores: Cores, images: Sequence[Image]) -> list[Result]:
    """Run an image on each core, from core 0 on, and return the results in that order.

    Raises the errors of Backend.run.
    """
    cores.core(0, lambda: False)  # one thread builds the simulator, for which the others would wait

    def run(number: int, stopped: Callable[[], bool]) -> tuple[int, Result]:
        return number, cores.core(number, stopped).run(images[number])

    done: Iterator[tuple[int, Result]] = run_in_threads(
        range(len(images)), os.cpu_count() or 1, run
    )
    return [result for _, result in sorted(done, key=lambda each: each[0])]
