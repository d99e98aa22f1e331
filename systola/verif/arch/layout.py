# SPDX-License-Identifier: Apache-2.0
"""The layout of instruction words, written by hand from the text of the instruction set."""

from __future__ import annotations

LAYOUT: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "nop": (0x01, {}),
    "halt": (0x02, {}),
    "synchronize": (0x03, {}),
    "interrupt_host": (
        0x04,
        {
            "code": (23, 8),
        },
    ),
    "synchronize_host": (0x05, {}),
    "debug_tag": (
        0x06,
        {
            "tag": (23, 8),
            "wait": (27, 24),
        },
    ),
    "require_machine": (
        0x07,
        {
            "rows": (19, 8),
            "columns": (31, 20),
            "host_bus": (43, 32),
            "weight_bus": (55, 44),
        },
    ),
    "set_register": (
        0x08,
        {
            "first": (10, 8),
            "second": (13, 11),
            "register": (16, 14),
            "value": (63, 32),
        },
    ),
    "loop": (
        0x09,
        {
            "count_register": (10, 8),
            "count": (63, 32),
        },
    ),
    "end_loop": (0x0A, {}),
    "set_config_window": (
        0x0C,
        {
            "height": (19, 8),
            "width": (31, 20),
            "pitch": (43, 32),
            "kernel_height": (51, 44),
            "kernel_width": (59, 52),
            "stride_y": (67, 60),
            "stride_x": (75, 68),
            "dilation_y": (79, 76),
            "dilation_x": (83, 80),
            "top": (95, 84),
            "left": (103, 96),
            "out_height": (115, 104),
            "out_width": (127, 116),
        },
    ),
    "set_config_scale": (
        0x0D,
        {
            "multiplier_a": (38, 8),
            "shift_a": (43, 39),
            "multiplier_b": (74, 44),
            "shift_b": (79, 75),
            "zero_a": (87, 80),
            "zero_b": (95, 88),
            "ceiling": (103, 96),
            "limit": (118, 104),
        },
    ),
    "read_host_memory": (
        0x10,
        {
            "host_register": (10, 8),
            "buffer_register": (13, 11),
            "rows": (31, 16),
            "host": (63, 32),
            "buffer": (83, 64),
            "stride": (107, 84),
            "blocks": (119, 108),
            "tail": (127, 120),
        },
    ),
    "write_host_memory": (
        0x11,
        {
            "host_register": (10, 8),
            "buffer_register": (13, 11),
            "rows": (31, 16),
            "host": (63, 32),
            "buffer": (83, 64),
            "stride": (107, 84),
            "blocks": (119, 108),
            "tail": (127, 120),
        },
    ),
    "load_parameters": (
        0x12,
        {
            "host_register": (10, 8),
            "parameter_register": (13, 11),
            "host": (63, 32),
            "parameter": (75, 64),
            "count": (87, 76),
        },
    ),
    "load_table": (
        0x13,
        {
            "host_register": (10, 8),
            "host": (63, 32),
            "table": (67, 64),
        },
    ),
    "read_host_memory_alternate": (
        0x14,
        {
            "host_register": (10, 8),
            "buffer_register": (13, 11),
            "rows": (31, 16),
            "host": (63, 32),
            "buffer": (83, 64),
            "stride": (107, 84),
            "blocks": (119, 108),
            "tail": (127, 120),
        },
    ),
    "write_host_memory_alternate": (
        0x15,
        {
            "host_register": (10, 8),
            "buffer_register": (13, 11),
            "rows": (31, 16),
            "host": (63, 32),
            "buffer": (83, 64),
            "stride": (107, 84),
            "blocks": (119, 108),
            "tail": (127, 120),
        },
    ),
    "read_weights": (
        0x20,
        {
            "tile_register": (10, 8),
            "tile": (55, 32),
            "count": (79, 56),
        },
    ),
    "matrix_multiply": (
        0x30,
        {
            "buffer_register": (10, 8),
            "accumulator_register": (13, 11),
            "weights_register": (16, 14),
            "accumulate": (17, 17),
            "wide_vectors": (18, 18),
            "wide_weights": (19, 19),
            "from_buffer": (20, 20),
            "buffer": (51, 32),
            "accumulator": (67, 52),
            "weights": (87, 68),
            "rows": (103, 88),
            "k_tiles": (115, 104),
            "n_tiles": (127, 116),
        },
    ),
    "convolve": (
        0x31,
        {
            "buffer_register": (10, 8),
            "accumulator_register": (13, 11),
            "accumulate": (14, 14),
            "buffer": (51, 32),
            "accumulator": (67, 52),
            "plane": (87, 68),
            "k_tiles": (99, 88),
            "n_tiles": (111, 100),
            "channels": (119, 112),
            "fill": (127, 120),
        },
    ),
    "activate": (
        0x40,
        {
            "accumulator_register": (10, 8),
            "buffer_register": (13, 11),
            "parameter_register": (16, 14),
            "function": (19, 17),
            "table": (23, 20),
            "rounding": (24, 24),
            "wide": (25, 25),
            "accumulate": (26, 26),
            "exponent": (29, 27),
            "stochastic": (30, 30),
            "accumulator": (47, 32),
            "buffer": (67, 48),
            "rows": (83, 68),
            "parameter": (95, 84),
            "zero_point": (103, 96),
            "ceiling": (111, 104),
            "n_tiles": (123, 112),
        },
    ),
    "depthwise": (
        0x41,
        {
            "buffer_register": (10, 8),
            "destination_register": (13, 11),
            "rounding": (14, 14),
            "function": (16, 15),
            "parameter": (31, 20),
            "buffer": (51, 32),
            "destination": (71, 52),
            "taps": (91, 72),
            "blocks": (103, 92),
            "ceiling": (111, 104),
            "zero_point": (119, 112),
            "fill": (127, 120),
        },
    ),
    "pool": (
        0x42,
        {
            "buffer_register": (10, 8),
            "destination_register": (13, 11),
            "rounding": (14, 14),
            "reduction": (16, 15),
            "parameter": (31, 20),
            "buffer": (51, 32),
            "destination": (71, 52),
            "zero_point": (79, 72),
            "floor": (87, 80),
            "ceiling": (95, 88),
            "blocks": (107, 96),
        },
    ),
    "vector": (
        0x43,
        {
            "buffer_register": (10, 8),
            "operand_register": (13, 11),
            "destination_register": (16, 14),
            "function": (19, 17),
            "table": (23, 20),
            "rounding": (24, 24),
            "wide": (25, 25),
            "accumulate": (26, 26),
            "exponent": (28, 27),
            "wide_operands": (29, 29),
            "operation": (31, 30),
            "buffer": (51, 32),
            "operand": (71, 52),
            "destination": (91, 72),
            "rows": (107, 92),
            "parameter": (119, 108),
            "zero_point": (127, 120),
        },
    ),
    "measure": (
        0x44,
        {
            "accumulator_register": (10, 8),
            "buffer_register": (13, 11),
            "source": (15, 14),
            "accumulator": (47, 32),
            "buffer": (67, 48),
            "rows": (83, 68),
            "exponent": (86, 84),
            "bits": (91, 87),
            "first": (94, 92),
            "second": (97, 95),
            "third": (100, 98),
            "value": (108, 101),
        },
    ),
    "transpose": (
        0x45,
        {
            "buffer_register": (10, 8),
            "destination_register": (13, 11),
            "buffer": (51, 32),
            "destination": (71, 52),
            "step": (87, 72),
            "count": (99, 88),
        },
    ),
    "random": (
        0x46,
        {
            "destination_register": (10, 8),
            "counter_register": (13, 11),
            "rows": (31, 16),
            "destination": (51, 32),
            "counter": (83, 52),
            "seed": (114, 84),
        },
    ),
    "send": (
        0x58,
        {
            "buffer_register": (10, 8),
            "accumulator_register": (13, 11),
            "side": (14, 14),
            "sums": (15, 15),
            "rows": (31, 16),
            "buffer": (51, 32),
            "accumulator": (67, 52),
        },
    ),
    "receive": (
        0x59,
        {
            "buffer_register": (10, 8),
            "side": (11, 11),
            "rows": (27, 12),
            "buffer": (51, 32),
        },
    ),
    "reduce": (
        0x5A,
        {
            "accumulator_register": (10, 8),
            "side": (11, 11),
            "accumulate": (12, 12),
            "rows": (31, 16),
            "accumulator": (47, 32),
        },
    ),
    "barrier": (0x5B, {}),
}
"""Opcode of each instruction, and the most and the least significant bit of each of its fields."""
SIGNED = {"zero_point", "ceiling", "floor", "fill", "zero_a", "zero_b", "value", "top", "left"}
MINIMUM_ONE = {
    *("rows", "blocks", "count", "k_tiles", "n_tiles", "register"),
    *("height", "width", "pitch", "kernel_height", "kernel_width", "out_height", "out_width"),
    *("stride_y", "stride_x", "dilation_y", "dilation_x"),
}
ONE_LESS = {"tail"}
"""Names of fields that hold their operand minus one."""


def extremes(mnemonic: str) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest operand of each field of an instruction."""
    ends: dict[str, tuple[int, int]] = {}
    for name, (high, low) in LAYOUT[mnemonic][1].items():
        width = high - low + 1
        if name in ONE_LESS:
            ends[name] = 1, 2**width
        elif name in SIGNED:
            ends[name] = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        else:
            # A count of 0 is legal in a Loop, as an index register is added to the count. All
            # numbers of a Require_Machine may be 0.
            least = name in MINIMUM_ONE and mnemonic not in ("loop", "require_machine")
            ends[name] = int(least or (mnemonic, name) == ("measure", "exponent")), 2**width - 1
    return ends


def packed(opcode: int, spans: dict[str, tuple[int, int]], operands: dict[str, int]) -> bytes:
    word = opcode
    for name, (high, low) in spans.items():
        word += (operands[name] - (name in ONE_LESS)) % 2 ** (high - low + 1) * 2**low
    return word.to_bytes(16, "little")
