# SPDX-License-Identifier: Apache-2.0
"""The methods that all models have, on one machine or on a pod."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.compiler.errors import ModelError
from systola.compiler.operations import Value
from systola.runtime.samples import as_samples


class Outputs(Protocol):
    """A result of a run, which has outputs."""

    @property
    def outputs(self) -> tuple[NDArray[Any], ...]:
        """One array for each output of the model."""
        ...


class Predictor(ABC):
    """A model that runs on samples: on one machine, or on the cores of a pod."""

    inputs: tuple[Value, ...]
    """Inputs of the model as its users see them."""
    outputs: tuple[Value, ...]

    @abstractmethod
    def run(self, *x: ArrayLike | Mapping[str, ArrayLike]) -> Outputs:
        """Run the model on any number of samples."""

    def predict(
        self, *x: ArrayLike | Mapping[str, ArrayLike]
    ) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Return the output of the model for any number of samples; a tuple if there are several.

        `x` and the errors are the same as for `run`.
        """
        outputs = self.run(*x).outputs
        return outputs[0] if len(outputs) == 1 else outputs

    def evaluate(self, x: ArrayLike | Mapping[str, ArrayLike], labels: ArrayLike) -> float:
        """Return the share of samples with their largest output at the label.

        The first of equal outputs counts. `labels` has a whole number for each sample. Raises
        ModelError for other labels, and for a model without classes. Raises the errors of `run`.
        """
        count = as_samples((x,), self.inputs, self.outputs).count
        classes = prod(self.outputs[0].shape)
        wanted = np.asarray(labels)
        if len(self.outputs) > 1 or classes < 2:
            raise ModelError("the model has no output of several classes")
        if not np.issubdtype(wanted.dtype, np.integer):
            raise ModelError(f"labels are whole numbers, not {wanted.dtype}")
        if wanted.size != count or not count:
            raise ModelError(f"{wanted.size} labels do not fit {count} samples")
        low, high = int(wanted.min()), int(wanted.max())
        if low < 0 or high >= classes:
            raise ModelError(f"labels are 0 to {classes - 1}, not {low} to {high}")
        scores = self.run(x).outputs[0].reshape(count, classes)
        right = np.count_nonzero(scores.argmax(axis=1) == wanted.reshape(-1))
        return int(right) / count
