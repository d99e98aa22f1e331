# SPDX-License-Identifier: Apache-2.0
"""The command tpu info: it shows the sizes and addresses of a configuration."""

from __future__ import annotations

import argparse
from typing import Any

from systola.arch.config import Config
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    TABLE_BYTES,
)
from systola.arch.registers import (
    REGISTER_SPACE_BITS,
    REGISTER_TEXT,
    CycleClass,
    Register,
    counter_offset,
)
from systola.cli.arguments import add_preset
from systola.cli.file_names import output_name
from systola.cli.output import STANDARD_OUTPUT, write_output
from systola.cli.pod import add_cores
from systola.cli.report import to_json

HELP = "show sizes, memory map, peak speed and memory budget of a machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_preset(parser)
    add_cores(parser, "show the figures of a pod of N cores, too")
    parser.add_argument(
        "--json",
        type=output_name,
        metavar="FILE",
        nargs="?",
        const="-",
        help="write JSON to this file (default: standard output) instead of text",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    config: Config = arguments.preset
    pod = describe_pod(config, arguments.cores) if arguments.cores else {}
    if arguments.json:
        write_output(arguments.json, to_json({**describe(config), **pod}))
    if arguments.json != STANDARD_OUTPUT:
        print(_text(config))
        if pod:
            print(_pod_text(pod))
    return 0


def describe_pod(config: Config, cores: int) -> dict[str, Any]:
    """Describe a pod of `cores` cores, each with ports and memories of its own, for JSON."""
    numerator, denominator = config.weight_throttle
    return {
        "pod": {
            "cores": cores,
            "peak_macs_per_cycle": cores * config.peak_macs,
            "memory_bytes_total": cores * sum(memory_bytes(config).values()),
            "host_bytes_per_cycle": cores * config.host_bus_bytes,
            "weight_bytes_per_cycle": cores * config.weight_bus_bytes * numerator / denominator,
        }
    }


def _pod_text(described: dict[str, Any]) -> str:
    pod = described["pod"]
    lines = [
        "",
        f"A pod of {pod['cores']} such cores, each with ports and memories of its own",
        f"  peak               {pod['peak_macs_per_cycle']:,} MACs a cycle",
        f"  memory             {pod['memory_bytes_total'] / 1024:,.2f} KiB on the chips",
        f"  host ports         {pod['host_bytes_per_cycle']:,} bytes a cycle, each way",
        f"  weight ports       {pod['weight_bytes_per_cycle']:,g} bytes a cycle",
    ]
    return "\n".join(lines)


def memory_bytes(config: Config) -> dict[str, int]:
    """Return the bytes of every memory on the chip, by unit.

    Each column has its own copy of the tables.
    """
    pe = config.rows * config.cols
    return {
        "unified_buffer": config.buffer_lines * config.line_bytes,
        "accumulators": config.accumulator_rows * config.cols * 4,
        "weight_fifo": config.weight_fifo_tiles * pe,
        "array_weights": 2 * pe,
        "parameters": config.parameter_entries * PARAMETER_PLANES * config.cols,
        "tables": config.tables * TABLE_BYTES * config.cols,
        "depthwise_taps": DEPTHWISE_TAPS * config.cols if config.depthwise else 0,
        "instructions": config.instruction_buffer * INSTRUCTION_BYTES,
    }


def describe(config: Config) -> dict[str, Any]:
    """Describe a configuration, with all that the command shows, for JSON."""
    memories = memory_bytes(config)
    registers = {register.name.lower(): int(register) for register in Register}
    counters = {which.name.lower(): counter_offset(which) for which in CycleClass}
    numerator, denominator = config.weight_throttle
    return {
        "preset": config.name,
        "rows": config.rows,
        "cols": config.cols,
        "columns_per_stage": config.columns_per_stage,
        "columns_per_lane": config.columns_per_lane,
        "products_per_dsp": config.products_per_dsp,
        "rows_in_logic": config.rows_in_logic,
        "peak_macs_per_cycle": config.peak_macs,
        "buffer_lines": config.buffer_lines,
        "buffer_line_bytes": config.line_bytes,
        "buffer_banks": config.buffer_banks,
        "accumulator_rows": config.accumulator_rows,
        "weight_fifo_tiles": config.weight_fifo_tiles,
        "parameter_entries": config.parameter_entries,
        "tables": config.tables,
        "depthwise": config.depthwise,
        "wide": config.wide,
        "parity": config.parity,
        "instruction_buffer": config.instruction_buffer,
        "queue_depth": config.queue_depth,
        "host_bus_bytes": config.host_bus_bytes,
        "weight_bus_bytes": config.weight_bus_bytes,
        "weight_bytes_per_cycle": config.weight_bus_bytes * numerator / denominator,
        "max_burst_beats": config.max_burst_beats,
        "address_bits": config.address_bits,
        "input_pitch": config.input_pitch,
        "output_pitch": config.output_pitch,
        "tile_bytes": config.tile_bytes,
        "memory_bytes": memories,
        "memory_bytes_total": sum(memories.values()),
        "register_space_bytes": 1 << REGISTER_SPACE_BITS,
        "registers": registers,
        "counters": counters,
    }


def _text(config: Config) -> str:
    numerator, denominator = config.weight_throttle
    weight_rate = config.weight_bus_bytes * numerator / denominator
    lines = [
        f"Configuration '{config.name}'",
        "",
        "Sizes",
        f"  array              {config.rows} rows x {config.cols} columns, "
        f"{config.columns_per_stage} columns a stage",
        f"  DSP blocks         {config.products_per_dsp} of the array's products in each, "
        "on fabrics that leave the choice",
        f"  activation lanes   {config.lanes}, {config.columns_per_lane} columns in each",
        f"  peak               {config.peak_macs:,} MACs a cycle",
        f"  unified buffer     {config.buffer_lines:,} lines of {config.line_bytes} bytes, "
        f"{config.buffer_banks} banks",
        f"  accumulators       {config.accumulator_rows:,} rows of {config.cols} x 32 bits",
        f"  weight FIFO        {config.weight_fifo_tiles} tiles",
        f"  parameters         {config.parameter_entries} entries of {config.cols} channels",
        f"  tables             {config.tables} of {TABLE_BYTES} entries",
        f"  depthwise lanes    {'yes' if config.depthwise else 'no'}",
        f"  16-bit modes       {'yes' if config.wide else 'no'}",
        f"  parity             {'buffer and accumulators' if config.parity else 'no'}",
        f"  instructions       {config.instruction_buffer} kept for loops",
        f"  host port          {config.host_bus_bytes} bytes a cycle",
        f"  weight port        {config.weight_bus_bytes} bytes wide, "
        f"{weight_rate:.4g} bytes a cycle",
        f"  bursts             up to {config.max_burst_beats} beats, "
        f"addresses of {config.address_bits} bits",
        f"  instruction queues {config.queue_depth} deep, one for each unit",
        "",
        "Memory budget",
    ]
    memories = memory_bytes(config)
    for name, size in [*memories.items(), ("total", sum(memories.values()))]:
        lines.append(f"  {name.replace('_', ' '):<19}{size / 1024:>12,.2f} KiB")
    lines += ["", "Memory map of the registers (AXI4-Lite)"]
    for register in Register:
        text = REGISTER_TEXT[register]
        lines.append(f"  0x{register:03x}  {text.access:<4}{register.name:<17} {text.doc}")
    for which in CycleClass:
        offset = counter_offset(which)
        lines.append(
            f"  0x{offset:03x}  RO  {which.name:<17} low word; high word 0x{offset + 4:03x}"
        )
    lines += [
        "",
        "Memory map on the chip, as instructions address it",
        f"  buffer       lines 0 to {config.buffer_lines - 1}",
        f"  accumulator  rows 0 to {config.accumulator_rows - 1}",
        f"  parameter    entries 0 to {config.parameter_entries - 1}",
        f"  table        0 to {config.tables - 1}",
        f"  tile         tiles of {config.tile_bytes} bytes in the weight window, "
        f"rows {config.weight_row_pitch} bytes apart",
        f"  host         bytes of the host window, input vectors {config.input_pitch} and "
        f"output vectors {config.output_pitch} bytes apart",
    ]
    return "\n".join(lines)
