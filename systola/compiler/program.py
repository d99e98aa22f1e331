# SPDX-License-Identifier: Apache-2.0
"""A compiled program, with the layout of its inputs and outputs in host memory and its layers."""

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

    If the channels are packed, the matrix has a row for each row of pixels. The matrix may also
    have rows that hold no sample.
    """
    rows: int
    """Number of rows of `matrix` that one sample takes."""
    columns: NDArray[np.int64]
    """Column of `matrix` that holds each element of a sample's row, in order, counted from 0."""
    order: NDArray[np.int64]
    """Indexes of the rows of `matrix` that hold the samples, counted from 0. All rows of the first
    sample come first, then all rows of the second sample, and so on."""

    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offset in the host window of each element of the input or output.

        The result has one dimension: all elements of the first sample, then of the second, and so
        on.
        """
        matrix, columns = self.matrix, self.columns
        in_row = columns // matrix.block * matrix.pitch + columns % matrix.block
        return (matrix.offset + self.order[:, np.newaxis] * matrix.stride + in_row).reshape(-1)

    def store(self, host: NDArray[np.uint8], x: NDArray[np.int8]) -> None:
        """Write all samples `x` of the input into `host`, the bytes of the host window."""
        content = np.zeros((self.matrix.rows, self.matrix.columns), np.int8)
        values = x.reshape(len(self.order), len(self.columns))
        content[self.order[:, np.newaxis], self.columns] = values
        self.matrix.store(host, content)

    def load(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return the input or output from `host`, the bytes of the host window.

        The result has the shape samples x elements.
        """
        content = self.matrix.load(host)[self.order[:, np.newaxis], self.columns]
        return content.reshape(len(self.order) // self.rows, -1)


@dataclass(frozen=True)
class LayerWork:
    """A piece of a program's work, a layer or a move of data, that ends with one Debug_Tag."""

    operator: str
    """Name of the operator in the model, for reports."""
    shape: tuple[int, ...]
    """Shape of the operator's result for one sample."""
    macs: int
    """Number of the layer's multiply-accumulates in a whole run of the program, which may execute
    the layer many times.
    """


def output_work(outputs: Sequence[Value]) -> LayerWork:
    """Return a description of a program's last work, in which the outputs go to host memory."""
    names = ", ".join(value.name for value in outputs)
    return LayerWork(f"outputs ({names})", outputs[0].shape, 0)


@dataclass(frozen=True)
class Program:
    """A compiled program, with inputs and outputs of int8.

    Each layer ends with a Debug_Tag. The number in the tag is the layer's index in `layers`.
    """

    image: Image
    """Content of host and weight memory: instructions, weights and constants, without inputs."""
    inputs: tuple[HostMap, ...]
    outputs: tuple[HostMap, ...]
    layers: tuple[LayerWork, ...] = ()
    spilled: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of bytes of host memory for each value that left the unified buffer, by its name."""
    buffer_lines: int = 0
    """Number of lines of the unified buffer that the program uses, counted from line 0."""

    def bind(self, *inputs: NDArray[np.int8]) -> Image:
        """Return a copy of the image with `inputs` written into it: an array for each input."""
        host = self.image.host.copy()
        for place_of, x in zip(self.inputs, inputs, strict=True):
            place_of.store(host, x)
        return replace(self.image, host=host)

    def results(self, host: NDArray[np.uint8]) -> tuple[NDArray[np.int8], ...]:
        """Return all outputs from the host window after a run, each as samples x elements."""
        return tuple(output.load(host) for output in self.outputs)

    def result(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return the only output from the host window after a run, as samples x elements."""
        (result,) = self.results(host)
        return result
