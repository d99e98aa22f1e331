# SPDX-License-Identifier: Apache-2.0
"""What a compilation can fail with."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class CompileError(ValueError):
    """Work that does not fit the machine, with the reason in one line."""


class ModelError(ValueError):
    """A model file that cannot be read or is not supported, with the reason in one line."""


class Refusals:
    """Collects what is not supported of a model, so that one report has all of it."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}

    @contextmanager
    def collected(self, operator: object) -> Generator[None, None, None]:
        """A CompileError or ModelError inside is kept as one of `operator`."""
        try:
            yield
        except (CompileError, ModelError) as error:
            self._places.setdefault(str(error), []).append(str(operator))

    def raise_any(self) -> None:
        """Raises ModelError with all that has been collected, in one line."""
        if self._places:
            raise ModelError(
                "; ".join(f"{', '.join(who)}: {reason}" for reason, who in self._places.items())
            )


@contextmanager
def located(operator: object, error_type: type[ValueError]) -> Generator[None, None, None]:
    """A CompileError or ModelError inside becomes an `error_type` that begins with `operator`."""
    try:
        yield
    except (CompileError, ModelError) as error:
        raise error_type(f"{operator}: {error}") from None
