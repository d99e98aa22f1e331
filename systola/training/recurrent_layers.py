# SPDX-License-Identifier: Apache-2.0
"""The layers LSTM and GRU as the user writes them, with Keras's names and arguments."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from systola.training.arguments import Only, constructor
from systola.training.checks import flag
from systola.training.layer_base import (
    KERNEL,
    LAYER,
    NO_CONSTRAINT,
    NO_REGULARISER,
    SET_WEIGHTS,
    Computing,
    keep_initializers,
    keep_size,
)

MOST_LSTM_UNITS = 512
"""Largest number of units of an LSTM or GRU. A sum of so many products of int16 and int8 numbers
fits 32 bits."""
_RECURRENT = {
    "bias_initializer": Only(("zeros", "Zeros"), SET_WEIGHTS),
    "recurrent_activation": Only(("sigmoid",), "the gates have sigmoid"),
    "recurrent_regularizer": NO_REGULARISER,
    "recurrent_constraint": NO_CONSTRAINT,
    "dropout": Only((0.0, 0), "a Dropout layer may follow"),
    "recurrent_dropout": Only((0.0, 0), "a Dropout layer may follow"),
    "seed": Only((None,), "compile() takes the seed"),
    "go_backwards": Only((False,), "turn the samples round"),
    "stateful": Only((False,), "each sample begins with a state of zero"),
    "time_major": Only((False,), "samples come first"),
    "unroll": Only((False, True)),
    "use_cudnn": Only(("auto", False)),
}
"""Arguments of Keras's LSTM and GRU for which only one value is allowed here."""


@dataclass(frozen=True)
class Recurring(Computing):
    """A base class of LSTM and GRU, the layers that take one step in time after the other."""

    units: int
    _: KW_ONLY
    use_bias: bool = True
    kernel_initializer: str = "glorot_uniform"
    recurrent_initializer: str = "orthogonal"
    return_sequences: bool = False

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        keep_size(self, "units", MOST_LSTM_UNITS)
        for name in ("use_bias", "return_sequences"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        keep_initializers(self, "kernel_initializer", "recurrent_initializer")


@constructor(
    **LAYER,
    **KERNEL,
    **_RECURRENT,
    activation=Only(("tanh",), "an LSTM has tanh"),
    unit_forget_bias=Only((True,), "forget gates begin with a bias of one"),
    return_state=Only((False,), "an LSTM gives its last state, or all of them"),
)
@dataclass(frozen=True)
class LSTM(Recurring):
    """A layer of long short-term memory, with Keras's defaults.

    The defaults are tanh, sigmoid for the gates, and biases. Biases of the forget gate are one at
    first. The layer gives the `units` numbers of the last step. With `return_sequences` the layer
    gives the numbers of all steps, which another LSTM or GRU takes.
    """


@constructor(
    **LAYER,
    **KERNEL,
    **_RECURRENT,
    activation=Only(("tanh",), "a GRU has tanh"),
    return_state=Only((False,), "a GRU gives its last state, or all of them"),
    reset_after=Only((True,), "Keras's default, True, is there"),
)
@dataclass(frozen=True)
class GRU(Recurring):
    """A layer of gated recurrent units, with Keras's defaults.

    The defaults are tanh, sigmoid for the gates, biases, and a reset after the product with the
    recurrent kernel. The layer gives the `units` numbers of the last step. With `return_sequences`
    the layer gives the numbers of all steps, which another LSTM or GRU takes.
    """
