# SPDX-License-Identifier: Apache-2.0
"""Where built simulators are kept, and how each is built only once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

SIM_DIRECTORY = Path(__file__).resolve().parent


def build_root() -> Path:
    """Directory of everything that is built and can be deleted at any time.

    SYSTOLA_BUILD where set, else `build` in the checkout that this file belongs to, else the
    user's cache directory.
    """
    if chosen := os.environ.get("SYSTOLA_BUILD"):
        return Path(chosen).resolve()
    checkout = SIM_DIRECTORY.parent
    if (checkout / "pyproject.toml").exists():
        return checkout / "build"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "systola"


def content_key(*parts: str | bytes) -> str:
    """A name for the result of building from `parts`: the same parts, the same name."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def built_once(kind: str, key: str, what: str, make: Callable[[Path], Path]) -> Path:
    """The file or directory that `make` leaves, from the cache or made now.

    `make` gets an empty directory to work in and returns the path of its result in there. Of
    several processes that ask at one time, one makes it and the others wait. `what` is for the
    line that is printed on stderr when something has to be made.
    """
    folder = build_root() / kind
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / key
    if result.exists():
        return result
    with _locked(folder / f"{key}.lock"):
        if result.exists():
            return result
        started = time.monotonic()
        print(f"systola: {what} (kept for the next time) ...", file=sys.stderr, flush=True)
        # GNU make cannot work in a directory with a space in its name.
        where = None if any(c.isspace() for c in str(folder)) else folder
        with tempfile.TemporaryDirectory(prefix="make-", dir=where) as work:
            made = make(Path(work))
            if where is None:
                made = Path(shutil.move(made, folder / f"{key}.part"))
            made.replace(result)
        seconds = time.monotonic() - started
        print(f"systola: {what}: done in {seconds:.0f} s", file=sys.stderr, flush=True)
    return result


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
