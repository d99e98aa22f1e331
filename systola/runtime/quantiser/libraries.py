# SPDX-License-Identifier: Apache-2.0
"""The quantisers' libraries, which are optional, and calls of them."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

from systola.compiler.errors import ModelError
from systola.compiler.printable import reason_of


def library(module: str) -> Any:
    """Import an optional module, which has no type information.

    Raises ModelError, with the command that installs it, where it is missing.
    """
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise ModelError(
            f"quantising it takes {name}, which is missing: pip install 'systola[quantize]'"
        ) from None


@contextmanager
def refusals(action: str) -> Generator[None]:
    """Turn any exception of a library into a ModelError that begins with `action`.

    Errors of files and memory pass. Warnings, logs and progress bars are not shown.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    nowhere = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    except (ModelError, MemoryError, OSError):
        raise
    # The libraries document no exceptions: they let errors of protobuf, numpy and C++ pass.
    except Exception as error:
        raise ModelError(f"{action}: {reason_of(error)}") from None
    finally:
        logging.disable(disabled)
