# SPDX-License-Identifier: Apache-2.0
"""Tests of `make chain`: quick simulators agree, and planted differences are found."""

from dataclasses import replace

import pytest

from systola.arch.config import preset
from systola.verif.chain.__main__ import compare, links, main
from systola.verif.chain.links import library_facts
from systola.verif.kit.seeds import random_seed

QUICK = ("C++ library", "Amaranth")


@pytest.mark.thorough
def test_links():
    known = links()
    quick = {name: known[name] for name in QUICK}
    assert compare(preset("tiny"), random_seed(), 3, quick) == 0


def test_all_links_are_there():
    names = list(links(["ecp5", "generic"]))
    assert len(names) == 6
    assert {"cocotb, icarus", "cocotb, verilator", "netlist, generic"} <= set(names)


@pytest.mark.parametrize("what", ["host", "fault", "interrupt", "tags", "times"])
def test_a_difference(what, capsys):
    def wrong(config, seed, count):
        facts = library_facts(config, seed, count)
        kinds = {"host": "", "interrupt": -1, "times": (1,)}
        return [*facts[:-1], replace(facts[-1], **{what: kinds.get(what, (-1,))})]

    config = preset("tiny")
    assert compare(config, 3, 2, {"right": library_facts, "wrong": wrong}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("equal")
    assert ("cycles are not" if what == "times" else f"program 1: {what}") in lines[-1]


def test_command(capsys):
    assert main(["--preset", "large"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
