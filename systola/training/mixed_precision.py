# SPDX-License-Identifier: Apache-2.0
"""Keras's policies of precision: the machine has only one, of int8 and int16.

It works as Keras's mixed_float16 does, at half the bits: products are of narrow numbers, and the
weights that learn are wide. So training accepts mixed_float16, and other names of mixed policies,
as names of its only policy.
"""

from __future__ import annotations

from collections.abc import Mapping

from systola.training.arguments import takes
from systola.training.checks import is_name, shown
from systola.training.errors import TrainingError

NAMES = ("mixed_int8", "mixed_float16", "mixed_bfloat16")
_INT8, _INT16, _INT32 = "int8", "int16", "int32"
_SUMS = {"variables": _INT16, "weights": _INT8, "inputs": _INT8, "sums": _INT32}
_STAGE = {**_SUMS, "outputs": _INT8, "gradients": _INT8}
_TENSORS: Mapping[str, Mapping[str, str]] = {
    "Dense": _STAGE,
    "Conv1D": _STAGE,
    "Conv2D": _STAGE,
    "DepthwiseConv2D": _STAGE,
    "LSTM": {
        **_SUMS,
        "biases": _INT16,
        "gates": _INT16,
        "cells": _INT16,
        "states": _INT16,
        "outputs": _INT8,
        "gradients": _INT16,
    },
    "GRU": {
        **_SUMS,
        "biases": _INT16,
        "gates": _INT16,
        "states": _INT16,
        "outputs": _INT8,
        "gradients": _INT16,
    },
    "Embedding": {"variables": _INT16, "outputs": _INT8, "gradients": _INT16},
}
_OTHERS = {"outputs": _INT8, "gradients": _INT8}
"""Types of the tensors of a layer without weights."""


class Policy:
    """A policy of precision: `compute_dtype` for products, `variable_dtype` for masters.

    Raises TrainingError for a name that is not in NAMES.
    """

    compute_dtype = _INT8
    variable_dtype = _INT16

    @takes()
    def __init__(self, name: str) -> None:
        if not is_name(name, NAMES):
            raise TrainingError(
                f"policy {shown(name)} is not there: all training is in int8 and int16, "
                "which 'mixed_float16' stands for here"
            )
        self.name = name

    def tensors(self, layer: object) -> dict[str, str]:
        """Return the type of each kind of tensor of a layer.

        The outputs of the last layer, the logits, and all moments and velocities are int16.
        """
        return dict(_TENSORS.get(type(layer).__name__, _OTHERS))

    def __repr__(self) -> str:
        return f'<Policy "{self.name}">'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


DTypePolicy = Policy
_chosen = [Policy(NAMES[0])]


def global_policy() -> Policy:
    """Return the policy of precision of all layers."""
    return _chosen[0]


@takes()
def set_global_policy(policy: str | Policy) -> None:
    """Choose a policy of precision, given by itself or by its name.

    Raises TrainingError for an unknown policy.
    """
    _chosen[0] = policy if isinstance(policy, Policy) else Policy(policy)


dtype_policy, set_dtype_policy = global_policy, set_global_policy
set_policy = set_global_policy
