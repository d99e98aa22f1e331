# SPDX-License-Identifier: Apache-2.0
"""What a compilation can fail with."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from systola.compiler.printable import printable


class CompileError(ValueError):
    """Work that does not fit the machine, with the reason in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


class ModelError(ValueError):
    """A model file that cannot be read or is not supported, with the reason in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


@contextmanager
def located(operator: object, error_type: type[ValueError]) -> Generator[None, None, None]:
    """A CompileError or ModelError inside becomes an `error_type` that begins with `operator`."""
    try:
        yield
    except (CompileError, ModelError) as error:
        raise error_type(f"{operator}: {error}") from None
