# SPDX-License-Identifier: Apache-2.0
"""Reads lists of words from a pickle, as numpy stores an array of lists; no code in the pickle
runs.
"""

from __future__ import annotations

import io
import pickle
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.training.errors import TrainingError

Words = NDArray[np.int64]
_NUMPY = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),  # pickles of old protocols write bytes with this call
}
"""Modules and names with which numpy writes an array of objects."""


class _Kept:
    """A stand-in for every object in a pickle, which keeps only the object's state and runs no
    code.
    """

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> type[_Kept]:
        """Return the stand-in class for the name of a class in the pickle.

        Raises TrainingError for a name that numpy does not write.
        """
        if (module_name, global_name) not in _NUMPY:
            raise TrainingError(f"asks for {module_name}.{global_name}, which may be any program")
        return _Kept


def read_word_lists(content: bytes) -> list[Words]:
    """Read the pickle of an array of lists of whole numbers.

    Raises TrainingError for anything else. The text of the error continues a sentence that begins
    with the name of the array.
    """
    try:
        # The state of an array: version, shape, type, order, items.
        lists: Any = _Unpickler(io.BytesIO(content)).load().state[4]
        if not _are_lists(lists):
            raise TypeError
        lengths = [len(each) for each in lists]
        # A pickle may repeat a stored list any number of times. So lists could have more words than
        # the pickle has bytes. Such lists are refused, before their words fill the memory.
        if sum(lengths) > len(content):
            raise TypeError
        words = np.array(list(chain.from_iterable(lists)))
        if words.dtype.kind != "i" or words.ndim != 1:
            raise TypeError
    except TrainingError:
        raise
    # pickle raises almost any exception for damaged bytes.
    except Exception:
        raise TrainingError("has no lists of whole numbers") from None
    return np.split(words.astype(np.int64), np.cumsum(lengths)[:-1])


def _are_lists(given: object) -> bool:
    """Return whether `given` is a list with nothing but lists in it."""
    return type(given) is list and all(type(each) is list for each in cast("list[Any]", given))
