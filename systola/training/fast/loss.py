# SPDX-License-Identifier: Apache-2.0
"""Computes loss and gradient of int16 logits, (samples, units), as `systola.training.loss` does."""

from __future__ import annotations

from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from systola.golden.training import held
from systola.training.fast.arithmetic import (
    Narrow,
    Sums,
    Wide,
    falling,
    logistic,
    measured,
    narrow,
    scaled,
    times,
    wide,
)
from systola.training.loss import (
    BINARY,
    LARGEST,
    LINE_ABOVE,
    LOSS_BITS,
    MARGIN,
    PROBABILITY_BITS,
    WEIGHT_BITS,
)
from systola.training.numbers import LOGIT_BITS, multiplier
from systola.training.task import Task
from systola.training.writer import ONE, Entry, shifted

_EXP_INTEGER_BITS = 15 - LOSS_BITS


class Loss(NamedTuple):
    """The loss of a batch, and the errors that its gradient is made of."""

    error: Wide
    """The negative gradient of the loss of each sample, (samples, units)."""
    bits: int
    """Number of fraction bits of the error."""
    losses: Wide
    """The loss of each sample, with LOSS_BITS fraction bits."""


def loss(task: Task, logits: Wide, labels: Wide) -> Loss:
    """Compute the loss that the task names, from logits and labels."""
    if task.loss == "mse":
        error, losses, bits = _squares(logits, labels)
    elif task.loss == BINARY:
        error, losses, bits = _binary(logits, labels)
    else:
        error, losses, bits = _crossentropy(logits, labels)
    return Loss(error, bits, wide(losses.sum(axis=1, dtype=np.int32)))


def weighted(found: Loss, codes: Wide) -> Loss:
    """Multiply the errors of samples with weights.

    `codes`: a weight for each sample, (samples, 1), with WEIGHT_BITS fraction bits.
    """
    return found._replace(error=wide(times(found.error, codes, WEIGHT_BITS)))


def gradient(found: Loss) -> tuple[Narrow, int]:
    """Return the errors narrowed to int8, and the number of fraction bits of the result."""
    shift = measured(found.error, -8)
    codes = narrow(scaled(found.error, Entry(), shift))
    return codes, held(found.bits - 1 - shift)


def probabilities(logits: Wide) -> Wide:
    """Compute the softmax of the logits, with PROBABILITY_BITS fraction bits."""
    return _exponential(_log_softmax(logits))


def probability(logits: Wide) -> Wide:
    """Compute the sigmoid of each logit, with PROBABILITY_BITS fraction bits."""
    return logistic(wide(scaled(logits, Entry(left=12 - LOGIT_BITS + 1))))


def _crossentropy(logits: Wide, labels: Wide) -> tuple[Wide, Wide, int]:
    logs = _log_softmax(logits)
    error = _difference(labels, _exponential(logs))
    return error, wide(times(labels, logs, PROBABILITY_BITS)), PROBABILITY_BITS


def _squares(outputs: Wide, targets: Wide) -> tuple[Wide, Wide, int]:
    error = _difference(targets, outputs)
    q, right = multiplier(1 / outputs.shape[1])
    entry = shifted(right + 2 * LOGIT_BITS - LOSS_BITS, multiplier=q)
    return error, wide(scaled(_product(error, error), entry)), LOGIT_BITS


def _binary(logits: Wide, labels: Wide) -> tuple[Wide, Wide, int]:
    """Compute the error and the losses of binary crossentropy.

    A loss is max(z, 0) - z label + log(1 + exp(-|z|)), divided by the number of units.
    """
    error = _difference(labels, probability(logits))
    z = wide(scaled(logits, Entry(left=2)))
    power = _exponential(z)
    sums = wide(scaled(power, Entry(bias=1 << PROBABILITY_BITS)))
    q, right = multiplier(log(2) / 2 ** (PROBABILITY_BITS - LOSS_BITS))
    bias = round(LINE_ABOVE / log(2) * 2**PROBABILITY_BITS)
    start = wide(scaled(power, shifted(right, multiplier=q, bias=bias)))
    losses = _newton(sums, start, PROBABILITY_BITS - 1, 0.0, 2)
    # An int16 z + LARGEST saturates for z above zero, so it is min(z, 0) + LARGEST.
    least = wide(scaled(z, Entry(left=1, bias=LARGEST)))
    positive = wide(scaled(_minus(z, least), Entry(left=1, bias=LARGEST)))
    losses = wide(losses.astype(np.int32) + positive)
    losses = _difference(losses, wide(times(z, labels, PROBABILITY_BITS)))
    q, right = multiplier(1 / logits.shape[1])
    return error, wide(scaled(losses, shifted(right, multiplier=q))), PROBABILITY_BITS


def _log_softmax(logits: Wide) -> Wide:
    """Compute log p of each logit, with LOSS_BITS fraction bits; p is the softmax."""
    units = logits.shape[1]
    difference = _below_largest(logits)
    powers = _exponential(wide(scaled(difference, Entry(left=1, bias=-LARGEST))))
    bits = 15 - units.bit_length()
    totals = powers.sum(axis=1, keepdims=True, dtype=np.int32)
    sums = wide(scaled(totals, shifted(PROBABILITY_BITS - bits - 1)))
    most = log(units) + MARGIN
    start = max(most / 2, most - 1.2)
    first = np.full_like(sums, round(start * 2**LOSS_BITS))
    logarithm = _newton(sums, first, bits, MARGIN, 5 + ceil(max(0.0, start - 1.2)))
    back = Entry(left=1, bias=round(MARGIN * 2**LOSS_BITS) - LARGEST)
    return wide(scaled(_minus(difference, logarithm), back))


def _below_largest(logits: Wide) -> Wide:
    """Compute min(d, 0) + LARGEST, with LOSS_BITS fraction bits.

    d is a logit less the largest logit, which is rounded up to quarters.
    """
    quarters = narrow(scaled(logits, shifted(7, bias=127)))
    largest = quarters.max(axis=1, keepdims=True).astype(np.int32) << LOGIT_BITS - 2
    doubled = _minus(logits, wide(largest)) << LOSS_BITS - LOGIT_BITS
    return wide(scaled(doubled, Entry(left=1, bias=LARGEST)))


def _newton(sums: Wide, values: Wide, bits: int, margin: float, steps: int) -> Wide:
    """Take steps of Newton's method, Y += S exp(margin - Y) - 1, for sums S of `bits` fraction
    bits.

    `values`: the first Y.
    """
    factor = exp(margin)
    product_bits = bits + PROBABILITY_BITS
    q, right = multiplier(factor)
    entry = Entry(q, right + product_bits - LOSS_BITS, bias=-round(2**product_bits / factor))
    for _ in range(steps):
        products = _product(sums, _exponential(values))
        values = wide(scaled(products, entry) + values)
    return values


def _exponential(values: Wide) -> Wide:
    return falling(values, _EXP_INTEGER_BITS)


def _product(a: Wide, b: Wide) -> Sums:
    return np.multiply(a, b, dtype=np.int32)


def _minus(a: Wide, b: Wide) -> Sums:
    return np.subtract(a, b, dtype=np.int32)


def _difference(a: Wide, b: Wide) -> Wide:
    return wide(scaled(_minus(a, b), ONE))
