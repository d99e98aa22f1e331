# SPDX-License-Identifier: Apache-2.0
"""A local page on which one draws a digit and watches the array classify it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.runtime.backend import BackendError
from systola.runtime.compiled_model import compile_content
from systola.views.array_wave import CONFIG, FIRST, watch

HOST = "127.0.0.1"
"""The loopback: no other machine reaches the page."""
MODEL = "mlp_tutorial_pc_softmax.tflite"
IMAGES = "digits_test.npz"
PIXELS = 64
BRIGHTEST = 16
"""Of a pixel, as in the data set: that many of its 4 x 4 dots are set."""
_LARGEST_BODY = 4096
_PAGES = {
    "/": ("demo.html", "text/html; charset=utf-8"),
    "/common.css": ("common.css", "text/css; charset=utf-8"),
    "/demo.css": ("demo.css", "text/css; charset=utf-8"),
    "/demo.js": ("demo.js", "text/javascript; charset=utf-8"),
}

Classify = Callable[[Sequence[int]], Mapping[str, object]]
"""From pixels to what the page shows."""


def quantised(pixels: Sequence[int]) -> NDArray[np.int8]:
    """Pixels from 0 to BRIGHTEST as the network takes them, [1, 1, PIXELS]: 0 to 1 in 255 steps.

    The step is a float32, as in the model: half of BRIGHTEST is no tie.
    """
    codes = np.round(np.array(pixels, np.float32) / BRIGHTEST / np.float32(1 / 255)) - 128
    return codes.astype(np.int8).reshape(1, 1, PIXELS)


def examples() -> list[list[int]]:
    """For each digit the pixels of a test image."""
    with np.load(io.BytesIO((files("systola.models") / IMAGES).read_bytes())) as archive:
        x, digits = archive["x"], archive["y"]
    found: list[list[int]] = []
    for digit in range(10):
        image: NDArray[np.int8] = x[np.flatnonzero(digits == digit)[0]].ravel()
        found.append(np.round((image + 128.0) / 255 * BRIGHTEST).astype(int).tolist())
    return found


def make_classifier() -> Classify:
    """The network on the simulated RTL; the first call builds the simulator."""
    content = (files("systola.models") / MODEL).read_bytes()
    model = compile_content(CONFIG, content, None, 1)
    lock = Lock()

    def classify(pixels: Sequence[int]) -> Mapping[str, object]:
        with lock:  # of two processors at most one is busy with it
            run, states = watch(model, quantised(pixels))
        scores = run.y.ravel().astype(int)
        return {
            "digit": int(scores.argmax()),
            "scores": (scores + 128).tolist(),
            "cycles": run.cycles,
            "first": FIRST,
            "states": [asdict(each) for each in states],
        }

    return classify


def make_server(classify: Classify, port: int) -> ThreadingHTTPServer:
    """A server of the page on the loopback, at `port` or, for 0, a free one.

    Raises OSError where the port is taken.
    """
    known = json.dumps(examples()).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._is_local():
                return
            if self.path == "/examples":
                self._answer(known, "application/json")
            elif self.path in _PAGES:
                name, kind = _PAGES[self.path]
                self._answer((files("systola.views") / "pages" / name).read_bytes(), kind)
            else:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

        def do_POST(self) -> None:
            if not self._is_local():
                return
            if self.path != "/classify":
                return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            size = self.headers.get("Content-Length", "")
            if not size.isdecimal() or int(size) > _LARGEST_BODY:
                return self._refuse(HTTPStatus.BAD_REQUEST, "that is no picture")
            pixels = _picture(self.rfile.read(int(size)))
            if pixels is None:
                return self._refuse(HTTPStatus.BAD_REQUEST, "that is no picture")
            try:
                content = classify(pixels)
            except BackendError as error:
                return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
            self._answer(json.dumps(content).encode(), "application/json")

        def _is_local(self) -> bool:
            """Refuses whoever calls it by another name: a page from elsewhere, whose name somebody
            has pointed to this machine."""
            name = self.headers.get("Host", "").rpartition(":")[0]
            if name in (HOST, "localhost"):
                return True
            self._refuse(HTTPStatus.FORBIDDEN, "only for this machine")
            return False

        def _refuse(self, status: HTTPStatus, reason: str) -> None:
            self._answer(json.dumps({"error": reason}).encode(), "application/json", status)

        def _answer(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", "default-src 'self'; img-src data:")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody wants to read of each request."""

    return ThreadingHTTPServer((HOST, port), Handler)


def _picture(body: bytes) -> list[int] | None:
    """The pixels that a request brings; None for anything else."""
    try:
        content: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, list):
        return None
    pixels = cast("list[Any]", content)
    if len(pixels) != PIXELS or any(type(each) is not int for each in pixels):
        return None
    return pixels if 0 <= min(pixels) <= max(pixels) <= BRIGHTEST else None
