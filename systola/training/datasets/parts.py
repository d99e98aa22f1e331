# SPDX-License-Identifier: Apache-2.0
"""Returns the training part and the test part of a data set: from Keras's file, else made up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from systola.runtime.npz import Npz, NpzError
from systola.training.checks import shown
from systola.training.errors import TrainingError, one_line
from systola.training.paths import check_path

LIMIT = "SYSTOLA_DATASET_SAMPLES"
"""Name of the environment variable with the number of samples of each part of a data set."""
BLOCK = 1000
"""Number of samples that are made up with one random generator."""
_NAMES = ("x_train", "y_train", "x_test", "y_test")
_Part = TypeVar("_Part")


def read_or_make_up(
    path: str,
    what: str,
    read: Callable[[Npz, str], _Part],
    make_up: Callable[[int, int], _Part],
    counts: tuple[int, int],
) -> list[_Part]:
    """Return the training part and the test part of a data set.

    `read` takes Keras's file and "train" or "test". Where there is no file, `make_up` takes the
    number of the part, 0 or 1, and the number of samples, which is in `counts` for each part. For
    such samples there is a line on standard error, in which they are called `what`. Raises
    TrainingError for a file that cannot be read or has anything else.
    """
    file, limit = _place(path), samples_limit()
    try:
        archive = Npz(file.read_bytes())
        for name in _NAMES:
            if name not in archive.names:
                raise TrainingError(f"it has no array {name}")
        return [read(archive, part) for part in ("train", "test")]
    except (NpzError, TrainingError) as error:
        raise TrainingError(f"{file}: {error}") from None
    except FileNotFoundError:
        print(one_line(f"The {what} are made up: there is no file {file}"), file=sys.stderr)
        return [make_up(n, min(counts[n], limit or counts[n])) for n in range(2)]
    except OSError as error:
        raise TrainingError(f"{file}: {error.strerror}") from None
    except MemoryError:
        raise TrainingError(f"{file}: there is no room in memory for its arrays") from None


def samples_limit() -> int | None:
    """Return how many samples a part of a data set may have; None for all samples.

    Raises TrainingError if the limit in the environment is no number.
    """
    given = os.environ.get(LIMIT)
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 10 and int(given)):
        raise TrainingError(f"{LIMIT} must be a whole number of at least 1, not {shown(given)}")
    return int(given)


def labels(archive: Npz, part: str, count: int) -> NDArray[Any]:
    """Read the labels of `count` samples from a file.

    Raises TrainingError if the array is not `count` whole numbers, NpzError if it is damaged.
    """
    found = archive.read(f"y_{part}")
    if found.dtype.kind not in "iu" or found.shape != (count,) or not count:
        raise TrainingError(
            f"y_{part} is {found.dtype} of shape {found.shape}, not {count} whole numbers"
        )
    return found


def generators(part: int, count: int) -> Iterator[np.random.Generator]:
    """Yield a random generator for each BLOCK of the `count` samples of a part.

    The generators are the same in each call.
    """
    for block in range(-(-count // BLOCK)):
        yield np.random.default_rng((part, block))


def _place(path: str) -> Path:
    """Return the path of one of Keras's files.

    A relative `path` is a name in the folder of Keras's data sets. An absolute `path` is returned
    as it is.
    """
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return Path(home) / "datasets" / check_path(path)
