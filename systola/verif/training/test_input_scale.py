# SPDX-License-Identifier: Apache-2.0
"""Tests that no sample is cut off at the end of its code, whichever samples came before."""

from __future__ import annotations

import numpy as np

from systola.training import SGD, Dense, Input, Sequential


def compiled() -> Sequential:
    model = Sequential([Input((4,)), Dense(4)])
    model.compile(SGD(0.01), "mse", preset="8x8-training", backend="iss")
    model.set_weights([np.eye(4), np.zeros(4)])
    return model


SMALL, LARGE = np.eye(4) * 0.5, np.eye(4) * 20
TARGETS = np.zeros((4, 4))


def test_predict_takes_each_range() -> None:
    """Check predictions of a network that returns its inputs, for small and large samples."""
    model = compiled()
    for samples in (SMALL, LARGE, SMALL):
        assert np.array_equal(model.predict(samples), samples)


def test_a_prediction_before_it_changes_no_training() -> None:
    before, alone = compiled(), compiled()
    before.predict(LARGE)
    for model in (before, alone):
        model.fit(SMALL + 2.0**-6, TARGETS, verbose=0)
    assert np.array_equal(before.get_weights()[0], alone.get_weights()[0])
    assert alone.input_bits == 6


def test_later_samples_of_fit_and_evaluate_are_not_cut_off() -> None:
    """Check that large samples are not cut off in fit() and evaluate() after small samples.

    The mean square of errors 5, 0, 0 and 0 in four outputs is 6.25.
    """
    model = compiled()
    model.fit(SMALL, TARGETS, epochs=0, verbose=0)
    assert model.evaluate(LARGE / 4, TARGETS) == 6.25
    assert model.input_bits == 6
    model.fit(LARGE, TARGETS, epochs=0, verbose=0)
    assert model.input_bits == 2
    assert np.array_equal(model.predict(SMALL), SMALL)
