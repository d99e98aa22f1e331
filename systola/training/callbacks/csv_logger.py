# SPDX-License-Identifier: Apache-2.0
"""CSVLogger: the logs of all epochs in a table."""

from __future__ import annotations

import csv
import io
from os import PathLike

from systola.runtime.write_file import check_writable, write_file
from systola.training.arguments import constructor
from systola.training.callbacks.callback import Callback, Logs
from systola.training.checks import flag, shown
from systola.training.errors import TrainingError
from systola.training.paths import check_path


@constructor()
class CSVLogger(Callback):
    """A callback that writes a row for each epoch into the file `filename`.

    Columns are as in Keras: the epoch, then the logs by name; without validation the columns of
    validation have NA. With `append` rows are added to an existing file. Raises TrainingError for
    other arguments and for a folder, OSError if the file cannot be written.
    """

    def __init__(
        self, filename: str | PathLike[str], separator: str = ",", append: bool = False
    ) -> None:
        self._path = check_path(filename)
        if not isinstance(separator, str) or len(separator) != 1 or separator in '\r\n"':  # type: ignore[reportUnnecessaryIsInstance]
            raise TrainingError(f"separator must be one character, not {shown(separator)}")
        self._separator = separator
        self._append = flag("append", append)
        self._columns: list[str] = []
        self._text = ""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Check that the file can be written; with `append` keep its text, to add rows to it."""
        if self._path.is_dir():
            raise TrainingError(f"cannot write to {self._path}: it is a folder")
        check_writable(self._path)
        kept = self._append and self._path.is_file()
        content = self._path.read_bytes() if kept else b""
        self._text = content.decode(errors="surrogateescape")
        self._columns = []

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add a row with the logs of an epoch to the file."""
        logs, rows = logs or {}, io.StringIO(newline="")
        writer = csv.writer(rows, delimiter=self._separator)
        if not self._columns:
            self._columns = sorted(logs)
            if not any(name.startswith("val_") for name in logs):
                self._columns += [f"val_{name}" for name in self._columns]
            if not self._text:
                writer.writerow(["epoch", *self._columns])
        writer.writerow([epoch, *(logs.get(name, "NA") for name in self._columns)])
        self._text += rows.getvalue()
        # A regular file is written anew as a whole. A pipe already has the rows of earlier epochs,
        # so it gets only the new row.
        whole = self._path.is_file() or not self._path.exists()
        text = self._text if whole else rows.getvalue()
        write_file(self._path, text.encode(errors="surrogateescape"))
