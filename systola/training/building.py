# SPDX-License-Identifier: Apache-2.0
"""Makes the stages of a network from its layers, and refuses networks that cannot be trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from systola.training.curves import CURVES
from systola.training.errors import TrainingError
from systola.training.joining_layers import Add, Concatenate, From
from systola.training.layer_base import need, pair
from systola.training.layers import (
    GRU,
    LSTM,
    Activation,
    BatchNormalization,
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
from systola.training.recurrent_layers import Recurring
from systola.training.stages import (
    Normalization,
    Recurrence,
    Stage,
    branched,
    takes,
    tensors,
)
from systola.training.windows import convolved, pooled

MOST_BRANCHED = 15
"""Largest number of stages of a network with branches, joins included. The counter that draws
random bytes has four bits for the number of a stage, and number 15 is for random rounding."""
MOST_CLASSES = 128
MOST_WEIGHTS = 1 << 26
"""Largest number of weights of a network. For a moment the host holds all weights as float64, in
512 MiB."""
_MOST_POOL, _MOST_MEAN = 15, 255
"""Largest height and width of the window of a pooling, and of a map of which a single mean is
taken."""
MOST_STEPS = 1 << 12
"""Largest number of steps in time of an LSTM or GRU."""
_NO_LAST = "after return_sequences there must be LSTM or GRU"


def stages(layers: Sequence[Layer], features: int | None) -> tuple[Stage, ...]:
    """Return the stages that `layers` make.

    `features`: the number of numbers of a sample, if there is no Input. Raises TrainingError for
    layers that the machine does not train.
    """
    builder = _Builder(None if features is None else (features,), layers)
    for number, layer in enumerate(layers):
        if isinstance(layer, Input) and number:
            raise TrainingError("Input must be the first layer")
        builder.add(layer)
    return builder.finish()


class _Builder:
    def __init__(self, shape: tuple[int, ...] | None, layers: Sequence[Layer]) -> None:
        self.found: list[Stage] = []
        self._shape = shape
        """The shape of the result that the next layer takes; None if it is not known."""
        self._at = 0
        """The number of the result that the next layer takes, counted as in Stage.sources."""
        self._results: list[tuple[int, tuple[int, ...] | None]] = []
        """The number and the shape of the result of each layer that has been added."""
        self._users = Counter(
            link for number in range(len(layers)) for link in _links(layers, number)
        )
        """Number of layers that take the result of a layer, by the number of that layer."""
        self._rescaled = False
        self._embedding: Embedding | None = None
        """The Embedding that still waits for its LSTM or GRU; None if there is none."""

    def add(self, layer: Layer) -> None:
        """Add a layer, which takes the result of the layer before, or the results of the layers
        that it names.
        """
        self._add(layer)
        self._results.append((self._at, self._shape))

    def _add(self, layer: Layer) -> None:
        if self._embedding and not isinstance(layer, Recurring):
            raise TrainingError("after Embedding there must be LSTM or GRU")
        if self._sequences and not isinstance(layer, Recurring | Dropout):
            raise TrainingError(f"{_NO_LAST}, not {type(layer).__name__}")
        match layer:
            case Embedding():
                if self._rescaled:
                    raise TrainingError("words cannot be rescaled")
                if self.found or len(self._known()) != 1:
                    raise TrainingError("Embedding must be the first layer, of rows of words")
                self._embedding = layer
            case LSTM() | GRU():
                self._recurrence(layer)
            case Input(shape=shape):
                self._shape = shape
            case From(layer=link):
                self._at, self._shape = self._result(link)
            case Add() | Concatenate():
                self._join(layer)
            case BatchNormalization():
                self._normalized(layer)
            case Flatten():
                if self._at and len(self._known()) == 1:
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
                if last.join and activation not in ("relu", "linear"):
                    raise TrainingError(
                        f"Activation '{activation}' cannot follow Add or Concatenate: relu can, or "
                        "a Dense between them"
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
        shape, groups, source = self._known(), 1, self._source
        if source and source.maps:
            if len(shape) > 1:
                raise TrainingError("between Conv2D and Dense there must be Flatten")
            groups = prod(source.map)
        self._append(Stage(prod(shape), units, groups=groups, segments=self._segments))
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
        taps, parts = window.taps, self._segments
        stage = Stage(taps * shape[2], filters, groups=taps, window=window, row=row, segments=parts)
        self._append(stage)
        self._shape = (*window.out[row:], filters)

    def _depthwise(self, layer: DepthwiseConv2D) -> None:
        shape = self._known()
        if len(shape) != 3:
            raise TrainingError(f"DepthwiseConv2D takes height, width and channels, not {shape}")
        kernel = pair("kernel_size", layer.kernel_size, 15)
        strides = pair("strides", layer.strides, 2)
        window = convolved(shape[:2], kernel, strides, layer.padding)
        if self._segments:
            raise TrainingError(
                "DepthwiseConv2D cannot follow Concatenate: take a Conv2D of size 1 between them"
            )
        self._append(Stage(window.taps, shape[2], window=window, depthwise=True))
        self._shape = (*window.out, shape[2])

    def _pooling(self, layer: Pooling2D | Pooling1D | GlobalPooling) -> None:
        kind = type(layer).__name__
        if len(self._known()) == 1:
            raise TrainingError(f"{kind} takes maps, not rows of numbers")
        last, average, row = self._last(kind), "Average" in kind, kind.endswith("1D")
        if last.join:
            raise TrainingError(
                f"{kind} must come right after a Conv{2 - row}D whose map goes nowhere else: take "
                "one of size 1 before it"
            )
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

    def _recurrence(self, layer: LSTM | GRU) -> None:
        units = layer.units
        words, shape = self._embedding, self._known()
        first = not self.found or self._sequences
        if not first or len(shape) != (1 if words else 2):
            raise TrainingError(
                f"{type(layer).__name__} must be the first layer, of steps of some numbers "
                f"each, or come after Embedding, or an LSTM or GRU with "
                f"return_sequences; it cannot take {shape}"
            )
        self._embedding = None
        vocabulary, sequences = words.input_dim if words else 0, layer.return_sequences
        gru = isinstance(layer, GRU)
        recurrence = Recurrence(shape[0], units, vocabulary, sequences, gru)
        inputs = words.output_dim if words else shape[1]
        names = [layer.kernel_initializer, layer.recurrent_initializer]
        names += [words.embeddings_initializer] if words else []
        stage = Stage(
            inputs, len(recurrence.order) * units, lstm=recurrence, use_bias=layer.use_bias
        )
        self._append(replace(stage, initializers=tuple(names)))
        self._shape = (shape[0], units) if sequences else (units,)

    def finish(self) -> tuple[Stage, ...]:
        """Return the stages of the network, when all layers have been added."""
        if self._embedding:
            raise TrainingError("after Embedding there must be LSTM or GRU")
        if self._sequences:
            raise TrainingError(_NO_LAST)
        # A sigmoid at the end is applied by predict() alone; any other sigmoid is a curve (a
        # table).
        for number, stage in enumerate(self.found[:-1]):
            if stage.sigmoid:
                self.found[number] = replace(stage, sigmoid=False, curve="sigmoid")
        _check(self.found)
        return tuple(self.found)

    def _weighted(self, layer: Dense | Conv2D | Conv1D | DepthwiseConv2D) -> None:
        """Give the stage that was added last the initialisers, biases and activation of its
        layer.
        """
        depthwise = isinstance(layer, DepthwiseConv2D)
        kernel = layer.depthwise_initializer if depthwise else layer.kernel_initializer
        names = kernel, layer.bias_initializer
        new = replace(self.found[self._at - 1], use_bias=layer.use_bias, initializers=names)
        self._replace(new)
        self._activate(layer.activation)

    def _activate(self, activation: str | None) -> None:
        chosen = {name: activation == name for name in ("relu", "softmax", "sigmoid")}
        curve = activation if activation in CURVES and activation != "sigmoid" else ""
        self._replace(replace(self.found[self._at - 1], **chosen, curve=curve))

    @property
    def _sequences(self) -> bool:
        """Whether the last stage gives the states of all steps, not the last state alone."""
        lstm = self.found[-1].lstm if self.found else None
        return lstm is not None and lstm.sequences

    def _known(self) -> tuple[int, ...]:
        if self._shape is None:
            raise TrainingError("the shape of a sample is not known: begin with Input")
        return self._shape

    def _last(self, what: str) -> Stage:
        """Return the stage that made the present result, for a layer such as a pooling to change
        this stage.

        If other layers take that result, too, the returned stage is a new one that copies the
        result.
        """
        if not self._at:
            raise TrainingError(f"{what} must come after a Dense or Conv2D")
        own = [n for n, (at, _) in enumerate(self._results) if at == self._at]
        if any(self._users[number] > 1 for number in own):
            # Other layers take the result without the change, so only a copy is changed.
            self._append_join("add", [(self._at, self._known())])
        return self.found[self._at - 1]

    def _replace(self, stage: Stage) -> None:
        self.found[self._at - 1] = stage

    def _append(self, stage: Stage) -> None:
        """Append a stage, which takes the present result if its `sources` are empty."""
        if not stage.sources and self._at != len(self.found):
            stage = replace(stage, sources=(self._at,))
        self.found.append(stage)
        self._at = len(self.found)

    @property
    def _source(self) -> Stage | None:
        """The stage that made the present result; None if the result is the samples."""
        return self.found[self._at - 1] if self._at else None

    @property
    def _segments(self) -> tuple[int, ...]:
        """Numbers of channels of the parts that a Concatenate has put side by side in the present
        result; no numbers if there is one part.
        """
        source = self._source
        parts = source.segments if source and source.join else ()
        return parts if len(parts) > 1 else ()

    def _result(self, link: int) -> tuple[int, tuple[int, ...]]:
        """Return the result of layer number `link`: its number, counted as in Stage.sources, and
        its shape.
        """
        if link >= len(self._results):
            raise TrainingError(f"there is no layer {link} to take a result of")
        at, shape = self._results[link]
        if shape is None:
            raise TrainingError("the shape of a sample is not known: begin with Input")
        return at, shape

    def _join(self, layer: Add | Concatenate) -> None:
        kind, results = type(layer).__name__, [self._result(link) for link in layer.sources]
        if len(results) < 2:
            raise TrainingError(f"{kind} takes at least two results: Model is for branches")
        shapes = [shape for _, shape in results]
        if isinstance(layer, Concatenate):
            layer.check_axis(len(shapes[0]))
            shapes = [shape[:-1] for shape in shapes]
        if any(shape != shapes[0] for shape in shapes):
            given = " and ".join(str(shape) for _, shape in results[:4])
            raise TrainingError(f"{kind} takes results of one shape, not {given}")
        self._append_join(kind.lower(), results)

    def _normalized(self, layer: BatchNormalization) -> None:
        """Append the two stages of a BatchNormalization, see systola.training.normalization."""
        shape, source = self._known(), self._source
        if source is None or source.lstm:
            raise TrainingError(
                "BatchNormalization must come after a Dense or Conv2D: Rescaling is for samples"
            )
        parts = self._parts(self._at, shape)
        if len(parts) > 1:
            raise TrainingError(
                "BatchNormalization cannot take the result of a Concatenate, or flattened maps: "
                "put it before them"
            )
        layer.check_axis(len(shape))
        height, width = shape[:2] if len(shape) == 3 else (1, shape[0] if len(shape) == 2 else 1)
        size, units, row = (height, width), shape[-1], len(shape) == 2
        frozen = not layer.trainable
        settings = Normalization(layer.momentum, layer.epsilon, frozen)
        first = Stage(0, units, join="normalize", sources=(self._at,), segments=parts, joined=size)
        self._append(replace(first, row=row, use_bias=False, normalized=settings))
        window = convolved(size, (1, 1), (1, 1), "valid")
        second = Stage(1, units, window=window, depthwise=True, row=row, scales=True, frozen=frozen)
        self._append(replace(second, initializers=("ones", "zeros")))

    def _append_join(self, kind: str, results: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """Append an Add or Concatenate of some results; `results` has the number and the shape of
        each.
        """
        parts = [self._parts(at, shape) for at, shape in results]
        first = parts[0]
        if kind == "add" and any(each != first for each in parts):
            raise TrainingError(
                "Add takes results with the same parts: Concatenate has put one of them together, "
                "so take a Dense or Conv2D between them"
            )
        segments = tuple(size for each in parts for size in each) if kind != "add" else first
        shape, joined = results[0][1], None
        if len(shape) > 1:
            height, width = shape[:-1] if len(shape) == 3 else (1, shape[0])
            joined = height, width
        numbers = tuple(at for at, _ in results)
        stage = Stage(0, sum(segments), join=kind, sources=numbers, segments=segments)
        row = len(shape) == 2
        self._append(replace(stage, joined=joined, row=row, use_bias=False))
        self._shape = (*shape[:-1], sum(segments))

    def _parts(self, at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of channels of the parts of a result, each of which has blocks of its
        own.
        """
        if not at:
            return shape[-1:]
        source = self.found[at - 1]
        if source.lstm:
            return (source.lstm.units,)
        pixels = prod(source.map) if len(shape) == 1 else 1
        return (source.segments if source.join else (source.units,)) * pixels


def _links(layers: Sequence[Layer], number: int) -> tuple[int, ...]:
    """Return the numbers of the layers from which a layer takes results."""
    layer = layers[number]
    if isinstance(layer, Add | Concatenate):
        return layer.sources
    if isinstance(layer, From) or not number:
        return ()
    before = layers[number - 1]
    return (before.layer if isinstance(before, From) else number - 1,)


def _check_branches(found: Sequence[Stage]) -> None:
    """Raise TrainingError for a network with branches that cannot be trained."""
    need(
        len(found) <= MOST_BRANCHED,
        f"1 to {MOST_BRANCHED} layers, Add and Concatenate included, can be trained in a network "
        f"with branches, not {len(found)}",
    )
    first = found[0]
    need(not first.join, "the first layer must be a Dense or Conv2D")
    used = {at for number in range(len(found)) for at in takes(found, number)}
    need(used >= set(range(1, len(found))), "a layer has a result that no other layer takes")
    of_steps = {0} if first.lstm else set[int]()
    of_steps |= {n for n, stage in enumerate(found, 1) if stage.lstm and stage.lstm.sequences}
    need(
        of_steps.isdisjoint(at for stage in found for at in stage.sources),
        "only one LSTM or GRU can take what has steps: other layers can take its last state",
    )
    for stage in found:
        if 0 in stage.sources and (stage.maps if stage.join else bool(stage.window)) != bool(
            first.window
        ):
            raise TrainingError(
                "samples go into Conv2D as maps or into Dense as rows, not both: take a Conv2D "
                "of size 1 first"
            )


def _check(found: Sequence[Stage]) -> None:
    if branched(found):
        _check_branches(found)
    need(
        bool(found),
        f"1 to {MOST_BRANCHED} layers of Dense, Conv2D, LSTM or GRU can be trained, not 0",
    )
    if found[0].lstm and found[0].lstm.steps > MOST_STEPS:
        raise TrainingError(f"an LSTM can have {MOST_STEPS:,} steps, not {found[0].lstm.steps:,}")
    _check_last(found)


def _check_last(found: Sequence[Stage]) -> None:
    """Raise TrainingError for a last stage that cannot be trained, or for too many weights."""
    if any(stage.softmax for stage in found[:-1]):
        raise TrainingError("softmax belongs to the last layer")
    last = found[-1]
    if last.window or last.lstm or last.join or last.relu or last.curve or last.rate:
        raise TrainingError(
            "the last layer must be a Dense, linear, softmax or sigmoid, with no Dropout after it"
        )
    count = sum((tensor.inputs + tensor.biased) * tensor.units for tensor in tensors(found))
    if count > MOST_WEIGHTS:
        raise TrainingError(f"{count:,} weights are too many: {MOST_WEIGHTS:,} can be trained")
    if last.units > MOST_CLASSES:
        raise TrainingError(f"the last Dense has at most {MOST_CLASSES} units, not {last.units}")
