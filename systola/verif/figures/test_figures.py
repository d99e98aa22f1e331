# SPDX-License-Identifier: Apache-2.0
"""Tests that figures come from runs of campaigns, and that docs/trust.md shows them."""

import importlib.util

from systola.verif.figures import measure, page, record
from systola.verif.figures.campaigns import CAMPAIGNS, Campaign
from systola.verif.figures.record import Figure

PRINTS = Campaign(
    name="prints",
    what="prints",
    module="this",
    arguments=(),
    command="python -m this",
    pattern=r"^Now is .*$",
)


def test_a_run():
    figure = measure.run(PRINTS, 5)
    assert figure.passed
    assert figure.results == ("Now is better than never.",)
    assert figure.seed == 5


def test_a_run_that_fails():
    failing = Campaign(
        name="fails",
        what="",
        module="systola.verif.regress",
        arguments=("--kind", "none"),
        command="",
        pattern="usage.*",
    )
    figure = measure.run(failing, 5)
    assert not figure.passed
    assert figure.results == ()


def test_the_last_one_counts(tmp_path):
    path = tmp_path / "figures.json"
    first = Figure(True, ("1",), 1, 2, "2026-01-01", "abc")
    last = Figure(False, ("2", "3"), 4, 5, "2026-01-02", "def")
    record.store("a", first, path)
    record.store("b", first, path)
    record.store("a", last, path)
    assert record.stored(path) == {"a": last, "b": first}


def test_the_page(monkeypatch):
    figure = Figure(False, ("two", "results"), 77, 5, "2026-01-02", "def")
    monkeypatch.setattr(page, "stored", lambda: {"errors": figure})
    text = page.page()
    assert "FAILED: two; results" in text
    assert "SEED=77" in text
    assert "Not run yet: programs, garbage" in text


def test_campaigns_exist():
    names = [campaign.name for campaign in CAMPAIGNS]
    assert len(set(names)) == len(names)
    assert all(importlib.util.find_spec(campaign.module) for campaign in CAMPAIGNS)
    assert set(record.stored()) <= set(names)


def test_command(capsys):
    assert measure.main(["nothing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
