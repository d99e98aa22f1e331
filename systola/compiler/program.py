# SPDX-License-Identifier: Apache-2.0
"""A compiled program, with the places of its inputs and outputs, and its layers."""

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
    """The layout in host memory of one input or output of a program, for all samples."""

    matrix: HostMatrix
    """Matrix in host memory, with a row for each pixel of each sample.

    With packed channels the matrix has a row for each row of pixels. The matrix may have more rows
    than the samples fill.
    """
    rows: int
    """Number of rows of `matrix` that one sample takes."""
    columns: NDArray[np.int64]
    """Column of `matrix` for each element of one row of a sample."""
    order: NDArray[np.int64]
    """Numbers of the rows of `matrix` that hold the samples: all rows of a sample, then the next
    sample."""

    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offset in the host window of each element of the map, sample after
        sample.

        The result has one dimension.
        """
        matrix, columns = self.matrix, self.columns
        in_row = columns // matrix.block * matrix.pitch + columns % matrix.block
        return (matrix.offset + self.order[:, np.newaxis] * matrix.stride + in_row).reshape(-1)

    def store(self, host: NDArray[np.uint8], x: NDArray[np.int8]) -> None:
        """Write the map of all samples, `x`, into the host window."""
        content = np.zeros((self.matrix.rows, self.matrix.columns), np.int8)
        values = x.reshape(len(self.order), len(self.columns))
        content[self.order[:, np.newaxis], self.columns] = values
        self.matrix.store(host, content)

    def load(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return the map of all samples from the host window, each sample as one row."""
        content = self.matrix.load(host)[self.order[:, np.newaxis], self.columns]
        return content.reshape(len(self.order) // self.rows, -1)


@dataclass(frozen=True)
class LayerWork:
    """A piece of a program's work, a layer or a move of data, that ends with one Debug_Tag."""

    operator: str
    """Name of the operator in the model, for reports."""
    shape: tuple[int, ...]
    """Shape of the operator's result, for one sample."""
    macs: int
    """Number of multiply-accumulates in the whole program, which may execute the layer many
    times.
    """


def output_work(outputs: Sequence[Value]) -> LayerWork:
    """Return the last piece of a program's work, in which the outputs go to host memory."""
    names = ", ".join(value.name for value in outputs)
    return LayerWork(f"outputs ({names})", outputs[0].shape, 0)


@dataclass(frozen=True)
class Program:
    """A compiled program, which takes and makes samples of int8.

    After each layer there is a Debug_Tag with the layer's index in `layers`.
    """

    image: Image
    """Image of the program, with weights and constants; `bind` returns it with inputs, too."""
    inputs: tuple[HostMap, ...]
    outputs: tuple[HostMap, ...]
    layers: tuple[LayerWork, ...] = ()
    spilled: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of bytes of host memory for each value that does not fit into the unified buffer."""
    buffer_lines: int = 0
    """Number of lines of the unified buffer that the program uses, from the first line on."""

    def bind(self, *inputs: NDArray[np.int8]) -> Image:
        """Return the image with the data `inputs`: an array of samples for each input, in order."""
        host = self.image.host.copy()
        for place_of, x in zip(self.inputs, inputs, strict=True):
            place_of.store(host, x)
        return replace(self.image, host=host)

    def results(self, host: NDArray[np.uint8]) -> tuple[NDArray[np.int8], ...]:
        """Return the outputs in the host window after a run, each as samples x elements."""
        return tuple(output.load(host) for output in self.outputs)

    def result(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return the output of a program that has one output."""
        (result,) = self.results(host)
        return result
