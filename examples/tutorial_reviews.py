# SPDX-License-Identifier: Apache-2.0
"""An LSTM that knows praise from blame in film reviews, trained on a pod as on a cloud TPU."""

from systola.training import LSTM, Dense, Embedding, Sequential
from systola.training.datasets import imdb, pad_sequences
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

(X_train, y_train), (X_test, y_test) = imdb.load_data(num_words=15000)
X_train = pad_sequences(X_train, maxlen=250)
X_test = pad_sequences(X_test, maxlen=250)

with strategy.scope():
    model = Sequential()
    model.add(Embedding(15000, 32, input_length=250))
    model.add(LSTM(100))
    model.add(Dense(1, activation="sigmoid"))
    model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.summary()

model.fit(X_train, y_train, epochs=20, batch_size=64, validation_data=(X_test, y_test))
# A name such as reviews.h5 gives a file for Keras, too, and needs the package h5py.
model.save_weights("reviews.npz", overwrite=True)

loss, accuracy = model.evaluate(X_test, y_test, batch_size=128 * 8)
print(f"Test loss: {loss:.4f}, test accuracy: {accuracy:.4f}")
print(model.predict(X_test[:6]))  # eight cores do not divide six samples
model.load_weights("reviews.npz")
model = model.sync_to_cpu()
