# SPDX-License-Identifier: Apache-2.0
"""Tests of data sets: Keras's files, files from strangers, and data that is made up."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.training import TrainingError
from systola.training.datasets import imdb, mnist, pad_sequences

TRAIN, TEST = [[1, 5, 3], [2], [30, 1, 2, 4], [7, 8]], [[6, 6], [40], [9, 1]]
Y_TRAIN, Y_TEST = np.array([0, 1, 1, 0]), np.array([1, 0, 1])
IMAGES = np.arange(5 * 784).astype(np.uint8).reshape(5, 28, 28)
DIGITS = np.array([3, 1, 4, 1, 5], np.uint8)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in place of the folder in which Keras keeps its files."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("SYSTOLA_DATASET_SAMPLES", raising=False)
    folder = tmp_path / "datasets"
    folder.mkdir()
    return folder


def objects(lists: Any) -> Any:
    return np.fromiter(lists, object, len(lists))


def write_reviews(path: Path, **changed: Any) -> None:
    arrays = {"x_train": objects(TRAIN), "y_train": Y_TRAIN, "x_test": objects(TEST)}
    arrays |= {"y_test": Y_TEST, **changed}
    np.savez(path, **{name: each for name, each in arrays.items() if each is not None})


def write_images(path: Path, **changed: Any) -> None:
    arrays = {"x_train": IMAGES[:3], "y_train": DIGITS[:3]}
    arrays |= {"x_test": IMAGES[3:], "y_test": DIGITS[3:], **changed}
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("how", "train", "y_train", "test", "y_test"),
    [
        (  # by default the largest word, 43, is left out, too
            {},
            [[1, 10, 11], [1, 33, 4, 5, 7], [1, 4, 8, 6], [1, 5]],
            [0, 1, 0, 1],
            [[1, 2], [1, 9, 9], [1, 12, 4]],
            [0, 1, 1],
        ),
        (
            {"num_words": 10, "skip_top": 5},
            [[2, 2, 2], [2, 2, 2, 5, 7], [2, 2, 8, 6], [2, 5]],
            [0, 1, 0, 1],
            [[2, 2], [2, 9, 9], [2, 2, 2]],
            [0, 1, 1],
        ),
        (
            {"num_words": 10, "skip_top": 5, "oov_char": None},
            [[], [5, 7], [8, 6], [5]],
            [0, 1, 0, 1],
            [[], [9, 9], []],
            [0, 1, 1],
        ),
        (
            {"maxlen": 4, "oov_char": 0},
            [[1, 10, 11], [1, 5]],
            [0, 1],
            [[1, 0], [1, 9, 9], [1, 12, 4]],
            [0, 1, 1],
        ),
        (
            {"start_char": None, "index_from": 0, "num_words": 100},
            [[7, 8], [30, 1, 2, 4], [1, 5, 3], [2]],
            [0, 1, 0, 1],
            [[40], [6, 6], [9, 1]],
            [0, 1, 1],
        ),
        (
            {"seed": 0, "start_char": 9, "index_from": 1, "num_words": 100},
            [[9, 31, 2, 3, 5], [9, 8, 9], [9, 3], [9, 2, 6, 4]],
            [1, 0, 1, 0],
            [[9, 7, 7], [9, 10, 2], [9, 41]],
            [1, 1, 0],
        ),
    ],
)
def test_reviews(
    how: Any, train: Any, y_train: Any, test: Any, y_test: Any, home: Path, capsys: Any
) -> None:
    """Check that the arguments of imdb.load_data work as in Keras, for reviews in a file.

    The reviews to train with are shuffled into the order 3, 2, 0, 1, the reviews to test into 1, 0,
    2. With seed 0 the orders are 2, 3, 1, 0 and 0, 2, 1.
    """
    write_reviews(home / "imdb.npz")
    (x, y), (more_x, more_y) = imdb.load_data(**how)
    assert x.dtype == more_x.dtype == object
    assert (x.tolist(), more_x.tolist()) == (train, test)
    assert (y.tolist(), more_y.tolist()) == (y_train, y_test)
    assert {type(word) for words in x for word in words} == {int}
    assert capsys.readouterr().err == ""


def test_reviews_of_an_old_file(home: Path) -> None:
    """Check reviews in a file from an old version of numpy, as Keras's own file is.

    The file's pickles have protocol 2, which writes bytes as a call of a function.
    """
    arrays = {"x_train": objects(TRAIN), "x_test": objects(TEST)}
    write_reviews(home / "new.npz")
    with zipfile.ZipFile(home / "old.npz", "w") as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            about = {"descr": "|O", "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(content, about)
            text = pickle.dumps(array, protocol=2)
            assert b"_codecs" in text
            file.writestr(
                f"{name}.npy", content.getvalue() + text.replace(b"numpy._core", b"numpy.core")
            )
        for name, array in {"y_train": Y_TRAIN, "y_test": Y_TEST}.items():
            content = io.BytesIO()
            np.save(content, array)
            file.writestr(f"{name}.npy", content.getvalue())
    old, new = imdb.load_data("old.npz"), imdb.load_data("new.npz")
    assert [x.tolist() for x, _ in old] == [x.tolist() for x, _ in new]


class Program:
    """An object with a pickle that makes a folder when it is read, as a hostile program might."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("where", ["as an item", "in a list"])
def test_no_program_runs(where: str, home: Path) -> None:
    program = Program(home / "made")
    lists = [*TRAIN[:3], program if where == "as an item" else [1, program]]
    write_reviews(home / "imdb.npz", x_train=objects(lists))
    with pytest.raises(TrainingError, match=r"imdb.npz: x_train asks for \w+.mkdir, which may be"):
        imdb.load_data()
    assert not (home / "made").exists()


SAME = [1] * 100


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"x_test": None}, "it has no array x_test"),
        ({"x_train": np.zeros((4, 3), int)}, "x_train is an array of int64, not of objects"),
        ({"x_train": objects([[1], [1.5], [2], [3]])}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([[1], ["a"], [2], [3]])}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([[1], [[1]], [2], [3]])}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([[1], 5, [2], [3]])}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([[1 << 70]] * 4)}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([SAME] * 100)}, "x_train has no lists of whole numbers"),
        ({"x_train": objects([])}, "x_train has no lists of whole numbers"),
        ({"y_test": Y_TEST[:2]}, "y_test is int64 of shape (2,), not 3 whole numbers"),
        ({"y_test": Y_TEST / 2}, "y_test is float64 of shape (3,), not 3 whole numbers"),
    ],
)
def test_wrong_reviews(changed: Any, says: str, home: Path) -> None:
    write_reviews(home / "imdb.npz", **changed)
    with pytest.raises(TrainingError) as caught:
        imdb.load_data()
    assert str(caught.value) == f"{home / 'imdb.npz'}: {says}"


def test_damaged_reviews(home: Path) -> None:
    """Check reviews with any byte changed: loading gives other words or raises TrainingError."""
    whole = io.BytesIO()
    np.savez(whole, x_train=objects(TRAIN), y_train=Y_TRAIN, x_test=objects(TEST), y_test=Y_TEST)
    with zipfile.ZipFile(whole) as file:
        arrays = {name: file.read(name) for name in file.namelist()}
    text = arrays["x_train.npy"]
    refused = 0
    for place in range(128, len(text)):
        changed = bytearray(text)
        changed[place] ^= 0xFF
        with zipfile.ZipFile(home / "imdb.npz", "w") as file:
            for name, content in {**arrays, "x_train.npy": bytes(changed)}.items():
                file.writestr(name, content)
        with suppress(TrainingError):
            imdb.load_data()
            continue
        refused += 1
    assert refused > (len(text) - 128) / 2


@pytest.mark.parametrize(
    "how",
    [
        {"num_words": 1.5},
        {"skip_top": -1},
        {"maxlen": "all"},
        {"seed": None},
        {"start_char": -1},
        {"index_from": None},
        {"nb_words": 5},
        {"path": 5},
        {"maxlen": 1},
    ],
)
def test_wrong_arguments(how: Any, home: Path) -> None:
    write_reviews(home / "imdb.npz")
    with pytest.raises(TrainingError) as caught:
        imdb.load_data(**how)
    assert next(iter(how)) in str(caught.value)


def test_images(home: Path, capsys: Any) -> None:
    write_images(home / "mnist.npz")
    (x, y), (x_test, y_test) = mnist.load_data()
    assert (x.dtype, y.dtype, x_test.dtype, y_test.dtype) == (np.uint8,) * 4
    assert np.array_equal(x, IMAGES[:3]) and np.array_equal(x_test, IMAGES[3:])
    assert (y.tolist(), y_test.tolist()) == ([3, 1, 4], [1, 5])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["another.npz", None])
def test_a_path_of_ones_own(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a file given by its absolute path, and a file in the user's own folder.

    The user's folder is taken if KERAS_HOME is not set.
    """
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path if name else tmp_path / ".keras" / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    write_images(folder / (name or "mnist.npz"))
    (x, _), _ = mnist.load_data(str(folder / name)) if name else mnist.load_data()
    assert np.array_equal(x, IMAGES[:3])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"x_train": IMAGES[:3] / 255}, "x_train is float64 of shape (3, 28, 28), not uint8"),
        ({"x_test": IMAGES[3:, :8]}, "x_test is uint8 of shape (2, 8, 28), not uint8 of (samples,"),
        ({"x_test": IMAGES[0, 0, 0]}, "x_test is uint8 of shape (), not uint8 of (samples,"),
        ({"y_train": DIGITS}, "y_train is uint8 of shape (5,), not 3 whole numbers"),
        ({"x_train": IMAGES[:0], "y_train": DIGITS[:0]}, "y_train is uint8 of shape (0,), not 0"),
    ],
)
def test_wrong_images(changed: Any, says: str, home: Path) -> None:
    write_images(home / "mnist.npz", **changed)
    with pytest.raises(TrainingError) as caught:
        mnist.load_data()
    assert str(caught.value).startswith(f"{home / 'mnist.npz'}: {says}")


def test_files_that_are_none(home: Path) -> None:
    (home / "text.npz").write_text("no archive")
    for path in ("text.npz", "", "x" * 1000):
        with pytest.raises(TrainingError) as caught:
            mnist.load_data(path)
        assert str(caught.value).startswith(str(home))


@pytest.mark.parametrize("given", ["0", "-1", "all", "1.5", "9" * 30])
def test_wrong_limits(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", given)
    with pytest.raises(TrainingError, match="SYSTOLA_DATASET_SAMPLES must be a whole number of at"):
        mnist.load_data()


def test_a_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that SYSTOLA_DATASET_SAMPLES limits the data to the first samples.

    Reviews are shuffled before they are limited.
    """
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", "2")
    write_images(home / "mnist.npz")
    write_reviews(home / "imdb.npz")
    (x, y), (x_test, _) = mnist.load_data()
    assert np.array_equal(x, IMAGES[:2]) and np.array_equal(x_test, IMAGES[3:])
    (words, praise), (words_test, _) = imdb.load_data()
    assert words.tolist() == [[1, 10, 11], [1, 33, 4, 5, 7]]
    assert words_test.tolist() == [[1, 2], [1, 9, 9]]
    assert (y.tolist(), praise.tolist()) == ([3, 1], [0, 1])


def test_images_that_are_made_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", "1200")
    (x, y), (x_test, y_test) = mnist.load_data()
    path = home / "mnist.npz"
    assert capsys.readouterr().err == f"The images are made up: there is no file {path}\n"
    assert (x.shape, x_test.shape) == ((1200, 28, 28), (1200, 28, 28))
    assert (x.dtype, y.dtype) == (np.uint8, np.uint8)
    assert set(y) == set(y_test) == set(range(10))
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", "7")
    (again, labels), _ = mnist.load_data()
    assert np.array_equal(again, x[:7]) and np.array_equal(labels, y[:7])
    # Mostly, a test image is closer to the mean of its own digit than to the means of other digits.
    means = np.array([x[y == digit].mean(axis=0).ravel() for digit in range(10)])
    distances = ((x_test.reshape(-1, 1, 784) - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == y_test).mean() > 0.6


def praise_of(words: list[int], *, in_order: bool) -> int:
    """Return how many more words of a made-up review praise than blame.

    With `in_order` word 4 reverses the meaning of the next word of praise or blame. Otherwise word
    4 has no effect.
    """
    found, turned = 0, False
    for word in words:
        if word == 4:
            turned = in_order
        elif word >= 20 and word % 20 in (0, 1):
            found += 1 if (word % 20 == 0) != turned else -1
            turned = False
    return found


def test_reviews_that_are_made_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYSTOLA_DATASET_SAMPLES", "2000")
    how: Any = {"start_char": None, "index_from": 0}
    (x, y), (x_test, y_test) = imdb.load_data(**how)
    path = home / "imdb.npz"
    assert capsys.readouterr().err == f"The reviews are made up: there is no file {path}\n"
    assert (x.dtype, y.dtype, len(x_test), len(y_test)) == (object, np.int64, 2000, 2000)
    assert y.mean() == y_test.mean() == 0.5
    lengths = np.array([len(words) for words in x])
    assert (lengths.min(), lengths.max()) >= (10, 900) and lengths.max() <= 1000
    assert 165 <= np.median(lengths) <= 185
    words = np.concatenate(x)
    assert words.min() == 1 and 80_000 < words.max() <= 88_584
    # with over 400,000 words, chance changes a word's share by far less than 5 %
    for n in (1, 2, 10):
        assert (words == n).mean() == pytest.approx(np.log(1 + 1 / n) / np.log(88_585), rel=0.05)
    assert x[0] != x_test[0]
    (again, _), _ = imdb.load_data(**how)
    assert x.tolist() == again.tolist()

    def right(in_order: bool) -> float:
        found = [praise_of(text, in_order=in_order) for text in x_test]
        return float(
            np.mean(
                [(n > 0) == label if n else 0.5 for n, label in zip(found, y_test, strict=True)]
            )
        )

    assert right(False) > 0.8
    assert right(True) > right(False) + 0.04


@pytest.mark.thorough
def test_all_that_is_made_up() -> None:
    (x, y), (x_test, y_test) = mnist.load_data()
    assert (x.shape, y.shape) == ((60_000, 28, 28), (60_000,))
    assert (x_test.shape, y_test.shape) == ((10_000, 28, 28), (10_000,))
    (words, praise), (words_test, praise_test) = imdb.load_data(num_words=15_000)
    assert [len(each) for each in (words, praise, words_test, praise_test)] == [25_000] * 4
    assert praise.sum() == praise_test.sum() == 12_500
    assert max(map(max, words)) < 15_000


LISTS = [[1], [2, 3], [], [4, 5, 6]]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [[0, 0, 1], [0, 2, 3], [0, 0, 0], [4, 5, 6]]),
        ({"maxlen": 2}, [[0, 1], [2, 3], [0, 0], [5, 6]]),
        ({"maxlen": 2, "truncating": "post"}, [[0, 1], [2, 3], [0, 0], [4, 5]]),
        ({"padding": "post", "value": 9}, [[1, 9, 9], [2, 3, 9], [9, 9, 9], [4, 5, 6]]),
        ({"maxlen": 4, "dtype": "int8"}, [[0, 0, 0, 1], [0, 0, 2, 3], [0] * 4, [0, 4, 5, 6]]),
    ],
)
def test_padding(how: Any, expected: Any) -> None:
    for given in (LISTS, objects(LISTS), [np.array(each, int) for each in LISTS]):
        found = pad_sequences(given, **how)
        assert found.dtype == how.get("dtype", "int32")
        assert found.tolist() == expected


def test_padding_of_rows() -> None:
    """Check the padding of sequences of arrays; a list without sequences gives no columns."""
    found = pad_sequences([[[1, 2]], [], [[3, 4], [5, 6]]], dtype="float32")
    assert found.tolist() == [[[0, 0], [1, 2]], [[0, 0], [0, 0]], [[3, 4], [5, 6]]]
    assert pad_sequences([]).shape == (0, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: pad_sequences(5),
        lambda: pad_sequences([1, 2]),
        lambda: pad_sequences([[1], [float("nan")]], dtype=None, value=0),
        lambda: pad_sequences([[1], [2, 3]], value=1j),
        lambda: pad_sequences(LISTS, maxlen=0),
        lambda: pad_sequences(LISTS, maxlen=1 << 50),
        lambda: pad_sequences(LISTS, padding="left"),
        lambda: pad_sequences(LISTS, truncating=None),
        lambda: pad_sequences(LISTS, dtype="int3"),
        lambda: pad_sequences(LISTS, dtype="a"),  # NumPy has deprecated this type
        lambda: pad_sequences(LISTS, value="none"),
        lambda: pad_sequences(["ab", "c"]),
        lambda: pad_sequences([[1 << 40]]),
        lambda: pad_sequences([[[1, 2]], [[3]]]),
        lambda: pad_sequences([[[1, 2], [3]]]),
        lambda: pad_sequences(LISTS, length=5),
    ],
)
def test_wrong_padding(call: Any) -> None:
    with pytest.raises(TrainingError) as caught:
        call()
    assert "\n" not in str(caught.value)
