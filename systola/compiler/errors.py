# SPDX-License-Identifier: Apache-2.0
"""The errors that a compilation raises."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from systola.compiler.printable import printable


class Refusal(ValueError):
    """An error for a model or other work that the compiler refuses, with a reason of one line."""

    def __init__(self, reason: str, refused: Mapping[str, str] | None = None) -> None:
        """Store reasons: `reason` for the whole file, and `refused` for operators or tensors of the
        file.

        The key in `refused` is the text of an operator, such as "node 3 (Conv)", or the result_name
        of a tensor. The value is the reason.
        """
        super().__init__(printable(reason))
        self.refused: Mapping[str, str] = refused or {}


class CompileError(Refusal):
    """An error for work that does not fit the machine, with the reason in one line."""


class ModelError(Refusal):
    """An error for a model file that cannot be read or is not supported, with the reason in one
    line."""


def result_name(tensor: object) -> str:
    """Return the key of `Refusal.refused` that stands for the result `tensor` of an operator."""
    return f"result {tensor}"


@contextmanager
def located(operator: object, error_type: type[Refusal]) -> Generator[None, None, None]:
    """Turn a CompileError or ModelError in a `with` block into an error of `error_type`.

    The text of the new error begins with the text of `operator`. Its `refused` also has the reason
    for this operator.
    """
    try:
        yield
    except (CompileError, ModelError) as error:
        refused = {**error.refused, str(operator): str(error)}
        raise error_type(f"{operator}: {error}", refused) from None
