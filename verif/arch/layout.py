# SPDX-License-Identifier: Apache-2.0
"""The layout of instruction words, written down from the text of the ISA."""

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
            "rows": (16, 8),
            "columns": (25, 17),
            "host_bus": (34, 26),
            "weight_bus": (43, 35),
        },
    ),
    "set_register": (
        0x08,
        {
            "register": (10, 8),
            "value": (42, 11),
            "first": (45, 43),
            "second": (48, 46),
        },
    ),
    "loop": (
        0x09,
        {
            "count": (39, 8),
            "count_register": (42, 40),
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
            "stride_y": (66, 60),
            "stride_x": (73, 67),
            "dilation_y": (77, 74),
            "dilation_x": (81, 78),
            "top": (94, 82),
            "left": (103, 95),
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
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "write_host_memory": (
        0x11,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "load_parameters": (
        0x12,
        {
            "host": (39, 8),
            "parameter": (51, 40),
            "count": (63, 52),
            "host_register": (66, 64),
            "parameter_register": (69, 67),
        },
    ),
    "load_table": (
        0x13,
        {
            "host": (39, 8),
            "table": (43, 40),
            "host_register": (46, 44),
        },
    ),
    "read_host_memory_alternate": (
        0x14,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "write_host_memory_alternate": (
        0x15,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "read_weights": (
        0x20,
        {
            "tile": (31, 8),
            "count": (55, 32),
            "tile_register": (58, 56),
        },
    ),
    "matrix_multiply": (
        0x30,
        {
            "buffer": (27, 8),
            "accumulator": (43, 28),
            "rows": (59, 44),
            "k_tiles": (71, 60),
            "n_tiles": (83, 72),
            "accumulate": (84, 84),
            "wide_vectors": (85, 85),
            "wide_weights": (86, 86),
            "buffer_register": (89, 87),
            "accumulator_register": (92, 90),
            "from_buffer": (93, 93),
            "weights": (113, 94),
            "weights_register": (116, 114),
        },
    ),
    "convolve": (
        0x31,
        {
            "buffer": (27, 8),
            "accumulator": (43, 28),
            "plane": (63, 44),
            "k_tiles": (75, 64),
            "n_tiles": (87, 76),
            "accumulate": (88, 88),
            "channels": (96, 89),
            "fill": (104, 97),
            "buffer_register": (107, 105),
            "accumulator_register": (110, 108),
        },
    ),
    "activate": (
        0x40,
        {
            "accumulator": (23, 8),
            "buffer": (43, 24),
            "rows": (59, 44),
            "n_tiles": (71, 60),
            "parameter": (83, 72),
            "function": (86, 84),
            "rounding": (87, 87),
            "zero_point": (95, 88),
            "ceiling": (103, 96),
            "table": (107, 104),
            "wide": (108, 108),
            "accumulate": (109, 109),
            "accumulator_register": (112, 110),
            "buffer_register": (115, 113),
            "parameter_register": (118, 116),
            "exponent": (121, 119),
            "stochastic": (122, 122),
        },
    ),
    "depthwise": (
        0x41,
        {
            "buffer": (27, 8),
            "taps": (47, 28),
            "destination": (67, 48),
            "blocks": (79, 68),
            "parameter": (91, 80),
            "function": (93, 92),
            "rounding": (94, 94),
            "zero_point": (102, 95),
            "ceiling": (110, 103),
            "fill": (118, 111),
            "buffer_register": (121, 119),
            "destination_register": (124, 122),
        },
    ),
    "pool": (
        0x42,
        {
            "buffer": (27, 8),
            "destination": (47, 28),
            "blocks": (59, 48),
            "parameter": (71, 60),
            "reduction": (73, 72),
            "rounding": (74, 74),
            "zero_point": (82, 75),
            "floor": (90, 83),
            "ceiling": (98, 91),
            "buffer_register": (101, 99),
            "destination_register": (104, 102),
        },
    ),
    "vector": (
        0x43,
        {
            "operation": (9, 8),
            "buffer": (29, 10),
            "operand": (49, 30),
            "destination": (69, 50),
            "rows": (85, 70),
            "parameter": (97, 86),
            "function": (100, 98),
            "rounding": (101, 101),
            "zero_point": (109, 102),
            "table": (113, 110),
            "wide_operands": (114, 114),
            "wide": (115, 115),
            "accumulate": (116, 116),
            "buffer_register": (119, 117),
            "operand_register": (122, 120),
            "destination_register": (125, 123),
            "exponent": (127, 126),
        },
    ),
    "measure": (
        0x44,
        {
            "source": (9, 8),
            "exponent": (12, 10),
            "accumulator": (28, 13),
            "buffer": (48, 29),
            "rows": (64, 49),
            "bits": (69, 65),
            "first": (72, 70),
            "second": (75, 73),
            "third": (78, 76),
            "value": (86, 79),
            "accumulator_register": (89, 87),
            "buffer_register": (92, 90),
        },
    ),
    "transpose": (
        0x45,
        {
            "buffer": (27, 8),
            "destination": (47, 28),
            "count": (59, 48),
            "step": (75, 60),
            "buffer_register": (78, 76),
            "destination_register": (81, 79),
        },
    ),
    "random": (
        0x46,
        {
            "destination": (27, 8),
            "rows": (43, 28),
            "seed": (74, 44),
            "counter": (106, 75),
            "destination_register": (109, 107),
            "counter_register": (112, 110),
        },
    ),
    "send": (
        0x58,
        {
            "side": (8, 8),
            "sums": (9, 9),
            "buffer": (29, 10),
            "accumulator": (45, 30),
            "rows": (61, 46),
            "buffer_register": (64, 62),
            "accumulator_register": (67, 65),
        },
    ),
    "receive": (
        0x59,
        {
            "side": (8, 8),
            "buffer": (28, 9),
            "rows": (44, 29),
            "buffer_register": (47, 45),
        },
    ),
    "reduce": (
        0x5A,
        {
            "side": (8, 8),
            "accumulator": (24, 9),
            "rows": (40, 25),
            "accumulate": (41, 41),
            "accumulator_register": (44, 42),
        },
    ),
    "barrier": (0x5B, {}),
}
"""Opcode and (most, least significant bit) of each field."""
SIGNED = {"zero_point", "ceiling", "floor", "fill", "zero_a", "zero_b", "value", "top", "left"}
MINIMUM_ONE = {
    *("rows", "blocks", "tail", "count", "k_tiles", "n_tiles", "register"),
    *("height", "width", "pitch", "kernel_height", "kernel_width", "out_height", "out_width"),
    *("stride_y", "stride_x", "dilation_y", "dilation_x"),
}


def extremes(mnemonic: str) -> dict[str, tuple[int, int]]:
    """Smallest and largest value of each field."""
    ends: dict[str, tuple[int, int]] = {}
    for name, (high, low) in LAYOUT[mnemonic][1].items():
        width = high - low + 1
        if name in SIGNED:
            ends[name] = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        else:
            # Loop may say 0: its index register adds to it. Require_Machine may: it is compared.
            least = name in MINIMUM_ONE and mnemonic not in ("loop", "require_machine")
            ends[name] = int(least or (mnemonic, name) == ("measure", "exponent")), 2**width - 1
    return ends


def packed(opcode: int, spans: dict[str, tuple[int, int]], operands: dict[str, int]) -> bytes:
    word = opcode
    for name, (high, low) in spans.items():
        word += operands[name] % 2 ** (high - low + 1) * 2**low
    return word.to_bytes(16, "little")
