# SPDX-License-Identifier: Apache-2.0
"""Tests of plots: their content, and that nothing in them is cut off or overlaps."""

import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from systola.arch.config import PRESETS
from systola.bench.original.result import stored
from systola.bench.original.roofline import roofline as original_roofline
from systola.bench.table import stored_results
from systola.compiler.network import compile_network
from systola.runtime.report import HOST, make_report
from systola.verif.compiler.stored_networks import stored_model
from systola.views.missing_library import MissingLibraryError
from systola.views.plots import (
    cycles_figure,
    layers_figure,
    new_figure,
    roofline_figure,
    to_svg,
)

BASE = PRESETS["base"]


@pytest.fixture(scope="module")
def report():
    return make_report(BASE, compile_network(BASE, stored_model("cnn_residual_dw_pool"), 4))


def draw(name, report):
    if name == "roofline":
        return roofline_figure(BASE, report, "a < b & c")
    if name == "layers":
        return layers_figure(report, "layers")
    product = stored_results()["products"][0]
    return cycles_figure("cycles", [("a long name " * 4, product)])


@pytest.mark.parametrize("name", ["roofline", "layers", "cycles"])
def test_nothing_is_cut_off(name, report):
    """Check that every text lies inside the figure, and that no legend lies on a roofline."""
    figure = draw(name, report)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (left, right), (low, high) = axes.get_xlim(), sorted(axes.get_ylim())
    ticks = [each for each in axes.get_xticklabels() if left <= each.get_position()[0] <= right]
    ticks += [each for each in axes.get_yticklabels() if low <= each.get_position()[1] <= high]
    for text in [*ticks, axes.title, *axes.texts]:
        box = text.get_window_extent()
        if text.get_text():
            assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
            assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text
    legend = axes.get_legend() or figure.legends[0]
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
    if name == "roofline":
        assert box.x0 >= axes.get_window_extent().x1


@pytest.mark.parametrize("name", ["roofline", "layers", "cycles"])
def test_it_is_drawn_the_same_each_time(name, report):
    drawn = to_svg(draw(name, report))
    assert drawn == to_svg(draw(name, report))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_many_layers_leave_room_for_the_axes():
    report = make_report(BASE, compile_network(BASE, stored_model("mobilenet_v1_025_96"), 1))
    for names in (True, False):
        figure = roofline_figure(BASE, report, "", names=names)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        legend = axes.get_legend()
        assert (len(legend.get_texts()) > 28) == names
        assert axes.get_window_extent().width > 4 * figure.dpi
        assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_nothing_lies_on_the_roofline_of_the_original():
    """Check that no name and no legend in the original's roofline covers anything else."""
    figure = original_roofline(stored())
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [each.get_window_extent() for each in axes.texts]
    assert len(names) == 6
    boxes = [*names, axes.get_legend().get_window_extent()]
    roof, *marks = axes.lines
    to_pixels = axes.transData.transform
    radius = marks[0].get_markersize() / 2 * figure.dpi / 72
    for line in marks:
        for x, y in to_pixels(line.get_xydata()):
            mark = Bbox([[x - radius, y - radius], [x + radius, y + radius]])
            assert not any(box.overlaps(mark) for box in boxes)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    path = to_pixels(roof.get_xydata())
    points = [
        begin + (end - begin) * part
        for begin, end in pairwise(path)
        for part in np.arange(0, 1, 0.002)
    ]
    assert not any(box.contains(*point) for box in boxes for point in points)


def test_bars_are_the_cycles(report):
    (axes,) = layers_figure(report, "").axes
    estimated, _ = axes.containers
    rows = [row for row in report.rows if row.place != HOST]
    assert [bar.get_width() for bar in estimated] == [row.estimated_cycles for row in rows]


def test_shares_fill_the_bar():
    (result, *_) = stored_results()["products"]
    (axes,) = cycles_figure("", [("one", result)]).axes
    widths = [bar.get_width() for bars in axes.containers for bar in bars]
    assert sum(widths) == pytest.approx(100)
    assert widths[0] == pytest.approx(100 * 1024 / result["cycles"])


def test_a_machine_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'systola\[plots\]'"):
        new_figure(1, 1)
