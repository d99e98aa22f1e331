# SPDX-License-Identifier: Apache-2.0
"""A network that reads handwritten digits, trained on a pod of eight cores as on a cloud TPU."""

from systola.training import Dense, Dropout, Flatten, Sequential
from systola.training.datasets import mnist
from systola.training.tpu import (
    TPUClusterResolver,
    TPUStrategy,
    experimental_connect_to_cluster,
    initialize_tpu_system,
)

resolver = TPUClusterResolver(tpu="grpc://10.0.0.2:8470")
experimental_connect_to_cluster(resolver)
initialize_tpu_system(resolver)
strategy = TPUStrategy(resolver)
print("Number of cores:", strategy.num_replicas_in_sync)

with strategy.scope():
    model = Sequential(
        [
            Flatten(input_shape=(28, 28)),
            Dense(512, activation="relu"),
            Dropout(0.2),
            Dense(10),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

(x_train, y_train), (x_test, y_test) = mnist.load_data()
x_train, x_test = x_train / 255.0, x_test / 255.0

model.fit(x_train, y_train, epochs=5, batch_size=1024)
loss, accuracy = model.evaluate(x_test, y_test)
print(f"Test loss: {loss:.4f}, test accuracy: {accuracy:.4f}")
