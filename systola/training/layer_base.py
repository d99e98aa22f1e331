# SPDX-License-Identifier: Apache-2.0
"""The settings that layers have in common, and their checks."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from math import prod
from typing import Any, ClassVar

from systola.training.arguments import Only
from systola.training.checks import check_name, items, only_item, shown, whole
from systola.training.errors import TrainingError
from systola.training.initializers import initializer_name
from systola.training.mixed_precision import NAMES as POLICIES
from systola.training.mixed_precision import Policy, global_policy

MOST_NUMBERS = 1 << 24
"""Largest number of values in a sample, and largest number of units in a layer."""
NO_REGULARISER = Only((None,), "there are no regularisers, Dropout may do")
NO_CONSTRAINT = Only((None,), "there are no constraints")
LAYER = {
    "trainable": Only((True,), "all layers are trained"),
    "dtype": Only((None, "float32", *POLICIES), "the machine has block floating point"),
    "batch_size": Only((None,), "fit() takes it"),
    "activity_regularizer": NO_REGULARISER,
}
"""Arguments of all Keras layers that training accepts only with a value that changes nothing."""
KERNEL = {
    "kernel_regularizer": NO_REGULARISER,
    "bias_regularizer": NO_REGULARISER,
    "kernel_constraint": NO_CONSTRAINT,
    "bias_constraint": NO_CONSTRAINT,
    "lora_rank": Only((None,)),
    "quantization_config": Only((None,)),
}
MAPS = Only((None, "channels_last"), "channels are last")
SET_WEIGHTS = "fresh weights are Keras's defaults, set_weights() gives others"
"""Advice in the error message for an initialiser that is not supported."""
Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Named:
    """The base of all layers. `name` is the name in summary(). If `name` is None, summary() makes a
    name from the class, as Keras does.
    """

    name: str | None = None

    joins: ClassVar[bool] = False
    """Whether a layer of this class takes several results."""
    begins: ClassVar[bool] = False
    """Whether a layer of this class is an Input, which takes no result."""

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("the name of a layer", self.name)

    @property
    def dtype_policy(self) -> Policy:
        """The policy of precision; its method `tensors` gives the types of this layer's tensors."""
        return global_policy()

    def __call__(self, inputs: Any) -> Result:
        """Return the result of the layer for `inputs`: results of other layers, or an Input.

        Raises TrainingError for anything else, and if the layer takes another number of results.
        """
        kind = type(self).__name__
        given: Any = tuple(inputs) if type(inputs) in (list, tuple) else (inputs,)
        for each in given:
            need(
                isinstance(each, Result) or (isinstance(each, Named) and each.begins),
                f"{kind} takes results of layers, or an Input, not {shown(each)}",
            )
        need(not self.begins, "Input is the result of no layer: the next one takes it")
        wanted = "at least two results, in a list" if self.joins else "one result"
        need((len(given) > 1) == self.joins, f"{kind} takes {wanted}, not {len(given)}")
        return Result(self, given)


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a layer that was called, from which Model finds the layers before it."""

    layer: Named
    sources: tuple[Result | Named, ...]
    """The results that the layer takes, or the Input."""


@dataclass(frozen=True, kw_only=True)
class Computing(Named):
    """The base of all layers but Input. The first layer may have `input_shape`, as Input has."""

    input_shape: InitVar[tuple[int, ...] | None] = None

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__()
        if input_shape is not None:
            object.__setattr__(self, "_sample_shape", shape_of("input_shape", input_shape))

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, as in the argument `input_shape`; None if it was not given."""
        return vars(self).get("_sample_shape")


def shape_of(where: str, given: object) -> tuple[int, ...]:
    """Return the shape of a sample as a tuple.

    Raises TrainingError for another type, for an empty shape, and for more than MOST_NUMBERS values
    in a sample.
    """
    sizes = items(f"the shape of {where}", given, "sizes")
    shape = tuple(whole(f"a size of {where}", size, 1, MOST_NUMBERS) for size in sizes)
    need(
        len(shape) > 0 and prod(shape) <= MOST_NUMBERS,
        f"{where} must have 1 to {MOST_NUMBERS:,} numbers, not the shape {shown(shape)}",
    )
    return shape


def pair(name: str, value: object, most: int) -> Pair:
    """Return a pair, given as a number from 1 to `most` or as two such numbers."""
    given: Any = value if type(value) in (list, tuple) else (value, value)
    try:
        first, second = (whole(name, each, 1, most) for each in given)
    except ValueError:
        raise TrainingError(
            f"{name} must be 1 to {most}, or two of these, not {shown(value)}"
        ) from None
    return first, second


def single(name: str, value: object, most: int) -> int:
    """Return a number from 1 to `most`, given as it is or in a tuple with one item, as in Keras."""
    return whole(name, only_item(value), 1, most)


def need(holds: bool, reason: str) -> None:
    """Raise TrainingError with `reason` as its message, unless `holds`."""
    if not holds:
        raise TrainingError(reason)


def keep_size(layer: Named, name: str, most: int = MOST_NUMBERS) -> None:
    """Make the field `name` of a layer an int; raise TrainingError if it is not 1 to `most`."""
    where = f"{name} of {type(layer).__name__}"
    object.__setattr__(layer, name, whole(where, getattr(layer, name), 1, most))


def keep_initializers(layer: Named, *names: str) -> None:
    """Replace the initialisers in these fields of a layer by their names in initializers.NAMES."""
    for name in names:
        object.__setattr__(layer, name, initializer_name(name, getattr(layer, name)))
