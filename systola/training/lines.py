# SPDX-License-Identifier: Apache-2.0
"""Converts matrices to lines in host memory, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.training.layout import Layout
from systola.training.stages import Recurrence

Bytes = NDArray[np.uint8]


def blocked(matrix: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a matrix as blocks of `size` columns, one after the other: (blocks, rows, size)."""
    rows, columns = matrix.shape
    padded = np.zeros((rows, -(-columns // size) * size), matrix.dtype)
    padded[:, :columns] = matrix
    return padded.reshape(rows, padded.shape[1] // size, size).transpose(1, 0, 2)


def sequences(x: NDArray[Any], lstm: Recurrence, layout: Layout) -> NDArray[np.int8]:
    """Return samples of a recurrent network, (samples, numbers), as int8 lines
    [step][block][sample].

    A word w becomes a line of zeros with a one in column w.
    """
    size, steps = layout.size, lstm.steps
    if not lstm.vocabulary:
        rows = x.reshape(len(x), steps, x.shape[1] // steps)
        blocks = -(-rows.shape[2] // size)
        lines = np.zeros((steps, blocks, layout.samples, size), np.int8)
        padded = np.zeros((len(x), steps, blocks * size), np.int8)
        padded[:, :, : rows.shape[2]] = rows
        lines[:, :, : len(x)] = padded.reshape(len(x), steps, blocks, size).transpose(1, 2, 0, 3)
        return lines
    lines = np.zeros((steps, -(-lstm.vocabulary // size), layout.samples, size), np.int8)
    sample, step = np.indices(x.shape)
    lines[step, x // size, sample, x % size] = 1
    return lines


def store(host: Bytes, place: int, layout: Layout, lines: NDArray[np.int8]) -> None:
    """Write int8 numbers (..., C) as lines into host memory, from byte `place` on."""
    flat = lines.reshape(-1, layout.size)
    target = host[place : place + len(flat) * layout.pitch].reshape(len(flat), layout.pitch)
    target[:, : layout.size] = flat.view(np.uint8)


def store_wide(host: Bytes, place: int, layout: Layout, values: NDArray[np.int16]) -> None:
    """Write int16 numbers (..., C) as pairs of lines into host memory, low bytes first."""
    store(host, place, layout, pairs(values.reshape(-1, layout.size)))


def pairs(values: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
    """Return int16 numbers, (rows, C), as pairs of lines, (2 * rows, C), low bytes first."""
    both = np.stack((values & 255, values >> 8), axis=1).astype(np.uint8)
    return both.reshape(-1, values.shape[-1]).view(np.int8)


def load_wide(host: Bytes, place: int, layout: Layout, count: int) -> NDArray[np.int16]:
    """Read `count` pairs of lines from host memory as int16 numbers, (count, C)."""
    lines = host[place : place + 2 * count * layout.pitch].reshape(count, 2, layout.pitch)
    pairs = lines[:, :, : layout.size].astype(np.uint16)
    return (pairs[:, 0] | pairs[:, 1] << 8).view(np.int16)


def store_classes(host: Bytes, place: int, layout: Layout, values: NDArray[np.int16]) -> None:
    """Write int16 numbers, (samples, classes), to host memory, transposed: [group of
    samples][class].
    """
    padded = np.zeros((layout.samples, layout.classes), np.int16)
    padded[: values.shape[0], : values.shape[1]] = values
    groups = padded.reshape(layout.groups, layout.size, -1).transpose(0, 2, 1)
    store_wide(host, place, layout, np.ascontiguousarray(groups))


def load_classes(host: Bytes, place: int, layout: Layout) -> NDArray[np.int16]:
    """Read the int16 numbers that `store_classes` writes, (samples, classes), padding included."""
    flat = load_wide(host, place, layout, layout.groups * layout.classes)
    groups = flat.reshape(layout.groups, layout.classes, layout.size)
    return groups.transpose(0, 2, 1).reshape(layout.samples, layout.classes)
