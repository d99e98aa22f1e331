# SPDX-License-Identifier: Apache-2.0
"""Layers as the user writes them, with Keras's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import ClassVar

from systola.training.arguments import Only, constructor
from systola.training.checks import flag, is_name, real, shown, whole
from systola.training.curves import CURVES
from systola.training.errors import TrainingError
from systola.training.joining_layers import Add, Concatenate, From
from systola.training.layer_base import (
    KERNEL,
    LAYER,
    MAPS,
    MOST_NUMBERS,
    NO_CONSTRAINT,
    NO_REGULARISER,
    Computing,
    Named,
    Pair,
    keep_initializers,
    keep_size,
    need,
    pair,
    shape_of,
    single,
)
from systola.training.recurrent_layers import GRU, LSTM

ACTIVATIONS = ("linear", "relu", "softmax", *CURVES)
_MOST_SCALE = 1e9
"""Largest magnitude of `scale` and `offset` of a Rescaling."""
_LEAST_EPSILON = 1e-6


@constructor(**LAYER, sparse=Only((None, False)), ragged=Only((None, False)))
@dataclass(frozen=True)
class Input(Named):
    """A layer that gives the shape of a sample, of up to MOST_NUMBERS values."""

    shape: tuple[int, ...]

    begins: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", shape_of("Input", self.shape))


@constructor(**LAYER, data_format=MAPS)
@dataclass(frozen=True)
class Flatten(Computing):
    """A layer that flattens each sample, or map, to a row of numbers."""


@constructor(**LAYER)
@dataclass(frozen=True)
class Rescaling(Computing):
    """A layer that multiplies all numbers of the samples by `scale` and adds `offset`.

    The host computes this layer, before all other layers.
    """

    scale: float
    offset: float = 0.0

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        for name in ("scale", "offset"):
            value = real(f"{name} of Rescaling", getattr(self, name))
            need(abs(value) <= _MOST_SCALE, f"{name} of Rescaling is too large: {value}")
            object.__setattr__(self, name, value)


@constructor(**LAYER, **KERNEL)
@dataclass(frozen=True)
class Dense(Computing):
    """A layer of `units` weighted sums of all its inputs, each with a bias, and an activation."""

    units: int
    activation: str | None = None
    use_bias: bool = True
    kernel_initializer: str = "glorot_uniform"
    bias_initializer: str = "zeros"

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        keep_size(self, "units")
        check_activation(self.activation)
        _keep_weights(self)


@constructor(
    **LAYER,
    **KERNEL,
    data_format=MAPS,
    dilation_rate=Only(((1, 1), 1), "kernels have no holes"),
    groups=Only((1,), "a Conv2D has one group"),
)
@dataclass(frozen=True)
class Conv2D(Computing):
    """A convolution: sums of the windows of a map times `filters` kernels, each with a bias.

    A map is height x width x channels. `kernel_size` and `strides` are numbers or pairs, kept as
    pairs; strides are 1 or 2.
    """

    filters: int
    kernel_size: int | Pair
    strides: int | Pair = 1
    padding: str = "valid"
    activation: str | None = None
    _: KW_ONLY
    use_bias: bool = True
    kernel_initializer: str = "glorot_uniform"
    bias_initializer: str = "zeros"

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        _keep_kernel(self, pair)


@constructor(
    **LAYER,
    **KERNEL,
    data_format=MAPS,
    dilation_rate=Only(((1, 1), 1), "kernels have no holes"),
    depth_multiplier=Only((1,), "a channel has one kernel"),
    depthwise_regularizer=NO_REGULARISER,
    depthwise_constraint=NO_CONSTRAINT,
)
@dataclass(frozen=True)
class DepthwiseConv2D(Computing):
    """A convolution with one kernel, and one bias, for each channel of a map.

    The result has as many channels as the map.
    """

    kernel_size: int | Pair
    strides: int | Pair = 1
    padding: str = "valid"
    _: KW_ONLY
    activation: str | None = None
    use_bias: bool = True
    depthwise_initializer: str = "glorot_uniform"
    bias_initializer: str = "zeros"

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        _keep_windows(self, pair)
        object.__setattr__(self, "use_bias", flag("use_bias", self.use_bias))
        keep_initializers(self, "depthwise_initializer", "bias_initializer")


@constructor(
    **LAYER,
    **KERNEL,
    data_format=MAPS,
    dilation_rate=Only((1, (1,)), "kernels have no holes"),
    groups=Only((1,), "a Conv1D has one group"),
)
@dataclass(frozen=True)
class Conv1D(Computing):
    """A convolution of rows, steps x channels: windows of a row times kernels, as a Conv2D of
    height 1.
    """

    filters: int
    kernel_size: int
    strides: int = 1
    padding: str = "valid"
    activation: str | None = None
    _: KW_ONLY
    use_bias: bool = True
    kernel_initializer: str = "glorot_uniform"
    bias_initializer: str = "zeros"

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        _keep_kernel(self, single)


@dataclass(frozen=True)
class Pooling2D(Computing):
    """A base of the layers that pool windows of maps.

    `strides` default to the size of the window. `padding` is "valid".
    """

    pool_size: int | Pair = 2
    strides: int | Pair | None = None
    padding: InitVar[str] = "valid"

    def __post_init__(self, input_shape: tuple[int, ...] | None, padding: str) -> None:
        super().__post_init__(input_shape)
        size = pair("pool_size", self.pool_size, 15)
        strides = size if self.strides is None else pair("strides", self.strides, 15)
        object.__setattr__(self, "strides", strides)
        need(
            is_name(padding, ("valid",)),
            f"{type(self).__name__} has the padding valid, not {shown(padding)}",
        )
        object.__setattr__(self, "pool_size", size)


@constructor(**LAYER, data_format=MAPS)
@dataclass(frozen=True)
class MaxPooling2D(Pooling2D):
    """A layer that takes the largest number of each window of a map."""


@constructor(**LAYER, data_format=MAPS)
@dataclass(frozen=True)
class AveragePooling2D(Pooling2D):
    """A layer that takes the mean of each window of a map."""


@dataclass(frozen=True)
class Pooling1D(Computing):
    """A base of the layers that pool windows of rows of steps; the arguments are single numbers."""

    pool_size: int = 2
    strides: int | None = None
    padding: InitVar[str] = "valid"

    def __post_init__(self, input_shape: tuple[int, ...] | None, padding: str) -> None:
        super().__post_init__(input_shape)
        size, kind = single("pool_size", self.pool_size, 15), type(self).__name__
        strides = size if self.strides is None else single("strides", self.strides, 15)
        object.__setattr__(self, "strides", strides)
        need(is_name(padding, ("valid",)), f"{kind} has the padding valid, not {shown(padding)}")
        object.__setattr__(self, "pool_size", size)


@constructor(**LAYER, data_format=MAPS)
@dataclass(frozen=True)
class MaxPooling1D(Pooling1D):
    """A layer that takes the largest number of each window of a row."""


@constructor(**LAYER, data_format=MAPS)
@dataclass(frozen=True)
class AveragePooling1D(Pooling1D):
    """A layer that takes the mean of each window of a row."""


_GLOBAL = {"data_format": MAPS, "keepdims": Only((False,), "the result is a row of channels")}


@dataclass(frozen=True)
class GlobalPooling(Computing):
    """A base of the layers that pool whole maps or rows to one number for each channel."""


@constructor(**LAYER, **_GLOBAL)
@dataclass(frozen=True)
class GlobalMaxPooling2D(GlobalPooling):
    """A layer that takes the largest number of each channel of a map of up to 15 x 15."""


@constructor(**LAYER, **_GLOBAL)
@dataclass(frozen=True)
class GlobalAveragePooling2D(GlobalPooling):
    """A layer that takes the mean of each channel of a map."""


@constructor(**LAYER, **_GLOBAL)
@dataclass(frozen=True)
class GlobalMaxPooling1D(GlobalPooling):
    """A layer that takes the largest number of each channel of a row of up to 15 steps."""


@constructor(**LAYER, **_GLOBAL)
@dataclass(frozen=True)
class GlobalAveragePooling1D(GlobalPooling):
    """A layer that takes the mean of each channel of a row of steps."""


@constructor(**LAYER)
@dataclass(frozen=True)
class Activation(Computing):
    """An activation as a layer of its own, which follows a Dense or Conv2D."""

    activation: str

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        need(self.activation is not None, "Activation needs the name of an activation")  # type: ignore[reportUnnecessaryComparison]
        check_activation(self.activation)


@constructor(
    **LAYER,
    negative_slope=Only((0.0, 0), "relu is 0 below 0"),
    threshold=Only((0.0, 0), "relu begins at 0"),
)
class ReLU(Activation):
    """A layer of max(x, 0), after a Dense or Conv2D.

    `max_value`, the largest result, may be 6 or None.
    """

    def __init__(self, max_value: float | None = None, *, name: str | None = None) -> None:
        if max_value is not None and real("max_value", max_value) != 6:
            raise TrainingError(f"max_value must be 6 or None, not {shown(max_value)}")
        super().__init__("relu" if max_value is None else "relu6", name=name)


@constructor(
    **LAYER,
    noise_shape=Only((None,), "each number has a mask of its own"),
    seed=Only((None,), "compile() takes the seed of all masks"),
)
@dataclass(frozen=True)
class Dropout(Computing):
    """A layer that in training sets a random fraction `rate` of its inputs to zero and scales
    others up.
    """

    rate: float

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        rate = real("the rate of Dropout", self.rate)
        need(0 <= rate <= 0.99, f"Dropout needs a rate from 0 to 0.99, not {rate}")
        object.__setattr__(self, "rate", rate)


_GAMMA = "gamma and beta begin as ones and zeros: set_weights() gives others"


@constructor(
    **{name: rule for name, rule in LAYER.items() if name != "trainable"},
    **{f"{name}_regularizer": NO_REGULARISER for name in ("beta", "gamma")},
    **{f"{name}_constraint": NO_CONSTRAINT for name in ("beta", "gamma")},
    **dict.fromkeys(("beta_initializer", "moving_mean_initializer"), Only(("zeros",), _GAMMA)),
    **dict.fromkeys(("gamma_initializer", "moving_variance_initializer"), Only(("ones",), _GAMMA)),
    center=Only((True,), "beta is learnt"),
    scale=Only((True,), "gamma is learnt"),
    synchronized=Only((False, True), "all cores have the statistics of the whole batch"),
    renorm=Only((False,)),
)
@dataclass(frozen=True)
class BatchNormalization(Computing):
    """A layer that normalises each channel of a batch to the mean beta and the deviation gamma.

    A training step takes the means and variances of its batch. It also updates moving means and
    variances, which keep the part `momentum` of their old values. Tests and predictions take the
    moving numbers. A layer that is not `trainable` takes the moving numbers in training, too, and
    learns nothing.
    """

    axis: int = -1
    momentum: float = 0.99
    epsilon: float = 1e-3
    _: KW_ONLY
    trainable: bool = True

    def __post_init__(self, input_shape: tuple[int, ...] | None) -> None:
        super().__post_init__(input_shape)
        need(type(self.axis) is int and -1 <= self.axis <= 3, "axis must be -1: channels are last")
        object.__setattr__(self, "trainable", flag("trainable", self.trainable))
        for name, least, most in (("momentum", 0.0, 1.0), ("epsilon", _LEAST_EPSILON, 1.0)):
            value = real(f"{name} of BatchNormalization", getattr(self, name))
            need(least <= value <= most, f"{name} must be {least:g} to {most:g}, not {value:g}")
            object.__setattr__(self, name, value)

    def check_axis(self, dimensions: int) -> None:
        """Raise TrainingError if the axis is not the last of `dimensions` axes of samples."""
        need(self.axis in (-1, dimensions), f"axis must be -1, not {self.axis}: channels are last")


@constructor(
    **LAYER,
    embeddings_regularizer=NO_REGULARISER,
    embeddings_constraint=NO_CONSTRAINT,
    mask_zero=Only((False,), "word 0 is one like any other"),
    weights=Only((None,), "set_weights() gives weights"),
    lora_rank=Only((None,)),
    quantization_config=Only((None,)),
)
@dataclass(frozen=True)
class Embedding(Computing):
    """A layer that replaces each word by a row of `output_dim` numbers, which are learnt.

    A word is a whole number from 0 to `input_dim` - 1. `input_length`, the words of a sample, is
    the same as an `input_shape` of one size.
    """

    input_dim: int
    output_dim: int
    _: KW_ONLY
    embeddings_initializer: str = "uniform"
    input_length: InitVar[int | None] = None

    def __post_init__(self, input_shape: tuple[int, ...] | None, input_length: int | None) -> None:
        if input_length is not None:
            need(input_shape is None, "give input_length or input_shape, not both")
            input_shape = (whole("input_length", input_length, 1, MOST_NUMBERS),)
        super().__post_init__(input_shape)
        for name in ("input_dim", "output_dim"):
            keep_size(self, name)
        keep_initializers(self, "embeddings_initializer")


Layer = (
    Input
    | Flatten
    | Rescaling
    | Dense
    | Conv2D
    | Conv1D
    | DepthwiseConv2D
    | MaxPooling2D
    | AveragePooling2D
    | MaxPooling1D
    | AveragePooling1D
    | GlobalMaxPooling2D
    | GlobalAveragePooling2D
    | GlobalMaxPooling1D
    | GlobalAveragePooling1D
    | Activation
    | BatchNormalization
    | Dropout
    | Embedding
    | LSTM
    | GRU
    | Add
    | Concatenate
    | From
)


def check_activation(name: str | None) -> None:
    """Raise TrainingError for an activation that cannot be trained."""
    need(
        name is None or is_name(name, ACTIVATIONS),
        f"activation {shown(name)} cannot be trained (known: {', '.join(ACTIVATIONS)})",
    )


def _keep_kernel(layer: Conv2D | Conv1D, size: Callable[[str, object, int], int | Pair]) -> None:
    """Check and store the settings of a convolution.

    `size` is a function that checks and returns the size of a window.
    """
    keep_size(layer, "filters")
    _keep_windows(layer, size)
    _keep_weights(layer)


def _keep_windows(
    layer: Conv2D | Conv1D | DepthwiseConv2D, size: Callable[[str, object, int], int | Pair]
) -> None:
    need(
        is_name(layer.padding, ("valid", "same")),
        f"padding must be valid or same, not {shown(layer.padding)}",
    )
    object.__setattr__(layer, "kernel_size", size("kernel_size", layer.kernel_size, 15))
    object.__setattr__(layer, "strides", size("strides", layer.strides, 2))
    check_activation(layer.activation)


def _keep_weights(layer: Dense | Conv2D | Conv1D) -> None:
    """Check the flag for biases and the initialisers; store their names from initializers.NAMES."""
    object.__setattr__(layer, "use_bias", flag("use_bias", layer.use_bias))
    keep_initializers(layer, "kernel_initializer", "bias_initializer")
