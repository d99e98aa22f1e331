# SPDX-License-Identifier: Apache-2.0
"""The option --labels of the commands that can print an accuracy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.cli.errors import UserError
from systola.cli.inputs import open_npz, read_array
from systola.compiler.errors import ModelError
from systola.compiler.operations import Value
from systola.runtime.quantiser.comparison import accuracy, check_labels


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the option --labels, the right classes of the samples."""
    parser.add_argument(
        "--labels",
        metavar="K",
        help="array of classes in the file with the samples: the accuracy is printed",
    )


def load_labels(
    arguments: argparse.Namespace, outputs: Sequence[Value], count: int
) -> NDArray[Any] | None:
    """Return the classes of the first `count` samples of --input, None without --labels.

    Raises UserError if there are no such classes for a model with these outputs.
    """
    name: str | None = arguments.labels
    if name is None:
        return None
    path: str = arguments.input
    labels = read_array(path, open_npz(path), name)
    if labels.ndim and arguments.limit:
        labels = labels[:count]
    # This array of zeros takes no memory, as all its elements share one number.
    results = [np.broadcast_to(np.int8(0), (count, *each.shape)) for each in outputs]
    try:
        return check_labels(labels, results)
    except ModelError as error:
        raise UserError(f"{path}: array '{name}': {error}") from None


def found_accuracy(
    labels: NDArray[Any] | None, outputs: Sequence[NDArray[Any]]
) -> tuple[dict[str, object], list[str]]:
    """Return the accuracy as an entry for JSON and as a line of text.

    Without labels, the entry is None and there is no line.
    """
    if labels is None:
        return {"accuracy": None}, []
    share = accuracy(outputs[0].reshape(len(labels), -1), labels)
    return {"accuracy": share}, [f"accuracy {100 * share:.2f} %"]
