# SPDX-License-Identifier: Apache-2.0
"""A script that makes digits.npz, digits_test.npz and mlp_floatio.npz again.

It needs scikit-learn 1.9.1 for the images and ai-edge-litert 2.3.0 for the reference outputs; the
project itself needs neither. Run it as `python models/make_digits.py`. It writes into its own
folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
TRAINING_IMAGES = 1437
"""Number of the 1797 images on which the models were trained: the first ones of `all_images`."""
FLOAT_SAMPLES = 24
"""Images in mlp_floatio.npz, which are followed by as many samples of noise."""


def all_images() -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return all images, 64 pixels from 0 to 1 each, and the digits.

    Images are float32 [1797, 64], digits uint8 [1797]. The images for training come first.
    """
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.uint8)


def reference(model: str, x: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the outputs of a stored model by the interpreter's reference kernels, for samples of
    its shape.
    """
    interpreter = Interpreter(
        str(HERE / model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    outputs = []
    for sample in x:
        interpreter.set_tensor(source["index"], sample)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"]).copy())
    return np.array(outputs)


def main() -> None:
    images, labels = all_images()
    half = images.astype(np.float16)  # float16 holds sixteenths exactly
    np.savez_compressed(
        HERE / "digits.npz",
        x=half[:TRAINING_IMAGES],
        y=labels[:TRAINING_IMAGES],
        x_test=half[TRAINING_IMAGES:],
        y_test=labels[TRAINING_IMAGES:],
    )
    images, labels = images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:]
    samples = images.reshape(-1, 1, 64)

    model = "mlp_tutorial_pc_softmax.tflite"
    interpreter = Interpreter(str(HERE / model))
    scale, zero_point = interpreter.get_input_details()[0]["quantization"]
    codes = np.round(samples / np.float32(scale)) + zero_point
    x = np.clip(codes, -128, 127).astype(np.int8)
    np.savez_compressed(HERE / "digits_test.npz", x=x, y=labels, y_ref=reference(model, x))

    noise = np.random.default_rng(1).uniform(-0.2, 1.2, (FLOAT_SAMPLES, 1, 64))
    floats = np.concatenate([samples[:FLOAT_SAMPLES], noise.astype(np.float32)])
    np.savez_compressed(
        HERE / "mlp_floatio.npz", x=floats, y_ref=reference("mlp_floatio.tflite", floats)
    )


if __name__ == "__main__":
    main()
