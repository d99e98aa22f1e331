# SPDX-License-Identifier: Apache-2.0
"""The samples in .npz files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from systola.cli.errors import UserError
from systola.cli.output import read_file
from systola.compiler.errors import ModelError
from systola.compiler.operations import Value
from systola.runtime.npz import Npz, NpzError
from systola.runtime.samples import as_input, sample_count


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add --key, the names of the arrays that load_samples takes."""
    parser.add_argument(
        "--key",
        metavar="K,...",
        help="arrays in that file, in the order of the model's inputs "
        "(default: x; x0,x1,... or the names of the inputs where there are several)",
    )


def load_samples(
    path: str, keys: str | None, inputs: Sequence[Value], limit: int | None
) -> tuple[list[NDArray[Any]], int]:
    """Read an array for each of a model's inputs from a .npz file, and the number of samples in
    them.

    `keys` are the names of the arrays, separated by commas. None is x for one input. For several
    inputs None is x0, x1, ..., or else the names of the inputs. At most `limit` samples are read.
    Raises UserError if an array is missing or does not fit its input.
    """
    archive = open_npz(path)
    names = _names(keys, inputs, archive.names)
    arrays = [read_array(path, archive, name) for name in names]
    for number, (name, value) in enumerate(zip(names, inputs, strict=True)):
        try:
            arrays[number] = as_input(arrays[number], value)
            # Each array is checked alone first, so that the message names it.
            sample_count([value], [arrays[number].shape])
        except ModelError as error:
            raise UserError(f"{path}: array '{name}': {error}") from None
    try:
        count = sample_count(inputs, [each.shape for each in arrays])
    except ModelError as error:
        raise UserError(f"{path}: {error}") from None
    if count == 0:
        raise UserError(f"{path}: array '{names[0]}' has no samples")
    if count is None:
        return arrays, 1
    count = min(count, limit or count)
    return [each[:count] for each in arrays], count


def _names(keys: str | None, inputs: Sequence[Value], stored: Sequence[str]) -> list[str]:
    """Return the names of the arrays, in the order of `inputs`.

    `stored` are the names of all arrays in the file.
    """
    if keys is None and len(inputs) == 1:
        return ["x"]
    if keys is None:
        numbered = [f"x{number}" for number in range(len(inputs))]
        named = [each.name for each in inputs]
        by_name = set(named) <= set(stored) and not set(numbered) <= set(stored)
        return named if by_name else numbered
    names = keys.split(",")
    if len(names) != len(inputs):
        takes = ", ".join(f"{each.name} {each.shape}" for each in inputs)
        raise UserError(
            f"--key has {len(names)} names, the model has {len(inputs)} inputs: {takes}"
        )
    return names


def open_npz(path: str) -> Npz:
    """Open a .npz file. Raises UserError if it is no such file."""
    content = read_file(path)
    try:
        return Npz(content)
    except NpzError as error:
        raise UserError(f"{path} is not a .npz file, or damaged: {error}") from None


def read_array(path: str, archive: Npz, name: str) -> NDArray[Any]:
    """Read an array of the .npz file at `path`. Raises UserError if it cannot be read."""
    if name not in archive.names:
        known = ", ".join(archive.names) or "none"
        raise UserError(f"{path} has no array '{name}' (it has: {known})")
    try:
        return archive.read(name)
    except MemoryError as error:
        raise UserError(f"{path}: no memory for array '{name}': {error}") from None
    except NpzError as error:
        raise UserError(f"{path}: cannot read array '{name}': {error}") from None
