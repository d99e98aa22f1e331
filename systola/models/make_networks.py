# SPDX-License-Identifier: Apache-2.0
"""A script that makes the networks of NETWORKS: it trains them, converts them, and writes samples.

The outputs of the samples are written, too. It needs the extra `models` of pyproject.toml; the
project itself needs none of it. Run it as `python -m systola.models.make_networks [NAME ...]`.
Without names it makes all networks, in some minutes. It writes into its own folder. All random
numbers come from seeds. On another processor or with another version of TensorFlow the trained
weights differ in their last digits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from keras import layers
from numpy.typing import NDArray

from systola.models import training_data as data

HERE = Path(__file__).parent
TEST_SAMPLES = 300
CALIBRATION_SAMPLES = 200
STORED_SAMPLES = 8
"""Samples of test data in an .npz file, which are followed by half as many samples of noise."""
MOMENTUM = 0.9
"""Momentum of batch normalisation: its averages settle within the few steps of the training."""


@dataclass(frozen=True)
class Recipe:
    """A description of the steps that make a network."""

    build: Callable[[], Any]
    """Function that makes the untrained Keras model, which ends in probabilities."""
    samples: Callable[[int, int], data.Samples]
    """Function that makes the data, from a count and a seed."""
    training_samples: int
    epochs: int
    rate: float = 2e-3
    """Highest rate of learning."""
    float_io: bool = False
    """Whether inputs and outputs of the converted network are float32."""


def ds_cnn() -> Any:
    """Build the keyword-spotting network of MLPerf Tiny: a convolution, four depthwise-separable
    blocks.
    """
    sound = layers.Input((49, 10, 1))
    x = _normalised(layers.Conv2D(64, (10, 4), 2, "same", use_bias=False)(sound))
    for _ in range(4):
        x = _separable(x, 64, 1)
    x = layers.AveragePooling2D(x.shape[1:3])(x)
    x = layers.Flatten()(x)
    return keras.Model(sound, layers.Dense(data.KEYWORDS, "softmax")(x))


def mobilenet_v1() -> Any:
    """Build MobileNetV1 with a quarter of the channels: the visual wake words network of MLPerf
    Tiny.
    """
    image = layers.Input((96, 96, 3))
    x = _normalised(layers.Conv2D(8, 3, 2, "same", use_bias=False)(image))
    for channels, stride in (
        *((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)),
        *((128, 1),) * 5,
        *((256, 2), (256, 1)),
    ):
        x = _separable(x, channels, stride)
    x = layers.AveragePooling2D(x.shape[1:3])(x)
    x = layers.Flatten()(x)
    return keras.Model(image, layers.Dense(2, "softmax")(x))


def _separable(x: Any, channels: int, stride: int) -> Any:
    x = _normalised(layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(x))
    return _normalised(layers.Conv2D(channels, 1, use_bias=False)(x))


def _normalised(x: Any) -> Any:
    return layers.ReLU()(layers.BatchNormalization(momentum=MOMENTUM)(x))


def lenet5() -> Any:
    """Build LeNet-5: 32 x 32 pixels, tanh and average pooling."""
    return keras.Sequential(
        [
            layers.Input((32, 32, 1)),
            layers.Conv2D(6, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(120, "tanh"),
            layers.Dense(84, "tanh"),
            layers.Dense(10, "softmax"),
        ]
    )


def lstm_text() -> Any:
    """Build an embedding, an LSTM and one probability.

    The layers are from Keras 2: its LSTM is converted to one operator.
    """
    return tf_keras.Sequential(
        [
            tf_keras.layers.Input((data.WORDS,), dtype="int32"),
            tf_keras.layers.Embedding(data.VOCABULARY, 32),
            tf_keras.layers.LSTM(100),
            tf_keras.layers.Dense(1, "sigmoid"),
        ]
    )


def mobilenet_v2() -> Any:
    """Build MobileNetV2 as in Keras, with 0.35 of the channels."""
    model = keras.applications.MobileNetV2(
        (96, 96, 3), alpha=0.35, weights=None, classes=data.IMAGE_CLASSES
    )
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = MOMENTUM
    return model


def conv1d() -> Any:
    """Build a network of convolutions over time."""
    return keras.Sequential(
        [
            layers.Input((128, 3)),
            layers.Conv1D(16, 7, padding="same", activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(24, 5, activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(32, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(data.ACTIVITIES, "softmax"),
        ]
    )


NETWORKS = {
    "ds_cnn_kws": Recipe(ds_cnn, data.keywords, 2400, 5),
    "mobilenet_v1_025_96": Recipe(mobilenet_v1, data.figures, 3000, 8),
    "lenet5": Recipe(lenet5, data.digits, 1437, 15),
    "lstm_text_100": Recipe(lstm_text, data.reviews, 4000, 6),
    "mobilenet_v2_035_96": Recipe(mobilenet_v2, data.textures, 4000, 10),
    "conv1d_movements": Recipe(conv1d, data.movements, 1200, 12, float_io=True),
}


def train(recipe: Recipe) -> Any:
    """Return the trained Keras model, which takes one sample at a time."""
    x, labels = recipe.samples(recipe.training_samples, data.TRAINING_SEED)
    model = recipe.build()
    library = tf_keras if isinstance(model, tf_keras.Model) else keras
    steps = recipe.epochs * -(-len(x) // 32)
    model.compile(
        optimizer=library.optimizers.Adam(
            library.optimizers.schedules.CosineDecay(recipe.rate, steps)
        ),
        loss="binary_crossentropy" if model.output_shape[-1] == 1 else _CATEGORICAL,
        metrics=["accuracy"],
    )
    model.fit(x, labels, batch_size=32, epochs=recipe.epochs, verbose=2)
    _, accuracy = model.evaluate(*recipe.samples(TEST_SAMPLES, data.TEST_SEED), verbose=0)
    print(f"right on test data: {accuracy:.1%}")
    sample = library.Input(x.shape[1:], batch_size=1, dtype=x.dtype.name)
    return library.Model(sample, model(sample))


_CATEGORICAL = "sparse_categorical_crossentropy"


def convert(model: Any, samples: NDArray[Any], float_io: bool) -> bytes:
    """Return the model quantised to int8, with ranges measured on `samples`."""

    def calibration() -> Iterator[list[NDArray[Any]]]:
        for sample in samples:
            yield [sample[None]]

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = calibration
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if not float_io:
        converter.inference_output_type = tf.int8
        if samples.dtype == np.float32:
            converter.inference_input_type = tf.int8
    return converter.convert()


def stored_inputs(
    interpreter: Any, samples: NDArray[Any], random: np.random.Generator
) -> NDArray[Any]:
    """Return `samples` and noise of the same range, as the converted network takes them.

    The result is [samples, *the model's shape].
    """
    noise_shape = (len(samples) // 2, *samples.shape[1:])
    low, high = samples.min(), samples.max()
    if samples.dtype == np.int32:
        noise = random.integers(low, high, noise_shape, samples.dtype, endpoint=True)
    else:
        noise = random.uniform(low, high, noise_shape).astype(samples.dtype)
    x = np.concatenate([samples, noise])[:, None]
    source = interpreter.get_input_details()[0]
    if source["dtype"] == np.int8:
        scale, zero_point = source["quantization"]
        x = np.clip(np.round(x / np.float32(scale)) + zero_point, -128, 127).astype(np.int8)
    return x


def reference(interpreter: Any, x: NDArray[Any]) -> NDArray[Any]:
    """Return outputs for samples x, each of the model's shape; no state stays between samples."""
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    outputs = []
    for sample in x:
        interpreter.reset_all_variables()
        interpreter.set_tensor(source["index"], sample)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"]).copy())
    return np.array(outputs)


def make(name: str) -> None:
    """Write `name`.tflite and `name`.npz."""
    recipe = NETWORKS[name]
    keras.backend.clear_session()
    tf_keras.backend.clear_session()
    keras.utils.set_random_seed(data.TRAINING_SEED)
    model = train(recipe)
    samples, _ = recipe.samples(CALIBRATION_SAMPLES, data.TRAINING_SEED)
    content = convert(model, samples, recipe.float_io)
    (HERE / f"{name}.tflite").write_bytes(content)

    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    samples, labels = recipe.samples(STORED_SAMPLES, data.TEST_SEED)
    x = stored_inputs(interpreter, samples, np.random.default_rng(data.TEST_SEED))
    y = reference(interpreter, x)
    np.savez_compressed(HERE / f"{name}.npz", x=x, y_ref=y, labels=labels)


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    for name in sys.argv[1:] or NETWORKS:
        print(name, flush=True)
        make(name)


if __name__ == "__main__":
    main()
