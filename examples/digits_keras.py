# SPDX-License-Identifier: Apache-2.0
"""A Keras classifier of digits, from float to int8 on the simulated machine."""

from importlib.resources import files

import keras
import numpy as np

import systola
from systola.runtime import compile

data = np.load(str(files("systola.models") / "digits.npz"))
x, x_test = (data[name].reshape(-1, 8, 8, 1).astype(np.float32) for name in ("x", "x_test"))
y, y_test = data["y"].astype(np.int64), data["y_test"].astype(np.int64)
model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, epochs=10, verbose=0)

made = systola.quantize(model, x, labels=y)
made.save("digits_int8.tflite")
run = compile(made.content, preset="base").run(x_test, backend="rtl")
of_float = model.predict(x_test, verbose=0)
for name, scores in (("float", of_float), (f"int8, {run.cycles} cycles", run.y)):
    print(name, np.mean(scores.argmax(axis=1) == y_test))
