# SPDX-License-Identifier: Apache-2.0
"""Functions with which pytest runs the cocotb tests of a module, as environment variables ask.

- PRESET chooses the configuration.
- SIM chooses one of the simulators.
- SEED chooses all random data.
- TEST chooses the tests by a part of their names.
- WAVES=1 asks for a waveform file.
- NETLIST asks for a netlist in place of the Verilog.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from functools import cache

from systola.arch.config import Config, preset
from systola.hdl.parts.fabric import Fabric
from systola.sim.runner import SIMULATORS, TestFailure, run
from systola.sim.waves import how_to_look
from systola.verif.kit.seeds import case_seed, run_seed

PREFIX = "systola.verif."
NETLIST_MACHINE = "3x2"
"""The machine that netlists are made of, unless PRESET chooses another.

This preset is small, not square, and has every instruction.
"""


def simulators() -> list[str]:
    """Return the simulators to test on: the one named in SIM, or all of them.

    Without SIM a netlist is tested on the quickest simulator only.
    """
    chosen = os.environ.get("SIM") or ("verilator" if chosen_netlist() else None)
    return [chosen] if chosen else list(SIMULATORS)


def quick_simulators() -> list[str]:
    """Return the simulators for tests that take minutes on Icarus.

    Icarus is only among them if SIM asks for it.
    """
    return simulators()[:1]


def chosen_netlist() -> Fabric | None:
    """Return the FPGA fabric that NETLIST asks to synthesise for; None without NETLIST."""
    chosen = os.environ.get("NETLIST")
    return Fabric(chosen) if chosen else None


def machine_verilog(config: Config) -> str:
    """Return the Verilog of the whole machine, module `tpu`, with its state as an output.

    If NETLIST is set, return the machine's netlist instead.
    """
    from systola.sim.design import verilog_of
    from systola.sim.state import with_state
    from systola.synth.simulation_netlist import netlist_of

    fabric = chosen_netlist()
    if fabric is None:
        return with_state(verilog_of(config, promises=True))
    return netlist_of(verilog_of(config, fabric), "tpu", fabric)


def preset_name(default: str = "tiny") -> str:
    """Return the name of the machine to test: PRESET if it is set, or else a default.

    Without PRESET all tests on netlists share one machine, and other tests use `default`.
    """
    return os.environ.get("PRESET") or (NETLIST_MACHINE if chosen_netlist() else default)


@cache
def cocotb_tests(module: str) -> tuple[str, ...]:
    """Return the names of the cocotb tests in a module."""
    return tuple(
        test.name
        for item in vars(importlib.import_module(module)).values()
        if hasattr(item, "generate_tests")
        for test in item.generate_tests()
    )


def run_machine(
    module: str,
    simulator: str,
    *,
    config: str | None = None,
    extra_env: dict[str, str] | None = None,
) -> None:
    """Run the cocotb tests of `module`, such as "system.test_faults", on the whole machine.

    `config` is the name of the configuration if PRESET does not choose another.
    """
    name = preset_name(config or "tiny")
    run_module(
        module,
        simulator,
        verilog=machine_verilog(preset(name)),
        top="tpu",
        extra_env={"TPU_PRESET": name, **(extra_env or {})},
    )


def run_module(
    module: str,
    simulator: str,
    *,
    verilog: str,
    top: str,
    extra_env: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> None:
    """Run the cocotb tests of `module` on Verilog module `top` in `verilog`.

    For `options` see `run`.
    """
    full = PREFIX + module
    chosen = os.environ.get("TEST")
    names = [name for name in cocotb_tests(full) if chosen and chosen in name]
    waves = os.environ.get("WAVES") in ("1", "true", "yes")
    settings = {"SIM": simulator, **{name: os.environ.get(name) for name in ("PRESET", "NETLIST")}}
    settings["SEED"] = str(run_seed())
    given = " ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    repeat = f"repeat with: make sim {given} TEST={chosen or module.rpartition('.')[2]}"
    print(repeat)
    try:
        file = run(
            verilog,
            top,
            full,
            simulator=simulator,
            seed=case_seed(),
            waves=waves,
            test_filter="|".join(rf"\.{re.escape(name)}$" for name in names) or None,
            extra_env=extra_env,
            options=options,
        )
    except TestFailure as failure:
        hint = "" if waves else ", and WAVES=1 for a waveform"
        raise TestFailure(str(failure), known=failure.known, repeat=f"{repeat}{hint}") from None
    if file:
        print(how_to_look(file))
