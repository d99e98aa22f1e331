# SPDX-License-Identifier: Apache-2.0
"""Tests of the HTML report page of a run, in a real browser."""

from __future__ import annotations

import io
import json
import re
from importlib.resources import files

import numpy as np
import pytest

from systola.arch.config import PRESETS
from systola.cli.main import main
from systola.runtime.api import compile
from systola.runtime.rtl import RtlBackend
from systola.verif.cli.test_errors import run as run_command
from systola.views.report_page import MARKS, TIMELINE_CYCLES, report_page
from systola.views.timeline import make_timeline

TINY = PRESETS["tiny"]
TITLE = "a </script> & <b>"
EXTRA = {"model": "</script><b>"}


def run_mlp(backend):
    folder = files("systola.models")
    model = compile((folder / "mlp_tutorial_pc_softmax.tflite").read_bytes(), preset=TINY, batch=2)
    with np.load(io.BytesIO((folder / "digits_test.npz").read_bytes())) as archive:
        return model.run(archive["x"][:2], backend=backend)


def written(run, path, window=None):
    """Write the report page of a run to a file, and return its address."""
    path.write_bytes(report_page(run, run.report(100), TITLE, EXTRA, window))
    return path.as_uri()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return a run on the golden model, which has no clock, and the address of its report page."""
    run = run_mlp("iss")
    return run, written(run, tmp_path_factory.mktemp("page") / "plain.html")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    with RtlBackend(TINY, records=True) as machine:
        run = run_mlp(machine)
    return run, written(run, tmp_path_factory.mktemp("page") / "recorded.html")


def embedded(page, name="figures"):
    return json.loads(page.locator(f"#{name}").text_content())


def column(page, heading):
    """Return the texts of a table's cells below a heading, from top to bottom."""
    place = page.locator("thead th").all_inner_texts().index(heading) + 1
    return page.locator(f"tbody td:nth-child({place})").all_inner_texts()


def luminance(colour):
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_it_needs_nothing_else(plain, open_page):
    """Check that the page loads no other file, and shows names with HTML tags as plain text."""
    _, address = plain
    page = open_page("about:blank")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    assert asked == [address]
    assert page.locator("h1").inner_text() == page.title() == TITLE
    assert embedded(page)["model"] == EXTRA["model"]
    assert embedded(page)["roofline"]["peak"] == 16
    assert "--backend rtl" not in page.content()
    assert "which this run was not on" in page.inner_text("body")
    assert column(page, "layer")[0] == "0 FULLY_CONNECTED"
    assert page.locator("#buffer").count() == 0


def test_it_sorts(plain, open_page):
    run, address = plain
    page = open_page(address)
    before = column(page, "layer")
    heading = page.locator("th", has_text="estimated")
    expected = [row.estimated_cycles for row in run.layers if row.estimated_cycles is not None]
    for order, backwards in (("descending", True), ("ascending", False)):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == order
        keys = [
            cell.get_attribute("data-key")
            for cell in page.locator(".sortable td:nth-child(4)").all()
        ]
        assert keys[-1] == ""  # the host's row has no cycles, so it comes last in both orders
        assert [float(key) for key in keys[:-1]] == sorted(expected, reverse=backwards)
    page.locator("th button", has_text="layer").click()
    assert heading.get_attribute("aria-sort") is None
    assert column(page, "layer") == sorted(before)


def test_pointer_and_keyboard_show_what_a_dot_is(plain, open_page):
    page = open_page(plain[1])
    dots = embedded(page)["roofline"]["dots"]
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.locator("#roofline-1").hover()
    assert tip.inner_text().startswith("1 FULLY_CONNECTED 10\n")
    assert f"{dots[1]['x']:,.1f} MACs for each byte, weights port" in tip.inner_text()
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    page.keyboard.press("Tab")
    for _ in range(40):  # Tab first visits the headings, and all elements that scroll
        if page.evaluate("document.activeElement.id") == "roofline-0":
            break
        page.keyboard.press("Tab")
    assert tip.inner_text().startswith("0 FULLY_CONNECTED 512\n")
    for key, number in (("ArrowRight", 1), ("ArrowDown", 2), ("ArrowDown", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == f"roofline-{number}"
    page.keyboard.press("Home")
    assert tip.inner_text().startswith("0 FULLY_CONNECTED 512\n")
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_keyboard_sorts(plain, open_page):
    page = open_page(plain[1])
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "MACs":
            break
    page.keyboard.press("Enter")
    heading = page.locator("th", has_text="MACs")
    assert heading.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(plain, open_page, scheme):
    """Check that the page follows the colour scheme, with the contrast of WCAG 2.1, 4.5 to 1."""
    page = open_page(plain[1], scheme=scheme)
    style = "(name) => getComputedStyle(document.body)[name]"
    text, ground = (luminance(page.evaluate(style, each)) for each in ("color", "backgroundColor"))
    assert (text < ground) == (scheme == "light")
    assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5
    # In print, the page always has light colours.
    page.emulate_media(media="print")
    assert luminance(page.evaluate(style, "backgroundColor")) == 1


def overflow(page):
    """Return the number of pixels by which the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_any_width(plain, open_page, width):
    page = open_page(plain[1], width=width)
    assert overflow(page) == 0
    page.locator("#roofline-2").hover()
    box = page.locator("#tip").bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_it_prints(plain, open_page):
    """Check that nothing on a printed page is wider than a sheet, which has no scroll bars."""
    page = open_page(plain[1], width=718)  # the width of A4 at 96 dpi, within margins of 10 mm
    page.emulate_media(media="print")
    widest = "Math.max(...[...document.querySelectorAll('table, svg')].map(e => e.scrollWidth))"
    assert page.evaluate(widest) <= 718
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_options(tmp_path, capsys):
    assert main(["demo", "--report", str(tmp_path / "r.svg")]) == 2
    assert "the page is HTML: call it .html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--report r.html --report-window 5", "'5' is not FROM:TO"),
        ("--report r.html --report-window 0:4001", "4,000 cycles at most, not 4,001"),
        ("--report-window 0:9", "--report-window goes with --report"),
        ("--report r.html --report-window 0:9 --backend iss", "goes with --backend rtl"),
        ("--web 0 --report-window 0:9", "--report-window does not go with --web"),
    ],
)
def test_mistakes_of_the_window(options, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run_command(f"demo {options}", capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_demo_writes_it(tmp_path, open_page):
    path = tmp_path / "r.html"
    assert main(["demo", "--backend", "iss", "--preset", "base", "--report", str(path)]) == 0
    page = open_page(path.as_uri())
    assert page.title() == "mlp_tutorial_pc_softmax.tflite on 'base'"
    assert embedded(page)["accuracy"] > 0.95


@pytest.mark.thorough
def test_what_is_measured(recorded, open_page):
    run, address = recorded
    page = open_page(address, width=360)
    assert overflow(page) == 0
    figures, tips = embedded(page), embedded(page, "tips")
    bars = dict(
        zip(
            *(
                page.locator(f"#cycles + div {each}").all_inner_texts()
                for each in ("th", "td:nth-child(2)")
            ),
            strict=True,
        )
    )
    for name, count in run.counters.items():
        assert bars.get(name.replace("_", " "), "0") == f"{count:,}"
    for name in ("buffer", "weights", "timeline"):
        count = min(MARKS, len(figures[name]))
        assert 0 < count == sum(each.startswith(f"{name}-") for each in tips)
        mark = page.locator(f"#{name}-{count - 1}")
        mark.focus()
        assert page.locator("#tip").inner_text() == "\n".join(tips[f"{name}-{count - 1}"])
    # Each tile of 16 bytes counts for the layer that has its weights. The layers have 64 x 512 and
    # 512 x 10 bytes of weights.
    takes = [(each["layer"], each["tile"], each["count"]) for each in figures["weights"]]
    assert takes == [("0 FULLY_CONNECTED", 0, 2048), ("1 FULLY_CONNECTED", 2048, 384)]
    (_, result), *_ = run.recorded
    timeline = make_timeline(TINY, run.recorded[0][0].image, result.recording)
    inside = [each for each in timeline.work if each.track and 0 <= each.begin < TIMELINE_CYCLES]
    drawn = [
        each for each in figures["timeline"] if each["track"] not in ("fetch", "decode and issue")
    ]
    assert len(drawn) == len(inside)


@pytest.mark.thorough
def test_a_window_of_the_timeline(recorded, tmp_path, open_page):
    """Check that a page for a window of cycles draws the units' work in this window only.

    The time axis has only cycles of the window.
    """
    run, _ = recorded
    ((program, result),) = run.recorded
    timeline = make_timeline(TINY, program.image, result.recording)
    begin, end = result.cycles - 2500, result.cycles + 500
    page = open_page(written(run, tmp_path / "r.html", (begin, end)))
    drawn = embedded(page)["timeline"]
    units = [each["work"] for each in drawn if each["track"] == "array"]
    assert (
        0
        < len(units)
        == sum(
            each.track == "array" and each.begin < result.cycles and each.end > begin
            for each in timeline.work
        )
    )
    assert f"Cycles {begin:,} to {result.cycles:,} of {result.cycles:,};" in page.inner_text("body")
    axis = page.locator("figure[aria-labelledby=timeline] [id='matplotlib.axis_1'] text")
    # The axis has two kinds of texts: its numbers and its title.
    ticks = [int(text) for text in axis.all_text_contents() if text.strip().isdecimal()]
    assert begin <= min(ticks) < max(ticks) <= result.cycles


@pytest.mark.thorough
def test_a_window_after_the_end(recorded, tmp_path, open_page):
    run, _ = recorded
    cycles = run.recorded[0][1].cycles
    page = open_page(written(run, tmp_path / "r.html", (cycles, cycles + 10)))
    assert embedded(page)["timeline"] == []
    assert f"It ended before cycle {cycles:,}, after {cycles:,};" in page.inner_text("body")


@pytest.mark.thorough
def test_what_is_spilled(tmp_path, open_page):
    """Check the page of a run that spills: LeNet-5 on the smallest machine.

    A value of 6,272 bytes goes to host memory, and comes back in pieces beside the network's input.
    """
    model = compile((files("systola.models") / "lenet5.tflite").read_bytes(), preset=TINY, batch=1)
    (value,) = model.inputs
    with RtlBackend(TINY, records=True) as machine:
        run = model.run(np.zeros((1, *value.shape), value.dtype), backend=machine)
    page = open_page(written(run, tmp_path / "r.html"))
    assert "conv2d_1/Tanh (6,272 bytes)" in page.inner_text("body")
    back = sum(
        each["count"] * TINY.line_bytes
        for each in embedded(page)["buffer"]
        if each["mnemonic"].startswith("read_host") and each["layer"] == "2 AVERAGE_POOL_2D"
    )
    assert back == 6272
