# SPDX-License-Identifier: Apache-2.0
"""Draws fresh weights by the names that Keras has for initialisers, with Keras's defaults."""

from __future__ import annotations

import re

import numpy as np

from systola.training.checks import is_name, shown
from systola.training.errors import TrainingError
from systola.training.numbers import Floats

_SCALES = {"glorot": 1.0, "he": 2.0, "lecun": 1.0}
"""Variance of the weights times a count, by family of initialisers. The count is the number of a
unit's inputs; for Glorot it is the mean of the numbers of inputs and outputs."""
_DEVIATION = 0.05
"""Standard deviation of plain normal weights, and largest magnitude of plain uniform weights."""
_CUT = 0.87962566103423978
"""The standard deviation of a normal distribution that is cut off at two deviations."""
NAMES = (
    *(f"{name}_{kind}" for name in _SCALES for kind in ("uniform", "normal")),
    *("random_uniform", "random_normal", "truncated_normal", "orthogonal", "zeros", "ones"),
)


def initializer_name(where: str, given: object) -> str:
    """Return the name in NAMES of an initialiser; the name of its class may be given, too.

    Raises TrainingError for anything else.
    """
    name = given
    if isinstance(given, str):
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", given).lower().removesuffix("_initializer")
        name = {"uniform": "random_uniform", "normal": "random_normal"}.get(name, name)
    if not is_name(name, NAMES):
        raise TrainingError(
            f"{where} must be one of {', '.join(NAMES)}, not {shown(given)}: "
            "set_weights() takes any weights"
        )
    return str(name)


def fresh(
    name: str, rng: np.random.Generator, shape: tuple[int, ...], inputs: int, outputs: int
) -> Floats:
    """Draw weights of a shape by an initialiser.

    `inputs` and `outputs`: numbers of inputs and outputs of a unit, from which the variance
    follows.
    """
    if name in ("zeros", "ones"):
        return np.full(shape, float(name == "ones"))
    if name == "orthogonal":
        return _orthogonal(rng, shape)
    family, _, kind = name.partition("_")
    if family in _SCALES:
        mean = (inputs + outputs) / 2 if family == "glorot" else inputs
        if kind == "uniform":
            limit = np.sqrt(3 * _SCALES[family] / mean)
            return rng.uniform(-limit, limit, shape)
        return _truncated(rng, shape) * np.sqrt(_SCALES[family] / mean) / _CUT
    if kind == "uniform":
        return rng.uniform(-_DEVIATION, _DEVIATION, shape)
    drawn = _truncated(rng, shape) if family == "truncated" else rng.normal(size=shape)
    return _DEVIATION * drawn


def _truncated(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal numbers; numbers of a magnitude above two are drawn again."""
    drawn = rng.normal(size=shape)
    while (beyond := abs(drawn) > 2).any():
        drawn[beyond] = rng.normal(size=int(beyond.sum()))
    return drawn


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return np.reshape(q if rows >= columns else q.T, shape)
