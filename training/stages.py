# SPDX-License-Identifier: Apache-2.0
"""The stages of a network: a layer of weights each, with what follows it up to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from systola.training.curves import CURVES
from systola.training.errors import TrainingError
from systola.training.layer_base import pair
from systola.training.layers import (
    LSTM,
    Activation,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalPooling,
    Input,
    Layer,
    Pooling1D,
    Pooling2D,
    Rescaling,
)
from systola.training.windows import Window, convolved, pooled

MOST_STAGES = 5
"""The inputs of all but the first have an exponent register each, 4 to 7."""
MOST_CLASSES = 128
MOST_WEIGHTS = 1 << 26
"""Weights of a network at most: the host holds them as float64 for a moment, in 512 MiB."""
_MOST_POOL, _MOST_MEAN = 15, 255
"""Rows and columns of a window of a pooling at most; of a mean over a whole map."""
MOST_LSTMS = 2
"""LSTMs at most, one right after the other: each has an exponent register of its own."""
MOST_STEPS = 1 << 12
"""Steps of an LSTM at most."""
GATES = (0, 1, 3, 2)
"""Where the gates of Keras, i f g o, stand here: those with a sigmoid side by side."""
BIAS_LESS = 4
"""Fraction bits that the biases of an LSTM have less than its other weights: they begin at one."""


_NO_LAST = "after an LSTM with return_sequences there must be LSTM"


@dataclass(frozen=True)
class Tensor:
    """Weights that have one exponent: a kernel, and a row of biases where there are some."""

    inputs: int
    units: int
    groups: int = 1
    """Equal parts of the inputs, each in blocks of its own: taps, or pixels of a flattened map."""
    order: tuple[int, ...] = (0,)
    """Equal parts of the units, each in blocks of its own: the place of each."""
    biased: bool = True
    bias_less: int = 0
    """Fraction bits that the biases have less."""


@dataclass(frozen=True)
class Recurrence:
    """An LSTM of `units` over `steps`, its inputs words where there is a vocabulary.

    It gives its last state, or with `sequences` all of them.
    """

    steps: int
    units: int
    vocabulary: int = 0
    sequences: bool = False


@dataclass(frozen=True)
class Stage:
    """One Dense, Conv2D or LSTM: `units` sums of `inputs` numbers and a one for the bias."""

    inputs: int
    units: int
    relu: bool = False
    softmax: bool = False
    sigmoid: bool = False
    curve: str = ""
    """The name in CURVES of the activation of a stage that is not the last one; empty: none."""
    use_bias: bool = True
    """Whether biases are learnt; else their masters are there, and stay zero."""
    initializers: tuple[str, ...] = ("glorot_uniform", "zeros")
    """The names of fresh weights: of the kernel and of the biases; of an LSTM those of kernel,
    recurrent kernel and embeddings."""
    rate: float = 0.0
    """Of the dropout after it; 0: none."""
    groups: int = 1
    """Equal parts of the inputs, each in blocks of its own: taps, or pixels of a flattened map."""
    window: Window | None = None
    """Of a Conv2D; the units are channels then."""
    pool: Window | None = None
    """Of the pooling after it."""
    average: bool = False
    """Whether the pooling takes means: else it takes the largest."""
    row: bool = False
    """Whether it is a Conv1D: its maps have the height 1."""
    depthwise: bool = False
    """Whether it is a DepthwiseConv2D: each unit is a channel of the inputs, which are taps."""
    lstm: Recurrence | None = None
    """Of an LSTM; the inputs are those of a step then, the units those of all gates."""

    @property
    def tensor(self) -> Tensor:
        """Its kernel and biases; of an LSTM those for the inputs."""
        if self.lstm:
            return Tensor(self.inputs, self.units, order=GATES, bias_less=BIAS_LESS)
        return Tensor(self.inputs, self.units, self.groups)

    @property
    def activated(self) -> bool:
        """Whether it has an activation."""
        return self.relu or self.softmax or self.sigmoid or bool(self.curve)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """As Keras has it."""
        if self.window is None:
            return self.inputs, self.units
        if self.depthwise:
            return *self.window.kernel, self.units, 1
        return *self.window.kernel[self.row :], self.channels, self.units

    @property
    def channels(self) -> int:
        """Channels of the maps that it takes; of a Dense its inputs."""
        if self.depthwise:
            return self.units
        return self.inputs // (self.window.taps if self.window else 1)

    @property
    def counted(self) -> tuple[int, int]:
        """Inputs of a unit, and units that an input is in, as Glorot counts them."""
        taps = self.window.taps if self.window else 1
        return (taps * self.units, taps) if self.depthwise else (self.inputs, self.units * taps)

    @property
    def map(self) -> tuple[int, int]:
        """Height and width of what a Conv2D leaves for the next stage."""
        last = self.pool or self.window
        return last.out if last else (1, 1)


def tensors(stages: Sequence[Stage]) -> tuple[Tensor, ...]:
    """All that is learnt: a tensor for each stage, then the others of each LSTM."""
    others = [each for stage in stages for each in _others(stage)]
    return (*(stage.tensor for stage in stages), *others)


RECURRENT, EMBEDDING = 0, 1
"""The others of an LSTM that is the first stage, counted from the number of stages on."""


def recurrent_tensor(stages: Sequence[Stage], number: int) -> int:
    """Return the number of the tensor with the recurrent kernel of an LSTM."""
    before = sum(len(_others(stage)) for stage in stages[:number])
    return len(stages) + before + RECURRENT


def _others(stage: Stage) -> list[Tensor]:
    if stage.lstm is None:
        return []
    others = [Tensor(stage.lstm.units, stage.units, order=GATES, biased=False)]
    if stage.lstm.vocabulary:
        others.append(Tensor(stage.lstm.vocabulary, stage.inputs, biased=False))
    return others


def stages(layers: Sequence[Layer], features: int | None) -> tuple[Stage, ...]:
    """The stages of `layers` for samples of `features` numbers, where no Input tells.

    Raises TrainingError for layers that the machine does not train.
    """
    builder = _Builder(None if features is None else (features,))
    for number, layer in enumerate(layers):
        if isinstance(layer, Input) and number:
            raise TrainingError("Input must be the first layer")
        builder.add(layer)
    return builder.finish()


class _Builder:
    def __init__(self, shape: tuple[int, ...] | None) -> None:
        self.found: list[Stage] = []
        self._shape = shape
        """Of what the next layer takes."""
        self._rescaled = False
        self._embedding: Embedding | None = None
        """That waits for its LSTM."""

    def add(self, layer: Layer) -> None:
        if self._embedding and not isinstance(layer, LSTM):
            raise TrainingError("after Embedding there must be LSTM")
        if self._sequences and not isinstance(layer, LSTM | Dropout):
            raise TrainingError(f"{_NO_LAST}, not {type(layer).__name__}")
        match layer:
            case Embedding():
                if self._rescaled:
                    raise TrainingError("words cannot be rescaled")
                if self.found or len(self._known()) != 1:
                    raise TrainingError("Embedding must be the first layer, of rows of words")
                self._embedding = layer
            case LSTM():
                self._recurrence(layer)
            case Input(shape=shape):
                self._shape = shape
            case Flatten():
                if self.found and len(self._known()) == 1:
                    raise TrainingError("Flatten must come before the first Dense")
                if self._shape is not None:
                    self._shape = (prod(self._shape),)
            case Rescaling():
                if self.found or self._embedding:
                    raise TrainingError("Rescaling must come before all other layers")
                self._rescaled = True
            case Dense():
                self._dense(layer.units)
                self._weighted(layer)
            case DepthwiseConv2D():
                self._depthwise(layer)
                self._weighted(layer)
            case Conv2D() | Conv1D():
                self._convolution(layer)
                self._weighted(layer)
            case Pooling2D() | Pooling1D() | GlobalPooling():
                self._pooling(layer)
            case Activation(activation=activation):
                last = self._last("an Activation")
                if last.lstm or last.activated or last.rate or last.pool:
                    raise TrainingError(
                        f"Activation '{activation}' must come right after a Dense or Conv2D"
                    )
                self._activate(activation)
            case Dropout(rate=rate):
                last = self._last("Dropout")
                if last.rate:
                    raise TrainingError("one Dropout after the other cannot be trained")
                self._replace(replace(last, rate=rate))
            case _:
                raise TrainingError(f"layer {type(layer).__name__} cannot be trained")

    def _dense(self, units: int) -> None:
        shape, groups = self._known(), 1
        if self.found and self.found[-1].window:
            if len(shape) > 1:
                raise TrainingError("between Conv2D and Dense there must be Flatten")
            groups = prod(self.found[-1].map)
        self.found.append(Stage(prod(shape), units, groups=groups))
        self._shape = (units,)

    def _convolution(self, layer: Conv2D | Conv1D) -> None:
        shape = self._known()
        row = isinstance(layer, Conv1D)
        if isinstance(layer, Conv1D):
            if len(shape) != 2:
                raise TrainingError(f"Conv1D takes steps and channels, not {shape}")
            shape = (1, *shape)
            kernel, strides = (1, layer.kernel_size), (1, layer.strides)
        else:
            if len(shape) != 3:
                raise TrainingError(f"Conv2D takes height, width and channels, not {shape}")
            kernel = pair("kernel_size", layer.kernel_size, 15)
            strides = pair("strides", layer.strides, 2)
        window, filters = convolved(shape[:2], kernel, strides, layer.padding), layer.filters
        taps = window.taps
        self.found.append(Stage(taps * shape[2], filters, groups=taps, window=window, row=row))
        self._shape = (*window.out[row:], filters)

    def _depthwise(self, layer: DepthwiseConv2D) -> None:
        shape = self._known()
        if len(shape) != 3:
            raise TrainingError(f"DepthwiseConv2D takes height, width and channels, not {shape}")
        kernel = pair("kernel_size", layer.kernel_size, 15)
        strides = pair("strides", layer.strides, 2)
        window = convolved(shape[:2], kernel, strides, layer.padding)
        self.found.append(Stage(window.taps, shape[2], window=window, depthwise=True))
        self._shape = (*window.out, shape[2])

    def _pooling(self, layer: Pooling2D | Pooling1D | GlobalPooling) -> None:
        kind = type(layer).__name__
        last, average, row = self._last(kind), "Average" in kind, kind.endswith("1D")
        if not last.window or last.pool or last.rate or last.row != row:
            raise TrainingError(f"{kind} must come after a Conv{2 - row}D, before Dropout")
        if isinstance(layer, GlobalPooling):
            size = strides = last.map
            most = _MOST_MEAN if average else _MOST_POOL
            if max(size) > most:
                raise TrainingError(f"{kind} takes maps of up to {most} x {most}, not {size}")
        elif isinstance(layer, Pooling1D):
            size, strides = (1, layer.pool_size), (1, layer.strides or 1)
        else:
            size = pair("pool_size", layer.pool_size, _MOST_POOL)
            strides = pair("strides", layer.strides, _MOST_POOL)
        pool = pooled(last.map, size, strides)
        self._replace(replace(last, pool=pool, average=average))
        left = () if isinstance(layer, GlobalPooling) else pool.out[row:]
        self._shape = (*left, last.units)

    def _recurrence(self, layer: LSTM) -> None:
        units = layer.units
        words, shape = self._embedding, self._known()
        first = not self.found or self._sequences
        if not first or len(shape) != (1 if words else 2):
            raise TrainingError(
                "LSTM must be the first layer, of steps of some numbers each, or come after "
                f"Embedding, or after an LSTM with return_sequences; it cannot take {shape}"
            )
        if len(self.found) == MOST_LSTMS:
            raise TrainingError(f"up to {MOST_LSTMS} LSTM can be trained")
        self._embedding = None
        vocabulary, sequences = words.input_dim if words else 0, layer.return_sequences
        recurrence = Recurrence(shape[0], units, vocabulary, sequences)
        inputs = words.output_dim if words else shape[1]
        names = [layer.kernel_initializer, layer.recurrent_initializer]
        names += [words.embeddings_initializer] if words else []
        stage = Stage(inputs, len(GATES) * units, lstm=recurrence, use_bias=layer.use_bias)
        self.found.append(replace(stage, initializers=tuple(names)))
        self._shape = (shape[0], units) if sequences else (units,)

    def finish(self) -> tuple[Stage, ...]:
        """The stages, when all layers have been added."""
        if self._embedding:
            raise TrainingError("after Embedding there must be LSTM")
        if self._sequences:
            raise TrainingError(_NO_LAST)
        # A sigmoid at the end is for predict() alone, any other one is a curve.
        for number, stage in enumerate(self.found[:-1]):
            if stage.sigmoid:
                self.found[number] = replace(stage, sigmoid=False, curve="sigmoid")
        _check(self.found)
        return tuple(self.found)

    def _weighted(self, layer: Dense | Conv2D | Conv1D | DepthwiseConv2D) -> None:
        """Take the settings of the weights and sums of the stage that is new."""
        depthwise = isinstance(layer, DepthwiseConv2D)
        kernel = layer.depthwise_initializer if depthwise else layer.kernel_initializer
        names = kernel, layer.bias_initializer
        new = replace(self.found[-1], use_bias=layer.use_bias, initializers=names)
        self._replace(new)
        self._activate(layer.activation)

    def _activate(self, activation: str | None) -> None:
        chosen = {name: activation == name for name in ("relu", "softmax", "sigmoid")}
        curve = activation if activation in CURVES and activation != "sigmoid" else ""
        self._replace(replace(self.found[-1], **chosen, curve=curve))

    @property
    def _sequences(self) -> bool:
        """Whether the last stage gives the states of all steps."""
        lstm = self.found[-1].lstm if self.found else None
        return lstm is not None and lstm.sequences

    def _known(self) -> tuple[int, ...]:
        if self._shape is None:
            raise TrainingError("the shape of a sample is not known: begin with Input")
        return self._shape

    def _last(self, what: str) -> Stage:
        if not self.found:
            raise TrainingError(f"{what} must come after a Dense or Conv2D")
        return self.found[-1]

    def _replace(self, stage: Stage) -> None:
        self.found[-1] = stage


def _check(found: Sequence[Stage]) -> None:
    # What an LSTM keeps has the register that the units of one more would have.
    most = MOST_STAGES - any(stage.lstm for stage in found)
    if not 1 <= len(found) <= most:
        raise TrainingError(
            f"1 to {most} layers of Dense, Conv2D or LSTM can be trained, not {len(found)}"
        )
    if any(stage.softmax for stage in found[:-1]):
        raise TrainingError("softmax belongs to the last layer")
    last = found[-1]
    if last.window or last.lstm or last.relu or last.curve or last.rate:
        raise TrainingError(
            "the last layer must be a Dense, linear, softmax or sigmoid, with no Dropout after it"
        )
    count = sum((tensor.inputs + tensor.biased) * tensor.units for tensor in tensors(found))
    if count > MOST_WEIGHTS:
        raise TrainingError(f"{count:,} weights are too many: {MOST_WEIGHTS:,} can be trained")
    if found[0].lstm and found[0].lstm.steps > MOST_STEPS:
        raise TrainingError(f"an LSTM can have {MOST_STEPS:,} steps, not {found[0].lstm.steps:,}")
    if last.units > MOST_CLASSES:
        raise TrainingError(f"the last Dense has at most {MOST_CLASSES} units, not {last.units}")
