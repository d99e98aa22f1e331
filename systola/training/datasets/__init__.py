# SPDX-License-Identifier: Apache-2.0
"""Data sets with Keras's names: files that exist already, else data that is made up.

    (x_train, y_train), (x_test, y_test) = mnist.load_data()
    (x_train, y_train), (x_test, y_test) = imdb.load_data(num_words=15000)
    x_train = pad_sequences(x_train, maxlen=250)

Nothing is fetched. Keras's files `mnist.npz` and `imdb.npz` are taken from the folder
$KERAS_HOME/datasets, or ~/.keras/datasets where KERAS_HOME is not set. For data that is made up
there is a line on standard error. With the environment variable SYSTOLA_DATASET_SAMPLES=N each part
has N samples only, to try a program quickly.
"""

from systola.training.datasets import imdb, mnist
from systola.training.datasets.padding import pad_sequences

__all__ = ["imdb", "mnist", "pad_sequences"]
