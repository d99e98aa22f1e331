# SPDX-License-Identifier: Apache-2.0
"""Tests of Keras's precision policies: their names, and the types that training really has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from systola.training import (
    LSTM,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Input,
    TrainingError,
    mixed_precision,
)
from systola.training.fast.stage import Products, weights
from systola.training.fast.step import Step
from systola.verif.training.test_training import compiled


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = mixed_precision.global_policy()
    yield
    mixed_precision.set_global_policy(before)


def test_names() -> None:
    assert mixed_precision.global_policy().name == "mixed_int8"
    policy = mixed_precision.Policy("mixed_float16")
    for choose in (
        *(mixed_precision.set_global_policy, mixed_precision.set_policy),
        mixed_precision.set_dtype_policy,
    ):
        mixed_precision.set_global_policy("mixed_bfloat16")
        choose(policy)
        assert mixed_precision.global_policy() == mixed_precision.dtype_policy() == policy
    assert (policy.compute_dtype, policy.variable_dtype) == ("int8", "int16")
    assert repr(Dense(3).dtype_policy) == '<Policy "mixed_float16">'
    assert Dense(3, dtype="mixed_float16") == Dense(3)


@pytest.mark.parametrize("name", ["float32", "float16", "", None, 5, "mixed"])
def test_other_names(name: Any) -> None:
    with pytest.raises(TrainingError, match="all training is in int8 and int16, which"):
        mixed_precision.set_global_policy(name)
    assert mixed_precision.global_policy().name == "mixed_int8"


def test_types_are_those_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the arrays of a training step have the types that the policy names."""
    seen: dict[str, str] = {}
    sums, below = Products.sums, Step._below

    def noting(products: Products) -> Any:
        seen.update(inputs=str(products.inputs.dtype), weights=str(products.kernel.dtype))
        found = sums(products)
        seen["sums"] = str(found.dtype)
        return found

    def noting_gradients(*given: Any) -> Any:
        found = below(*given)
        seen["gradients"] = str(found[0].dtype)
        return found

    monkeypatch.setattr(Products, "sums", noting)
    monkeypatch.setattr(Step, "_below", noting_gradients)
    layers = [Input((4,)), Dense(5, "relu"), Dense(3)]
    model = compiled(layers, backend="fast")
    model.fit(np.eye(4), np.arange(4) % 3, verbose=0)
    seen["variables"] = str(model.state().masters[0].dtype)
    expected = layers[1].dtype_policy.tensors(layers[1])
    assert expected == {**seen, "outputs": "int8"}
    assert weights(model.state().masters[0]).dtype == expected["weights"]


@pytest.mark.parametrize(
    ("layer", "kind", "dtype"),
    [
        (LSTM(3), "states", "int16"),
        (LSTM(3), "gradients", "int16"),
        (Conv2D(3, 3), "gradients", "int8"),
        (Embedding(3, 3), "outputs", "int8"),
        (Dropout(0.1), "outputs", "int8"),
    ],
)
def test_layers(layer: Any, kind: str, dtype: str) -> None:
    assert layer.dtype_policy.tensors(layer)[kind] == dtype
