# SPDX-License-Identifier: Apache-2.0
"""A compiled program, where its inputs and outputs lie, and which layers it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.image import Image
from systola.compiler.layout import HostMatrix
from systola.compiler.operations import Value


@dataclass(frozen=True)
class HostMap:
    """A feature map in host memory, once for each sample."""

    matrix: HostMatrix
    """A row for each pixel of each sample, or of packed channels, for each row of pixels; there may
    be more rows than the samples fill."""
    rows: int
    """Rows of one sample."""
    columns: NDArray[np.int64]
    """For each element of a row of the map its column in the matrix."""
    order: NDArray[np.int64]
    """For each row of each sample, one sample after the other, its row in the matrix."""

    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offset in the host window of each element, 1-D, sample after sample."""
        matrix, columns = self.matrix, self.columns
        in_row = columns // matrix.block * matrix.pitch + columns % matrix.block
        return (matrix.offset + self.order[:, np.newaxis] * matrix.stride + in_row).reshape(-1)

    def store(self, host: NDArray[np.uint8], x: NDArray[np.int8]) -> None:
        """Writes the samples `x` into the host window."""
        content = np.zeros((self.matrix.rows, self.matrix.columns), np.int8)
        values = x.reshape(len(self.order), len(self.columns))
        content[self.order[:, np.newaxis], self.columns] = values
        self.matrix.store(host, content)

    def load(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """The samples in the host window, one in a row."""
        content = self.matrix.load(host)[self.order[:, np.newaxis], self.columns]
        return content.reshape(len(self.order) // self.rows, -1)


@dataclass(frozen=True)
class LayerWork:
    """What ends with one tag: a layer of the network, or a move of its data."""

    operator: str
    """The operator it comes from."""
    shape: tuple[int, ...]
    """Of its result, for one sample."""
    macs: int
    """Multiply-accumulates in the whole program, which may execute it many times."""


def output_work(outputs: Sequence[Value]) -> LayerWork:
    """The last of a program's layers: its outputs go to host memory."""
    names = ", ".join(value.name for value in outputs)
    return LayerWork(f"outputs ({names})", outputs[0].shape, 0)


@dataclass(frozen=True)
class Program:
    """A program for int8 samples in and out.

    Where a layer is complete stands a Debug_Tag with the layer's place in `layers`.
    """

    image: Image
    """The program with its weights and all else; the inputs are whatever `bind` put there."""
    inputs: tuple[HostMap, ...]
    outputs: tuple[HostMap, ...]
    layers: tuple[LayerWork, ...] = ()
    spilled: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes of host memory for each value that the unified buffer has no room for."""
    buffer_lines: int = 0
    """Lines of the unified buffer that it uses, from the first on."""

    def bind(self, *inputs: NDArray[np.int8]) -> Image:
        """The image with `inputs`, of samples each, in the order of the program's inputs."""
        host = self.image.host.copy()
        for place_of, x in zip(self.inputs, inputs, strict=True):
            place_of.store(host, x)
        return replace(self.image, host=host)

    def results(self, host: NDArray[np.uint8]) -> tuple[NDArray[np.int8], ...]:
        """The outputs in the host window after a run, one sample in a row each."""
        return tuple(output.load(host) for output in self.outputs)

    def result(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """The output of a program that has one."""
        (result,) = self.results(host)
        return result
