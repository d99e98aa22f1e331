# SPDX-License-Identifier: Apache-2.0
"""A local page on which a user draws a digit and watches the array classify it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import BoundedSemaphore, Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.runtime.backend import BackendError
from systola.runtime.compile_content import compile_content
from systola.views.array_wave import CONFIG, FIRST, watch

HOST = "127.0.0.1"
"""The loopback address: no other machine reaches the page."""
MODEL = "mlp_tutorial_pc_softmax.tflite"
IMAGES = "digits_test.npz"
PIXELS = 64
BRIGHTEST = 16
"""Largest value of a pixel, as in the data set: the number of set dots among its 4 x 4 dots."""
CONNECTIONS = 32
"""Largest number of connections that are served at one time; others are closed at once."""
WAITING = 4
"""Largest number of pictures that are classified or wait for their turn; others are refused."""
IDLE_SECONDS = 10.0
"""Time without a byte after which a connection is closed, in seconds."""
_LARGEST_BODY = 4096
_HTTP_PORT = 80
"""Port that browsers leave out in the headers Host and Origin."""
_POLICY = (
    "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content policy of the pages: they load only own content, and no other page may frame them."""
_PAGES = {
    "/": ("demo.html", "text/html; charset=utf-8"),
    "/common.css": ("common.css", "text/css; charset=utf-8"),
    "/demo.css": ("demo.css", "text/css; charset=utf-8"),
    "/demo.js": ("demo.js", "text/javascript; charset=utf-8"),
}

Classify = Callable[[Sequence[int]], Mapping[str, object]]
"""Type of a function from pixels to the data that the page shows."""


def quantised(pixels: Sequence[int]) -> NDArray[np.int8]:
    """Turn pixels from 0 to BRIGHTEST into the network's input, int8 [1, 1, PIXELS].

    A step of the codes is 1/255 as a float32, as in the model. So half of BRIGHTEST does not lie
    half way between two codes.
    """
    codes = np.round(np.array(pixels, np.float32) / BRIGHTEST / np.float32(1 / 255)) - 128
    return codes.astype(np.int8).reshape(1, 1, PIXELS)


def examples() -> list[list[int]]:
    """Return the pixels of a test image for each digit."""
    with np.load(io.BytesIO((files("systola.models") / IMAGES).read_bytes())) as archive:
        x, digits = archive["x"], archive["y"]
    found: list[list[int]] = []
    for digit in range(10):
        image: NDArray[np.int8] = x[np.flatnonzero(digits == digit)[0]].ravel()
        found.append(np.round((image + 128.0) / 255 * BRIGHTEST).astype(int).tolist())
    return found


def make_classifier() -> Classify:
    """Return a function that runs the network on the simulated RTL.

    Its first call builds the simulator.
    """
    content = (files("systola.models") / MODEL).read_bytes()
    model = compile_content(CONFIG, content, None, 1)
    lock = Lock()

    def classify(pixels: Sequence[int]) -> Mapping[str, object]:
        with lock:  # One picture at a time keeps the second of two processors free.
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


class _Server(ThreadingHTTPServer):
    """A server with a limit on its connections. A client that leaves early causes no error."""

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((HOST, port), handler)
        self._free = BoundedSemaphore(CONNECTIONS)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for one more connection."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and then make its place free for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless the client has left."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def make_server(classify: Classify, port: int) -> ThreadingHTTPServer:
    """Make a server of the page at `port` of the loopback address; 0 stands for any free port.

    Only pages of this server get an answer; other sites in a browser get none. Raises OSError if
    the port is taken.
    """
    known = json.dumps(examples()).encode()
    room = BoundedSemaphore(WAITING)

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

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
            if not self._is_local() or not self._is_from_here():
                return
            if self.path != "/classify":
                return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            pixels = self._read_picture()
            if pixels is None:
                return self._refuse(HTTPStatus.BAD_REQUEST, "that is no picture")
            if not room.acquire(blocking=False):
                return self._refuse(
                    HTTPStatus.SERVICE_UNAVAILABLE, "the machine has enough pictures to do"
                )
            try:
                content = classify(pixels)
            except BackendError as error:
                return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
            finally:
                room.release()
            self._answer(json.dumps(content).encode(), "application/json")

        def _read_picture(self) -> list[int] | None:
            size = self.headers.get("Content-Length", "")
            # Python refuses to convert numbers of thousands of digits.
            if not size.isdecimal() or len(size) > 5 or int(size) > _LARGEST_BODY:
                return None
            return _picture(self.rfile.read(int(size)))

        def _is_local(self) -> bool:
            """Return whether the header Host names this server, and refuse the request if it does
            not.

            A name of another site may lead to this machine.
            """
            if self.headers.get("Host", "").lower() in self._own_names():
                return True
            self._refuse(HTTPStatus.FORBIDDEN, "only for this machine")
            return False

        def _is_from_here(self) -> bool:
            """Return whether a page of this server has sent the request, and refuse the request if
            not.

            Browsers send the origin of a request, so a client without this header is no browser.
            """
            origin = self.headers.get("Origin")
            site = self.headers.get("Sec-Fetch-Site", "same-origin")
            own = origin is None or origin.lower() in {f"http://{n}" for n in self._own_names()}
            if own and site == "same-origin":
                return True
            self._refuse(HTTPStatus.FORBIDDEN, "only for the page of this server")
            return False

        def _own_names(self) -> set[str]:
            port = cast("_Server", self.server).server_port
            ends = [f":{port}", *([""] if port == _HTTP_PORT else [])]
            return {f"{name}{end}" for name in (HOST, "localhost") for end in ends}

        def _refuse(self, status: HTTPStatus, reason: str) -> None:
            self._answer(json.dumps({"error": reason}).encode(), "application/json", status)

        def _answer(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: requests are of no interest to the user."""

    return _Server(port, Handler)


def _picture(body: bytes) -> list[int] | None:
    """Return the pixels in the body of a request, or None if the body is no picture."""
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
