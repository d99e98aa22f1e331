# SPDX-License-Identifier: Apache-2.0
"""Instructions of the activation unit."""

from __future__ import annotations

from dataclasses import replace

from systola.arch.isa.codes import (
    CURVE_ENTRIES,
    CURVE_SHIFT,
    CURVE_TABLES,
    EXPONENT_REGISTERS,
    INVERSE_ROOT,
    LONG_TABLES,
    QUOTIENT_BITS,
    RANDOM_GROUP,
    RANDOM_LANES,
    RANDOM_WARM_UP,
    RECIPROCAL,
    TANH_INTEGER_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    Source,
)
from systola.arch.isa.faults import Fault
from systola.arch.isa.fields import (
    ACCUMULATOR,
    BUFFER,
    CEILING,
    FILL,
    N_TILES,
    ROWS,
    Executor,
    Field,
    Hardware,
    Instruction,
    Memory,
    Use,
    beside,
    flag,
    registers,
)

_PARAMETER = Field(name="parameter", width=12, doc="first parameter entry that is used")
_DESTINATION = Field(name="destination", width=20, doc="first unified-buffer line of the result")
_FUNCTION = Field(name="function", width=3, doc="activation function", default=0, values=Function)
_ROUNDING = Field(name="rounding", width=1, doc="requantisation", default=0, values=Rounding)
_ZERO_POINT = Field(name="zero_point", width=8, signed=True, doc="output zero point", default=0)
_TABLE = Field(
    name="table",
    width=4,
    doc="TABLE: its number; TANH, EXP: integer bits of the argument, or a reciprocal",
    default=0,
)
_BLOCKS_OF_CHANNELS = Field(name="blocks", width=12, doc="blocks of C channels", minimum=1)

ACTIVATION: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.ACTIVATE,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("accumulator", "buffer", "parameter"),
            *beside(_FUNCTION, _TABLE, _ROUNDING),
            flag("wide", "results of int16"),
            flag("accumulate", "add to what the lines hold"),
            Field(
                name="exponent",
                width=3,
                doc="exponent register with the shift; 0: that of the entry",
                default=0,
                beside=True,
            ),
            flag("stochastic", "rounded at random, whatever `rounding` says"),
            ACCUMULATOR,
            BUFFER,
            ROWS,
            _PARAMETER,
            _ZERO_POINT,
            CEILING,
            N_TILES,
        ),
        reads=(
            Use(Memory.ACCUMULATORS, "accumulator", "rows * n_tiles"),
            Use(Memory.PARAMETERS, "parameter", "n_tiles"),
            Use(Memory.TABLES, "table", "(function == TABLE) * (1 + wide * 4)"),
        ),
        writes=(Use(Memory.BUFFER, "buffer", "(1 + wide) * n_tiles * rows"),),
        checks=(
            Fault.UNAVAILABLE,
            Fault.ACCUMULATOR_RANGE,
            Fault.BUFFER_RANGE,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Requantises accumulators into the unified buffer.",
        semantics=(
            "For n = 0 .. `n_tiles` - 1, m = 0 .. `rows` - 1 and each column c: s = accumulator "
            "row `accumulator` + n * `rows` + m; bias, multiplier q (31 bits, unsigned), left and "
            "right shift l, r from entry `parameter` + n, channel c. x = s + bias modulo 2^32; "
            "x' = x * 2^l saturated to int32. "
            "DOUBLE: h = (x' * q + 2^30) >> 31; y = r = 0 ? h : (h + 2^(r-1) - (h < 0)) >> r. "
            "SINGLE: y = (x' * q + 2^(30+r)) >> (31+r). Shifts are arithmetic, nothing overflows. "
            "v = y + `zero_point`, clamped to [low, high]: NONE and TABLE [-128, 127]; RELU "
            "[`zero_point`, 127]; RELU6 low = `zero_point`, high = `ceiling`, and where low > "
            "high the result is high. TABLE replaces v by table `table`, entry v. The result "
            "goes to byte c of line `buffer` + n * `rows` + m; bytes of the line beyond C "
            "become 0. TABLE_RANGE is checked for function TABLE only. "
            "`wide`: v = y + d, clamped to [-32768, 32767]; d = `zero_point`, or with `accumulate` "
            "the int16 that those lines hold. SIGMOID takes v as a fixed-point number of 3 "
            "integer and 12 fractional bits, TANH as one of `table` integer and 15 - `table` "
            "fractional bits; their result has 15 fractional bits. Both are the functions "
            "`logistic` and `tanh` of gemmlowp's 16-bit fixed-point arithmetic, bit for bit. EXP "
            "takes v like TANH and gives exp(-|v|) with 15 fractional bits: gemmlowp's "
            "`exp_on_negative_values` of -|v|, 32767 for v = 0. "
            f"EXP with `table` = {RECIPROCAL} or {INVERSE_ROOT} takes x = |v| with 15 fractional "
            f"bits and gives 1/x with 13 fractional bits ({RECIPROCAL}) or 1/sqrt(x) with 14 "
            f"({INVERSE_ROOT}), 32767 for |v| <= 8192, where neither fits; with p(a, b) = (a * b + "
            "2^14) >> 15: y = 32767 + p(-|v|, 15500); three steps of Newton's, y = min(y + p(2 * "
            "e, y), 32767) with e = 2^13 + p(p(y, y), -|v|); y is 1/sqrt(x), p(y, y) is 1/x. "
            f"TABLE with `wide` is a curve: {CURVE_ENTRIES} int16 numbers L[0], L[1], ..., each "
            f"with its low byte first, from the first byte of table `table` on, in {CURVE_TABLES} "
            f"tables. With i = {CURVE_ENTRIES >> 1} + (v >> {CURVE_SHIFT}) and f = v modulo "
            f"2^{CURVE_SHIFT} it gives L[i] + (((L[i + 1] - L[i]) * f + {1 << CURVE_SHIFT - 1}) >> "
            f"{CURVE_SHIFT}). The "
            "low bytes of the int16 results go to line `buffer` + 2 * (n * `rows` + m), the "
            "high bytes to the next; twice the lines are written. "
            "`exponent` = k > 0: in place of the entry's shifts r = E[k] clamped to [0, 31], "
            "l = -E[k] clamped to [0, 7], for all channels; E: see Measure. "
            "`stochastic`: for each vector, in the order of n and then m, all generators of Random "
            "make a step from where the last Random or vector with `stochastic` has left them; at "
            "the start of a program their states are zero, and stay so until a Random. Then y = "
            "(x' * q + t * 2^(27+r)) >> (31+r) with the random number t of column 8 * g + j, bits "
            "8j + 3 to 8j of the state of generator g. So y is "
            "one more than the quotient without its fraction as often as the first four bits of "
            "the fraction say, in sixteenths: never where there is none, on average up to 1/16 "
            "less than exact. "
            "ILLEGAL_FIELD: `accumulate`, SIGMOID, TANH or EXP without `wide`, RELU or RELU6 with "
            "it, TABLE with it where there is no attention, TANH or EXP with `table` > "
            f"{TANH_INTEGER_BITS} (EXP where there is training: > {INVERSE_ROOT}), QUOTIENT, "
            "`stochastic` where there is no training. "
            "UNAVAILABLE: `wide` "
            "where there are no 16-bit modes, TABLE where there are no tables, EXP or `exponent` "
            "where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.DEPTHWISE,
        executor=Executor.ACTIVATION_UNIT,
        needs=Hardware.DEPTHWISE,
        fields=(
            *registers("buffer", "destination"),
            *beside(
                _ROUNDING,
                Field(
                    name="function",
                    width=2,
                    doc="NONE, RELU or RELU6",
                    default=0,
                    values=Function,
                ),
            ),
            _PARAMETER,
            BUFFER,
            _DESTINATION,
            Field(name="taps", width=20, doc="first unified-buffer line of the weights"),
            _BLOCKS_OF_CHANNELS,
            CEILING,
            _ZERO_POINT,
            FILL,
        ),
        reads=(
            Use(Memory.BUFFER, "buffer", "blocks * map_lines"),
            Use(Memory.BUFFER, "taps", "blocks * kernel_taps"),
            Use(Memory.PARAMETERS, "parameter", "blocks"),
        ),
        writes=(Use(Memory.BUFFER, "destination", "blocks * windows"),),
        checks=(
            Fault.UNAVAILABLE,
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
        ),
        summary="Convolves each channel of a feature map with a kernel of its own.",
        semantics=(
            "The window is that of Set_Config_Window; T = kernel_height * kernel_width. For b = "
            "0 .. `blocks` - 1, for each window (p, q) and each channel c of C: s = the sum over "
            "the taps of x * w, modulo 2^32. x is byte c of line `buffer` + b * H * `pitch` + y * "
            "`pitch` + x, or, outside the map, `fill`; w is byte c of line `taps` + b * T + i * "
            "kernel_width + j. The result is that of Activate with s, entry `parameter` + b, and "
            "`function` NONE, RELU or RELU6 (TABLE is ILLEGAL_FIELD); it goes to byte c of line "
            "`destination` + (b * OH + p) * OW + q; bytes beyond C become 0. BUFFER_RANGE looks at "
            "`buffer` with `blocks` * H * `pitch` lines, then `taps` with `blocks` * T, then "
            "`destination` with `blocks` * OH * OW. UNAVAILABLE where there are no depthwise "
            "lanes. One tap a cycle."
        ),
    ),
    Instruction(
        opcode=Opcode.POOL,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("buffer", "destination"),
            *beside(
                _ROUNDING,
                Field(
                    name="reduction", width=2, doc="what is done with a window", values=Reduction
                ),
            ),
            _PARAMETER,
            BUFFER,
            _DESTINATION,
            _ZERO_POINT,
            Field(name="floor", width=8, signed=True, doc="lower bound", default=-128),
            Field(name="ceiling", width=8, signed=True, doc="upper bound", default=127),
            _BLOCKS_OF_CHANNELS,
        ),
        reads=(
            Use(Memory.BUFFER, "buffer", "blocks * map_lines"),
            Use(Memory.PARAMETERS, "parameter", "1 + (reduction == AVERAGE) * (kernel_taps - 1)"),
        ),
        writes=(Use(Memory.BUFFER, "destination", "blocks * windows"),),
        checks=(Fault.WINDOW, Fault.BUFFER_RANGE, Fault.OVERLAP, Fault.PARAMETER_RANGE),
        summary="Reduces each window of a feature map to one pixel.",
        semantics=(
            "The window is that of Set_Config_Window, pixels and results lie as for Depthwise, "
            "taps outside the map do not count. MAX: s is the largest of the taps, -128 if none "
            "is inside. AVERAGE, SUM: s is their sum. s is requantised as in Activate, with entry "
            "`parameter`, for AVERAGE with entry `parameter` + t - 1, t being the taps inside (1 "
            "if there is none): entries for all counts serve windows at the edges. v = y + "
            "`zero_point`, clamped to [`floor`, `ceiling`]; where these cross, the result is "
            "`ceiling`. BUFFER_RANGE looks at `buffer` with `blocks` * H * `pitch` lines, then "
            "`destination` with `blocks` * OH * OW. Entries: for AVERAGE kernel_height * "
            "kernel_width, else one. One tap a cycle."
        ),
    ),
    Instruction(
        opcode=Opcode.VECTOR,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("buffer", "operand", "destination"),
            *beside(_FUNCTION, _TABLE, _ROUNDING),
            flag("wide", "results of int16"),
            flag("accumulate", "add to what the destination holds"),
            *beside(
                Field(
                    name="exponent",
                    width=2,
                    doc="exponent register 1 to 3 with the shift; 0: that of the entry",
                    default=0,
                ),
            ),
            flag("wide_operands", "operands of int16"),
            *beside(Field(name="operation", width=2, doc="what is computed", values=Operation)),
            Field(name="buffer", width=20, doc="first unified-buffer line of operand a"),
            Field(
                name="operand", width=20, doc="first unified-buffer line of operand b", default=0
            ),
            _DESTINATION,
            Field(name="rows", width=16, doc="vectors", minimum=1),
            _PARAMETER,
            _ZERO_POINT,
        ),
        reads=(
            Use(Memory.BUFFER, "buffer", "(1 + wide_operands) * rows"),
            Use(Memory.BUFFER, "operand", "(operation != COPY) * (1 + wide_operands) * rows"),
            Use(Memory.PARAMETERS, "parameter", "1"),
            Use(
                Memory.TABLES,
                "table",
                "(function == TABLE) * (1 + wide * 4) + "
                f"(function == QUOTIENT) * (operation == COPY) * {LONG_TABLES}",
            ),
        ),
        writes=(Use(Memory.BUFFER, "destination", "(1 + wide) * rows"),),
        checks=(
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Computes with the elements of one or two operands.",
        semantics=(
            "For m = 0 .. `rows` - 1 and each byte c of C: a and b are byte c of lines `buffer` + "
            "m and `operand` + m; with `wide_operands` int16 with the low byte in line 2m, the "
            "high byte in line 2m + 1 of the operand. x1 = a - `zero_a`, x2 = b - `zero_b` (see "
            "Set_Config_Scale). COPY: s = x1, operand b is not read. ADD and SUBTRACT: s = f(x1, "
            "`multiplier_a`, `shift_a`) + or - f(x2, `multiplier_b`, `shift_b`), modulo 2^32, "
            "where h = (x * q + 2^(k-1)) >> k with k = 11 (int16: 16), and f = r = 0 ? h : (h + "
            "2^(r-1) - (h < 0)) >> r. MULTIPLY: s = x1 * x2. MULTIPLY with function QUOTIENT: s = "
            f"x2 * 2^({QUOTIENT_BITS} - n), and 0 for n > {QUOTIENT_BITS}; n is the smallest "
            "number from 0 on for which x1 lies in [-2^n, 2^n - 1], and what follows is as for "
            "NONE. COPY with function QUOTIENT: s = number k of 256 numbers of int32, each with "
            "its low byte first, from the first byte of table `table` on, in "
            f"{LONG_TABLES} tables; k is x1 modulo 256, and what follows is as for NONE. Then as "
            "Activate with s and entry "
            "`parameter` for all vectors: `function`, `rounding`, `zero_point`, `table`, `wide`, "
            "`accumulate`, `exponent` mean the same, `ceiling` is that of Set_Config_Scale. With "
            "`wide`, function NONE or QUOTIENT, and `limit` > 0 the result is clamped to "
            "[-`limit`, `limit`] at last. The result goes to line `destination` + m, or lines + 2m "
            "and + 2m + 1 with `wide`; bytes beyond C become 0. BUFFER_RANGE looks at `buffer`, "
            "then (not for COPY) "
            "`operand`, then `destination`. OVERLAP does not count an operand that lies in "
            "exactly the lines of the destination: results may replace operands. ILLEGAL_FIELD as "
            "for Activate, but QUOTIENT only with ADD or SUBTRACT, with MULTIPLY where there is no "
            "training, with COPY where there is no attention. UNAVAILABLE: `wide` or "
            "`wide_operands` where there are no 16-bit modes, TABLE where there are no tables, EXP "
            "or `exponent` where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.MEASURE,
        executor=Executor.ACTIVATION_UNIT,
        needs=Hardware.TRAINING,
        fields=(
            *registers("accumulator", "buffer"),
            *beside(Field(name="source", width=2, doc="what is measured", values=Source)),
            Field(
                name="accumulator",
                width=16,
                doc="ACCUMULATORS: first accumulator row",
                default=0,
                at=32,
            ),
            Field(name="buffer", width=20, doc="LINES: first unified-buffer line", default=0),
            Field(name="rows", width=16, doc="vectors", default=1, minimum=1),
            Field(name="exponent", width=3, doc="exponent register that is set, 1 to 7", minimum=1),
            *beside(
                Field(name="bits", width=5, doc="bits of a magnitude afterwards", default=7),
                Field(name="first", width=3, doc="exponent register that is added", default=0),
                Field(
                    name="second", width=3, doc="exponent register that is added, too", default=0
                ),
                Field(name="third", width=3, doc="exponent register that is subtracted", default=0),
                Field(name="value", width=8, signed=True, doc="constant", default=0),
            ),
        ),
        reads=(
            Use(Memory.ACCUMULATORS, "accumulator", "(source == ACCUMULATORS) * rows"),
            Use(Memory.BUFFER, "buffer", "(source == LINES) * 2 * rows"),
        ),
        checks=(Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE, Fault.BUFFER_RANGE),
        summary="Sets an exponent register from the largest magnitude, or from other registers.",
        semantics=(
            f"The activation unit has {EXPONENT_REGISTERS} exponent registers E[0] to "
            f"E[{EXPONENT_REGISTERS - 1}] of 8 bits, two's complement; E[0] is always zero, and "
            "all are zero at the start of a program. e = E[`first`] + E[`second`] - E[`third`] + "
            "`value`, modulo 2^8. NONE: E[`exponent`] = e. ACCUMULATORS and LINES: E[`exponent`] = "
            "the larger of e and b - `bits`; b is the smallest number from 0 on for which all s "
            "lie in [-2^b, 2^b - 1]. s are the C sums of each of the `rows` accumulator rows from "
            "`accumulator` on, or the C int16 values of each of the `rows` pairs of lines from "
            "`buffer` on: low bytes in line `buffer` + 2m, high bytes in the next. "
            "ACCUMULATOR_RANGE and BUFFER_RANGE look at what `source` names only; for NONE there "
            "is neither, and `rows` is ignored, but for its minimum. UNAVAILABLE where there is "
            "no training."
        ),
    ),
    Instruction(
        opcode=Opcode.TRANSPOSE,
        executor=Executor.ACTIVATION_UNIT,
        needs=Hardware.TRAINING,
        fields=(
            *registers("buffer", "destination"),
            replace(BUFFER, at=32),
            _DESTINATION,
            Field(name="step", width=16, doc="lines from one tile to the next at the source"),
            Field(name="count", width=12, doc="tiles", minimum=1),
        ),
        reads=(Use(Memory.BUFFER, "buffer", "(count - 1) * step + C"),),
        writes=(Use(Memory.BUFFER, "destination", "count * C"),),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.OVERLAP),
        summary="Transposes tiles of lines.",
        semantics=(
            "For t = 0 .. `count` - 1, i and j = 0 .. C - 1 (R = C wherever there is this "
            "instruction): byte j of line `destination` + t * C + i becomes byte i of line "
            "`buffer` + t * `step` + j. Lines read, and looked at by BUFFER_RANGE and then "
            "OVERLAP: `buffer` to `buffer` + (`count` - 1) * `step` + C - 1, those between tiles "
            "included; lines written: `count` * C, looked at by BUFFER_RANGE second. UNAVAILABLE "
            "where there is no training."
        ),
    ),
    Instruction(
        opcode=Opcode.RANDOM,
        executor=Executor.ACTIVATION_UNIT,
        needs=Hardware.TRAINING,
        fields=(
            *registers("destination", "counter"),
            Field(name="rows", width=16, doc="lines", minimum=1),
            _DESTINATION,
            Field(name="counter", width=32, doc="chooses a sequence, too", default=0),
            Field(name="seed", width=31, doc="chooses a sequence", default=0),
        ),
        writes=(Use(Memory.BUFFER, "destination", "rows"),),
        checks=(Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        summary="Fills lines with random bytes.",
        semantics=(
            f"Generator g serves the columns from {RANDOM_LANES} * g on, {RANDOM_LANES} of them or "
            "as many as are left. Its state x has 64 bits; at the start x = (2^63 + 2^32 * `seed` "
            f"+ `counter`) XOR (g * 0x{RANDOM_GROUP:X} modulo 2^63). A step: x ^= x << 13, x ^= x "
            ">> 7, x ^= x << 17, modulo 2^64 (Marsaglia's xorshift64). After "
            f"{RANDOM_WARM_UP} steps, for m = 0 .. `rows` - 1: a step; then byte "
            f"{RANDOM_LANES} * g + j of line `destination` + m becomes x[j] XOR (x[j + 1] AND "
            "x[j + 2]), x[i] being bits 8i + 7 to 8i of x and i modulo 8. Bytes beyond C become "
            "0. UNAVAILABLE where there is no training."
        ),
    ),
)
