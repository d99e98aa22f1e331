# SPDX-License-Identifier: Apache-2.0
"""Tests of the web page on which a user draws a digit, in a real browser, and of its server."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from importlib.resources import files
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from systola.verif.cli.test_errors import run
from systola.views import web_demo
from systola.views.web_demo import (
    CONNECTIONS,
    IMAGES,
    WAITING,
    examples,
    make_classifier,
    make_server,
    quantised,
)


def array(step: int) -> dict[str, list[list[int]]]:
    """Return invented registers of a 2 x 2 array in cycle `step`; only weights are constant."""
    return {
        "weights": [[1, 2], [3, 4]],
        "activations": [[step, 0], [0, 0]],
        "sums": [[0, 0], [0, 100 * step]],
    }


def pretended(pixels: Any) -> dict[str, Any]:
    """Return an invented classification, with as many cycles as set pixels, and four states."""
    lit = sum(each > 0 for each in pixels)
    return {
        "digit": 7,
        "scores": [0] * 7 + [255, 0, 0],
        "cycles": lit,
        "first": 10,
        "states": [array(step) for step in range(4)],
    }


@contextmanager
def running(classify: Callable[..., Any]) -> Generator[ThreadingHTTPServer]:
    """Yield the page's server, which runs at a free port."""
    with make_server(classify, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def served(classify: Callable[..., Any]) -> Generator[int]:
    """Serve the page, and yield the server's port."""
    with running(classify) as server:
        yield server.server_port


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    with served(pretended) as port:
        yield port


def reply(port: int, method: str, path: str, body: str | None = None, **headers: str) -> Any:
    """Send a request, and return the answer's status, headers and content.

    `headers` are named with underscores, such as `Sec_Fetch_Site="none"`.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, content


def ask(port: int, method: str, path: str, body: str | None = None, **headers: str) -> Any:
    """Send a request, and return the answer's status and content."""
    status, _, content = reply(port, method, path, body, **headers)
    return status, content


def test_pictures_are_those_of_the_network() -> None:
    """Check that drawn pixels become the network's input, for every test image."""
    with np.load(io.BytesIO((files("systola.models") / IMAGES).read_bytes())) as archive:
        x = archive["x"]
    pixels = np.round((x.astype(float) + 128) / 255 * 16).astype(int)
    for image, wanted in zip(pixels, x, strict=True):
        assert np.array_equal(quantised(image.ravel())[0], wanted)
    assert len(examples()) == 10


def test_server(port: int) -> None:
    assert ask(port, "GET", "/")[0] == 200
    assert json.loads(ask(port, "GET", "/examples")[1]) == examples()
    status, content = ask(port, "POST", "/classify", json.dumps([0] * 63 + [16]))
    assert status == 200
    assert json.loads(content)["cycles"] == 1


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", "null", "[]", "7", "[" * 3000, "9" * 5000),
        *(json.dumps([each] * 64) for each in (17, -1, 0.5, True, None, "1")),
        json.dumps([0] * 63),
    ],
)
def test_what_is_no_picture(port: int, body: str) -> None:
    status, content = ask(port, "POST", "/classify", body)
    assert (status, json.loads(content)) == (400, {"error": "that is no picture"})


def test_only_for_this_machine(port: int) -> None:
    """Check that the server refuses requests with any host name but its own, and unknown paths."""
    for method, path in (("GET", "/"), ("POST", "/classify")):
        for name in (f"example.com:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", "", "[::1]"):
            assert ask(port, method, path, "[]", Host=name)[0] == 403
    assert ask(port, "GET", "/", Host=f"localhost:{port}")[0] == 200
    for path in ("/../cli/demo.py", "/report.html", "/nothing"):
        assert ask(port, "GET", path)[0] == 404
    assert ask(port, "POST", "/")[0] == 404


PICTURE = json.dumps([0] * 64)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # headers of a program that is no browser
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://localhost:{port}", "Sec_Fetch_Site": "same-origin"}, 200),
        ({"Origin": "http://example.com"}, 403),
        ({"Origin": "http://example.com:{port}"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
)
def test_only_for_its_own_page(port: int, headers: dict[str, str], status: int) -> None:
    named = {name: value.format(port=port) for name, value in headers.items()}
    assert ask(port, "POST", "/classify", PICTURE, **named)[0] == status


def test_no_frames(port: int) -> None:
    """Check that no other page can show this page in a frame, or read its parts."""
    for path in ("/", "/demo.js", "/examples", "/nothing"):
        _, headers, _ = reply(port, "GET", path)
        policy = headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_port_80() -> None:
    """Check that port 80 may be missing in Host and Origin, where browsers leave it out."""
    with running(pretended) as server:
        port, server.server_port = server.server_port, 80
        for name in ("127.0.0.1", "localhost", "localhost:80"):
            assert ask(port, "GET", "/", Host=name)[0] == 200
            sent = {"Host": name, "Origin": f"http://{name}"}
            assert ask(port, "POST", "/classify", PICTURE, **sent)[0] == 200
        assert ask(port, "GET", "/", Host="example.com")[0] == 403


def test_lengths_of_bodies(port: int) -> None:
    for length in ("-1", "4097", "9" * 5000, "1e3", "+64", ""):
        assert ask(port, "POST", "/classify", "", Content_Length=length)[0] == 400


def test_what_waits_is_bounded() -> None:
    """Check that few requests may wait for the machine, and others are refused at once.

    The machine classifies one picture at a time.
    """
    go = Event()
    begun = threading.Semaphore(0)
    statuses: list[int] = []

    def slow(pixels: Any) -> dict[str, Any]:
        begun.release()
        assert go.wait(30)
        return pretended(pixels)

    with served(slow) as port:
        clients = [
            Thread(target=lambda: statuses.append(ask(port, "POST", "/classify", PICTURE)[0]))
            for _ in range(WAITING)
        ]
        for client in clients:
            client.start()
            assert begun.acquire(timeout=30)
        status, content = ask(port, "POST", "/classify", PICTURE)
        assert (status, json.loads(content)) == (
            503,
            {"error": "the machine has enough pictures to do"},
        )
        assert ask(port, "GET", "/")[0] == 200
        go.set()
        for client in clients:
            client.join()
        assert statuses == [200] * WAITING
        assert ask(port, "POST", "/classify", PICTURE)[0] == 200


def test_connections_are_bounded(port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as more:
            assert more.recv(1) == b""
    finally:
        for each in held:
            each.close()
    until(lambda: answers(port))


def answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def until(done: Callable[[], bool]) -> None:
    """Wait until `done()` is true; fail after half a minute."""
    last = time.monotonic() + 30
    while not done():
        assert time.monotonic() < last
        time.sleep(0.01)


@pytest.mark.parametrize("idle", [False, True])
def test_a_client_leaves(
    idle: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that nothing is printed if a client leaves during a request or before the answer."""
    monkeypatch.setattr(web_demo, "IDLE_SECONDS", 0.05)
    go, begun = Event(), Event()

    def slow(pixels: Any) -> dict[str, Any]:
        begun.set()
        assert go.wait(30)
        return pretended(pixels)

    # Requests of earlier tests may still be ending, so only threads that begin from here on count.
    earlier = set(threading.enumerate())
    with running(slow) as server:
        request = (
            f"POST /classify HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n"
            f"Content-Length: {len(PICTURE)}\r\n\r\n{PICTURE}"
        )
        client = socket.create_connection(("127.0.0.1", server.server_port))
        client.sendall(request[: -9 if idle else None].encode())
        if not idle:
            assert begun.wait(30)
            # With this option, closing the socket resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            go.set()
        until(lambda: len(set(threading.enumerate()) - earlier) == 1)
        client.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "options",
    ["--batch 3", "--json f", "--backend iss", "--preset v1", "--report r.html", "--timeline t"],
)
def test_options_that_do_not_go_with_it(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(f"demo --web {options}", capsys)
    assert status == 2
    assert "--web" in err


def test_a_port_that_is_taken(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(f"demo --web {port}", capsys)
    assert (status, err) == (
        2,
        f"tpu: error: port {port}: address already in use (--web 0 takes a free one)\n",
    )


def shown(page: Any) -> list[list[str]]:
    """Return the activation, weight and sum of each array element, as shown on the page."""
    return [cell.inner_text().split("\n") for cell in page.locator("#elements td").all()]


def expected(step: int) -> list[list[str]]:
    state = array(step)
    return [
        [str(state[name][k][c]) for name in ("activations", "weights", "sums")]
        for k in range(2)
        for c in range(2)
    ]


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_forwards_and_backwards(
    port: int, open_page: Callable[..., Any], width: int, scheme: str
) -> None:
    page = open_page(f"http://127.0.0.1:{port}/", width=width, scheme=scheme)
    page.get_by_label("test image of a 4").click()
    page.wait_for_selector("#elements td")
    lit = sum(each > 0 for each in examples()[4])
    assert page.inner_text("#answer") == f"It is a 7, after {lit} cycles on the RTL."
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # The page begins with the cycle in which the first activation enters the array.
    assert (page.inner_text("#cycle"), shown(page)) == ("11", expected(1))
    forward, back = page.locator("#forward"), page.locator("#back")
    for step in (2, 3, 3):
        forward.click()
        assert (page.inner_text("#cycle"), shown(page)) == (str(10 + step), expected(step))
    for step in (2, 1, 0, 0):
        back.click()
        assert shown(page) == expected(step)
        # An activation and a sum are marked as new. The first cycle has no marks, as its
        # predecessor is not known.
        assert page.locator("#elements td.new").count() == (2 if step else 0)
    page.locator("#slider").focus()
    page.keyboard.press("End")
    assert shown(page) == expected(3)
    page.keyboard.press("ArrowLeft")
    assert shown(page) == expected(2)
    page.locator("#play").click()
    page.get_by_text("Pause").wait_for()
    page.get_by_text("Play").wait_for()
    assert shown(page) == expected(3)


def test_an_empty_paper(port: int, open_page: Callable[..., Any]) -> None:
    page = open_page(f"http://127.0.0.1:{port}/")
    page.locator("#classify").click()
    assert page.inner_text("#answer") == "The paper is empty."


def draw(page: Any, points: list[tuple[float, float]]) -> None:
    """Draw a line on the page's paper; points are fractions of the paper's sides."""
    box = page.locator("#paper").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()


@pytest.mark.thorough
def test_draws_and_classifies_on_the_rtl(open_page: Callable[..., Any]) -> None:
    classify = make_classifier()
    classify(examples()[0])  # This call builds the simulator, as the page would not wait for it.
    with served(classify) as port:
        page = open_page(f"http://127.0.0.1:{port}/", width=1000)
        for digit in (0, 3, 8):
            page.get_by_label(f"test image of a {digit}").click()
            page.get_by_text(f"It is a {digit},").wait_for()
        assert re.search(r"after \d+,\d\d\d cycles on the RTL", page.inner_text("#answer"))
        assert page.locator("#elements td").count() == 16
        before = shown(page)
        page.locator("#forward").click()
        assert shown(page) != before
        page.locator("#back").click()
        assert shown(page) == before
        page.locator("#clear").click()
        draw(page, [(0.3, 0.15), (0.7, 0.15), (0.45, 0.85)])
        page.get_by_text("It is a 7,").wait_for()
