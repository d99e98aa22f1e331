# SPDX-License-Identifier: Apache-2.0
"""The delays of an ECP5's cells, and models that give these delays to Yosys' mapper.

Delays are in nanoseconds, as in nextpnr for speed grade 6. They include the extra time of wires to
and from blocks, compared with wires between slices. For other grades, all delays change by one
factor.
"""

from __future__ import annotations

from collections.abc import Iterable

FF, MEMORY, MULTIPLIER = "TRELLIS_FF", "DP16KD", "MULT18X18D"
RAMW = "TRELLIS_RAMW"
"""Type of the cell that nextpnr makes for the write port of a memory in look-up tables."""

STARTS = {FF: 0.53, RAMW: 0.0, MEMORY: 1.53, MULTIPLIER: 2.0}
"""Time from the clock to an output, in nanoseconds."""
SETUPS = {FF: 0.0, RAMW: 0.0, MEMORY: 0.25, MULTIPLIER: 0.35}
LUT, LUT_OF_CHAIN, INTO_CHAIN, ALONG_CHAIN = 0.24, 0.44, 0.45, 0.07
"""Delays in nanoseconds: of a look-up table, of one in a carry chain, into the chain, along a link.

A carry cell of Yosys is two look-up tables and two links of the chain.
"""
INTO_MUX, SELECT = 0.15, 0.17
WIRE = 1.0
"""Typical delay of a wire in a routed machine, in nanoseconds."""

MODELS = "models.v"
"""Name of the file that the commands of `mapping` read; it must have the text of `ecp5_models`."""


def mapping(command: str, start: str = "") -> list[str]:
    """Return Yosys commands for the steps of `command` from `start` on.

    The steps map the design to cells with the delays in the file MODELS.
    """
    return [
        f"{command} -run {start}:map_luts",
        f"read_verilog -lib -specify -overwrite {MODELS}",
        f"abc9 -W {_picoseconds(WIRE)}",
        "clean",
        f"{command} -run map_cells:",
    ]


def ecp5_models() -> str:
    """Return Verilog of the cells with incomplete delays in Yosys' own library for ABC9.

    `read_verilog -lib -specify -overwrite` replaces the library's cells by these models. The
    library has no delays for blocks and small memories, and its carry chains have no delay for
    wires. These models have both. They also include the delay of a wire to each cell that is no
    look-up table. The option -W of `abc9` adds wires to look-up tables.
    """
    return "\n".join((_carry_chain(), _small_memory(), _memory(), _multiplier()))


def _carry_chain() -> str:
    """Return the model of two bits of a carry chain."""
    pins = {half: [f"{letter}{half}" for letter in "ABCD"] for half in "01"}
    into = WIRE + INTO_CHAIN
    times = [_path(pin, f"S{half}", WIRE + LUT_OF_CHAIN) for half in "01" for pin in pins[half]]
    times += [_path(pin, "S1", into + LUT_OF_CHAIN) for pin in pins["0"]]
    times += [_path(pin, "COUT", into + ALONG_CHAIN) for pin in pins["0"]]
    times += [_path(pin, "COUT", into) for pin in pins["1"]]
    times += [
        _path("CIN", "S0", LUT_OF_CHAIN),
        _path("CIN", "S1", ALONG_CHAIN + LUT_OF_CHAIN),
        _path("CIN", "COUT", 2 * ALONG_CHAIN),
    ]
    settings = ("INIT0", "INIT1", "INJECT1_0", "INJECT1_1")
    inputs, outputs = ["CIN", *pins["0"], *pins["1"]], ["S0", "S1", "COUT"]
    return _cell("CCU2C", inputs, outputs, settings, times, box=True)


def _small_memory() -> str:
    """Return the model of the memory in look-up tables, which is read in the same cycle.

    The model includes the function of the memory. From it the mapper sees the inputs that have no
    path to the output.
    """
    return f"""(* abc9_box, lib_whitebox *)
module TRELLIS_DPR16X4 (
  input [3:0] DI, input [3:0] WAD, input [3:0] RAD, input WRE, input WCK, output [3:0] DO
);
  parameter WCKMUX = "WCK";
  parameter WREMUX = "WRE";
  parameter [63:0] INITVAL = 0;
  reg [3:0] rows [15:0];
  always @(posedge WCK) if (WRE) rows[WAD] <= DI;
  assign DO = rows[RAD];
  specify
{_path("RAD", "DO", WIRE + LUT)}
  endspecify
endmodule
"""


def _memory() -> str:
    """Return the model of the block RAM; each of its two sides has a clock of its own."""
    inputs: list[str] = []
    outputs: list[str] = []
    times: list[str] = []
    for side in "AB":
        timed = [f"DI{side}{i}" for i in range(18)] + [f"AD{side}{i}" for i in range(14)]
        timed += [f"{name}{side}" for name in ("CE", "OCE", "WE")]
        results = [f"DO{side}{i}" for i in range(18)]
        inputs += [*timed, f"CLK{side}", f"RST{side}", *(f"CS{side}{i}" for i in range(3))]
        outputs += results
        times += _clocked(MEMORY, f"CLK{side}", timed, results)
    names = ("DATA_WIDTH", "REGMODE", "WRITEMODE", "CSDECODE")
    settings = [f"{name}_{side}" for name in names for side in "AB"]
    settings += [f"{pin}MUX" for pin in (*inputs, *outputs)]
    settings += ["RESETMODE", "ASYNC_RESET_RELEASE", "GSR", "INIT_DATA", "WID"]
    settings += [f"INITVAL_{number:02X}" for number in range(64)]
    return _cell(MEMORY, inputs, outputs, settings, times)


def _multiplier() -> str:
    """Return the model of the multiplier with its registers."""
    factors = [f"{name}{i}" for name in "AB" for i in range(18)]
    products = [f"P{i}" for i in range(36)]
    inputs = factors + [f"{name}{i}" for name in ("C", "SRIA", "SRIB") for i in range(18)]
    inputs += [f"{name}{i}" for name in ("CLK", "CE", "RST") for i in range(4)]
    inputs += ["SIGNEDA", "SIGNEDB", "SOURCEA", "SOURCEB"]
    outputs = [*products, "SIGNEDP"]
    outputs += [f"{name}{i}" for name in ("SROA", "SROB", "ROA", "ROB", "ROC") for i in range(18)]
    places = ("INPUTA", "INPUTB", "INPUTC", "PIPELINE", "OUTPUT")
    settings = [f"REG_{place}_{pin}" for place in places for pin in ("CLK", "CE", "RST")]
    settings += [f"CLK{i}_DIV" for i in range(4)]
    settings += [
        "GSR",
        "CAS_MATCH_REG",
        "SOURCEB_MODE",
        "MULT_BYPASS",
        "RESETMODE",
        "HIGHSPEED_CLK",
    ]
    return _cell(
        MULTIPLIER, inputs, outputs, settings, _clocked(MULTIPLIER, "CLK0", factors, products)
    )


def _cell(
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    settings: Iterable[str],
    times: Iterable[str],
    *,
    box: bool = False,
) -> str:
    """Return a Verilog module for a cell; `box` is true if a path leads through it without a
    register.
    """
    ports = [f"input {port}" for port in inputs] + [f"output {port}" for port in outputs]
    # The mapper must know the pins of a carry chain, so that it leaves the chain whole.
    carries = ("input CIN", "output COUT")
    ports = [f"(* abc9_carry *) {port}" if port in carries else port for port in ports]
    return "\n".join(
        (
            f"(* {'abc9_box, ' * box}blackbox *)",
            f"module {name} ({', '.join(ports)});",
            *(f"  parameter {setting} = 0;" for setting in settings),
            "  specify",
            *times,
            "  endspecify",
            "endmodule\n",
        )
    )


def _path(start: str, end: str, delay: float) -> str:
    return f"    ({start} *> {end}) = {_picoseconds(delay)};"


def _clocked(name: str, clock: str, inputs: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """Return the timing of a cell with registers, which includes the wires to its inputs."""
    setup, start = _picoseconds(WIRE + SETUPS[name]), _picoseconds(STARTS[name])
    return [
        *(f"    $setup({port}, posedge {clock}, {setup});" for port in inputs),
        *(f"    (posedge {clock} => ({port} : 1'bx)) = {start};" for port in outputs),
    ]


def _picoseconds(nanoseconds: float) -> int:
    return round(1000 * nanoseconds)
