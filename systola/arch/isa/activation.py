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
    PARTITION_SHIFT,
    PARTITION_ZEROS,
    QUOTIENT_BITS,
    RANDOM_GROUP,
    RANDOM_LANES,
    RANDOM_WARM_UP,
    RECIPROCAL,
    RECIPROCAL_SLOPE,
    RECIPROCAL_START,
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
_ONE_LINE = "(function == QUOTIENT) * (operation == ADD)"
"""Formula with the value 1 for a Vector that has one line as operand b for all vectors, else 0."""
_PARTITION = "accumulate * (wide == 0)"
"""Formula with the value 1 for a partition, else 0. No other legal Vector has these flags."""

_ACTIVATE = f"""\
For n = 0 .. `n_tiles` - 1, m = 0 .. `rows` - 1 and each column c:

1. s = the sum in column c of accumulator row `accumulator` + n * `rows` + m.
2. Entry `parameter` + n has, for channel c, the bias, the multiplier q (31 bits, unsigned), the
   left shift l and the right shift r.
3. x = s + bias, modulo 2^32.
4. x' = x * 2^l, saturated to int32.
5. `rounding` DOUBLE: h = (x' * q + 2^30) >> 31; y = r = 0 ? h : (h + 2^(r-1) - (h < 0)) >> r.
6. `rounding` SINGLE: y = (x' * q + 2^(30+r)) >> (31+r).
7. v = y + `zero_point`, clamped to [low, high].
8. TABLE replaces v by table `table`, entry v.
9. The result goes to byte c of line `buffer` + n * `rows` + m. Bytes of the line beyond C become 0.

Shifts are arithmetic. Nothing overflows. The bounds low and high depend on `function`:

- NONE and TABLE: [-128, 127].
- RELU: [`zero_point`, 127].
- RELU6: low = `zero_point`, high = `ceiling`. If low > high, the result is high.

With `wide` the results are int16. These lines take the place of lines 7 to 9:

1. v = y + d, clamped to [-32768, 32767]. d = `zero_point`. With `accumulate`, d is the int16 that
   the lines of the result hold before.
2. SIGMOID takes v as a fixed-point number of 3 integer and 12 fractional bits. Its result has 15
   fractional bits: `logistic` of gemmlowp's 16-bit fixed-point arithmetic, bit for bit.
3. TANH takes v as a fixed-point number of `table` integer and 15 - `table` fractional bits. Its
   result has 15 fractional bits: gemmlowp's `tanh`, bit for bit.
4. EXP takes v like TANH and gives exp(-|v|) with 15 fractional bits: gemmlowp's
   `exp_on_negative_values` of -|v|, and 32767 for v = 0.
5. EXP with `table` = {RECIPROCAL} or {INVERSE_ROOT} is a reciprocal of |v|, as below.
6. TABLE replaces v by the number of a curve, as below.
7. The low bytes of the results go to line `buffer` + 2 * (n * `rows` + m), the high bytes to the
   next line. So twice the lines are written. Bytes of the lines beyond C become 0.

EXP with `table` = {RECIPROCAL} or {INVERSE_ROOT} takes x = |v| with 15 fractional bits. With
`table` = {RECIPROCAL} it gives 1/x with 13 fractional bits, with `table` = {INVERSE_ROOT} 1/sqrt(x)
with 14. For |v| <= 8192 neither result fits, and it is 32767. Let p(a, b) = (a * b + 2^14) >> 15.

1. Start: y = 32767 + p(-|v|, 15500).
2. Three steps of Newton's: e = 2^13 + p(p(y, y), -|v|); y = min(y + p(2 * e, y), 32767).
3. 1/sqrt(x) is y, and 1/x is p(y, y).

A curve is {CURVE_ENTRIES} int16 numbers L[0], L[1], ..., in {CURVE_TABLES} tables. The numbers
begin at the first byte of table `table`, and each has its low byte first.

1. i = {CURVE_ENTRIES >> 1} + (v >> {CURVE_SHIFT}), f = v modulo 2^{CURVE_SHIFT}.
2. The result is L[i] + (((L[i + 1] - L[i]) * f + {1 << CURVE_SHIFT - 1}) >> {CURVE_SHIFT}).

With `exponent` = k > 0 the shifts of all channels come from exponent register E[k] (see Measure)
and not from the entry:

1. r = E[k], clamped to [0, 31].
2. l = -E[k], clamped to [0, 7].

With `stochastic` results are rounded at random. For each vector, in the order of n and then m, all
generators of Random make a step. They go on from the states in which the last Random, or the last
vector with `stochastic`, has left them. At the start of a program their states are zero, and stay
so until a Random.

1. t, the random number of column 8 * g + j, is bits 8j + 3 to 8j of the state of generator g.
2. y = (x' * q + t * 2^(27+r)) >> (31+r), for any `rounding`.

So y is sometimes one more than the quotient without its fraction. The first four bits of the
fraction are the share of these cases, in sixteenths. A quotient without a fraction is never
increased. On average y is up to 1/16 less than the exact quotient.

- ILLEGAL_FIELD: `accumulate`, SIGMOID, TANH or EXP without `wide`.
- ILLEGAL_FIELD: RELU or RELU6 with `wide`; TABLE with `wide` where there is no attention.
- ILLEGAL_FIELD: TANH or EXP with `table` > {TANH_INTEGER_BITS}; for EXP where there is training,
  `table` > {INVERSE_ROOT}.
- ILLEGAL_FIELD: QUOTIENT.
- ILLEGAL_FIELD: `stochastic` where there is no training.
- UNAVAILABLE: `wide` where there are no 16-bit modes, TABLE where there are no tables, EXP or
  `exponent` where there is no training.
- TABLE_RANGE is checked only for function TABLE."""

_DEPTHWISE = """\
The window is set by Set_Config_Window. T = kernel_height * kernel_width. For b = 0 .. `blocks` - 1,
for each window (p, q) and each channel c of C:

1. s = the sum over the taps (i, j) of a * w, modulo 2^32.
2. a is byte c of line `buffer` + b * H * `pitch` + y * `pitch` + x, where the tap is at row y and
   column x. If the tap is outside the map, a = `fill`.
3. w is byte c of line `taps` + b * T + i * kernel_width + j.
4. The result is made from s as in Activate, with entry `parameter` + b and `function` NONE, RELU or
   RELU6.
5. The result goes to byte c of line `destination` + (b * OH + p) * OW + q. Bytes of the line beyond
   C become 0.

The unit takes one tap in each cycle.

- ILLEGAL_FIELD: `function` TABLE.
- UNAVAILABLE where there are no depthwise lanes.
- BUFFER_RANGE looks at `buffer` with `blocks` * H * `pitch` lines, then `taps` with `blocks` * T,
  then `destination` with `blocks` * OH * OW."""

_POOL = """\
The window is set by Set_Config_Window. Pixels and results lie as for Depthwise. Taps outside the
map do not count.

1. MAX: s is the largest of the taps, -128 if none is inside.
2. AVERAGE, SUM: s is the sum of the taps.
3. s is requantised to y as in Activate, with entry `parameter`. For AVERAGE the entry is
   `parameter` + t - 1, where t is the number of taps inside (1 if there is none). So there is an
   entry for each number of taps that a window at the edge may have inside.
4. The result is y + `zero_point`, clamped to [`floor`, `ceiling`]. If `floor` > `ceiling`, the
   result is `ceiling`.

The unit takes one tap in each cycle. Entries used: kernel_height * kernel_width for AVERAGE, else
one.

- BUFFER_RANGE looks at `buffer` with `blocks` * H * `pitch` lines, then `destination` with
  `blocks` * OH * OW."""

_VECTOR = f"""\
For m = 0 .. `rows` - 1 and each byte c of C:

1. a and b are byte c of lines `buffer` + m and `operand` + m. With `wide_operands` they are int16,
   with the low byte in line 2m and the high byte in line 2m + 1 of the operand.
2. x1 = a - `zero_a`, x2 = b - `zero_b` (see Set_Config_Scale).
3. COPY: s = x1. Operand b is not read.
4. ADD: s = f(x1, `multiplier_a`, `shift_a`) + f(x2, `multiplier_b`, `shift_b`), modulo 2^32.
5. SUBTRACT: s = f(x1, `multiplier_a`, `shift_a`) - f(x2, `multiplier_b`, `shift_b`), modulo 2^32.
6. f(x, q, r): h = (x * q + 2^(k-1)) >> k with k = 11 (int16: 16); f = r = 0 ? h : (h + 2^(r-1) -
   (h < 0)) >> r.
7. MULTIPLY: s = x1 * x2.
8. MULTIPLY with function QUOTIENT: s = x2 * 2^({QUOTIENT_BITS} - n), and 0 for
   n > {QUOTIENT_BITS}. n is the smallest number from 0 on for which x1 lies in
   [-2^n, 2^n - 1]. All that follows is as for function NONE.
9. COPY with function QUOTIENT: s = number k of 256 numbers of int32, k = x1 modulo 256. They lie in
   {LONG_TABLES} tables from the first byte of table `table` on, each with its low byte first. All
   that follows is as for function NONE.
10. ADD with function QUOTIENT: as COPY with QUOTIENT, but k = (x1 - b) modulo 256. b is byte c of
    line `operand`, for all m.
11. The result is made from s as in Activate, with entry `parameter` for all vectors. `function`,
    `rounding`, `zero_point`, `table`, `wide`, `accumulate` and `exponent` mean the same; `ceiling`
    is set by Set_Config_Scale.
12. With `wide`, function NONE or QUOTIENT, and `limit` > 0 the result is clamped to
    [-`limit`, `limit`] at last.
13. The result goes to line `destination` + m. With `wide` it goes to lines `destination` + 2m
    and `destination` + 2m + 1. Bytes beyond C become 0.

ADD with function QUOTIENT and `accumulate`, without `wide`, is a partition: it sums up, and its
result is a parameter entry. These lines take the place of lines 11 to 13, for each byte c of C. Let
p(x, y) = (x * y + 2^30) >> 31.

1. S = the sum of s over all m, modulo 2^32, unsigned.
2. h = the number of leading zeros of S in 32 bits. d = (S * 2^h) >> 1.
3. Start: x = {RECIPROCAL_START} + p(d, {RECIPROCAL_SLOPE}).
4. Three steps of Newton's: x = x + 4 * p(x, 2^29 - p(d, x)).
5. R = min(2 * x, 2^31 - 1), but R = 0 for h < {PARTITION_ZEROS} or S = 0. R is
   `one_over_one_plus_x_for_x_in_0_1` of gemmlowp for S * 2^h - 2^31, bit for bit.
6. Channel c of entry `parameter` becomes bias 0, multiplier R, left shift 0, and right shift
   {PARTITION_SHIFT} - h, but at most 31.

A partition writes no line. Its fields `destination`, `rounding`, `zero_point` and `exponent` do not
matter.

Results may replace an operand: an operand that lies in exactly the lines of the destination causes
no OVERLAP. Line `operand` of ADD with QUOTIENT never does: it is read before results are written.

- ILLEGAL_FIELD as for Activate, but QUOTIENT only with SUBTRACT, with MULTIPLY where there is no
  training, with COPY or ADD where there is no attention, with ADD and `wide_operands`. A partition
  has `accumulate` without `wide`.
- UNAVAILABLE: `wide` or `wide_operands` where there are no 16-bit modes, TABLE where there are no
  tables, EXP or `exponent` where there is no training.
- BUFFER_RANGE looks at `buffer`, then (not for COPY) `operand`, then (not for a partition)
  `destination`."""

_MEASURE = f"""\
The activation unit has {EXPONENT_REGISTERS} exponent registers E[0] to
E[{EXPONENT_REGISTERS - 1}] of 8 bits, two's complement. E[0] is always zero, and all are
zero at the start of a program.

1. e = E[`first`] + E[`second`] - E[`third`] + `value`, modulo 2^8.
2. NONE: E[`exponent`] = e.
3. ACCUMULATORS and LINES: E[`exponent`] = the larger of e and b - `bits`. b is the smallest number
   from 0 on for which all s lie in [-2^b, 2^b - 1].
4. ACCUMULATORS: s are the C sums of each of the `rows` accumulator rows from `accumulator` on.
5. LINES: s are the C int16 values of each of the `rows` pairs of lines from `buffer` on. The low
   bytes are in line `buffer` + 2m, the high bytes in the next.

For NONE `rows` is ignored, but must not be below its minimum.

- ACCUMULATOR_RANGE and BUFFER_RANGE look only at the memory that `source` names; for NONE at
  neither.
- UNAVAILABLE where there is no training."""

_RANDOM = f"""\
There is a generator for each {RANDOM_LANES} columns: generator g serves the columns from
{RANDOM_LANES} * g on, or the few that are left. Its state x has 64 bits.

1. Start: x = (2^63 + 2^32 * `seed` + `counter`) XOR (g * 0x{RANDOM_GROUP:X} modulo 2^63).
2. A step: x ^= x << 13, x ^= x >> 7, x ^= x << 17, modulo 2^64 (Marsaglia's xorshift64).
3. {RANDOM_WARM_UP} steps come first. After them there is a step for each m = 0 .. `rows` - 1.
4. After the step for m, byte {RANDOM_LANES} * g + j of line `destination` + m becomes
   x[j] XOR (x[j + 1] AND x[j + 2]). x[i] is bits 8i + 7 to 8i of x, for i modulo 8.
5. Bytes beyond C become 0.

- UNAVAILABLE where there is no training."""

_TRANSPOSE = """\
All machines with this instruction have R = C. For t = 0 .. `count` - 1, i and j = 0 .. C - 1:

1. Byte j of line `destination` + t * C + i becomes byte i of line `buffer` + t * `step` + j.
2. Lines read: `buffer` to `buffer` + (`count` - 1) * `step` + C - 1, lines between tiles included.
3. Lines written: `count` * C.

- BUFFER_RANGE looks at the lines read, then at the lines written.
- OVERLAP looks at the lines read, lines between tiles included.
- UNAVAILABLE where there is no training."""

ACTIVATION: tuple[Instruction, ...] = (
    Instruction(
        opcode=Opcode.ACTIVATE,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("accumulator", "buffer", "parameter"),
            *beside(_FUNCTION, _TABLE, _ROUNDING),
            flag("wide", "results of int16"),
            flag("accumulate", "add to the old content of the lines"),
            Field(
                name="exponent",
                width=3,
                doc="exponent register with the shift; 0: the entry's",
                default=0,
                beside=True,
            ),
            flag("stochastic", "rounded at random, for any `rounding`"),
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
        semantics=_ACTIVATE,
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
        semantics=_DEPTHWISE,
    ),
    Instruction(
        opcode=Opcode.POOL,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("buffer", "destination"),
            *beside(
                _ROUNDING,
                Field(name="reduction", width=2, doc="operation on each window", values=Reduction),
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
        semantics=_POOL,
    ),
    Instruction(
        opcode=Opcode.VECTOR,
        executor=Executor.ACTIVATION_UNIT,
        fields=(
            *registers("buffer", "operand", "destination"),
            *beside(_FUNCTION, _TABLE, _ROUNDING),
            flag("wide", "results of int16"),
            flag("accumulate", "add to the old content of the destination"),
            *beside(
                Field(
                    name="exponent",
                    width=2,
                    doc="exponent register 1 to 3 with the shift; 0: the entry's",
                    default=0,
                ),
            ),
            flag("wide_operands", "operands of int16"),
            *beside(Field(name="operation", width=2, doc="computation", values=Operation)),
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
            Use(
                Memory.BUFFER,
                "operand",
                f"(operation != COPY) * ({_ONE_LINE} == 0) * (1 + wide_operands) * rows + "
                f"{_ONE_LINE}",
            ),
            # A partition does not read the entry that it writes, but it waits for loads of it.
            Use(Memory.PARAMETERS, "parameter", "1"),
            Use(
                Memory.TABLES,
                "table",
                "(function == TABLE) * (1 + wide * 4) + "
                f"(function == QUOTIENT) * (operation != MULTIPLY) * {LONG_TABLES}",
            ),
        ),
        writes=(
            Use(Memory.BUFFER, "destination", f"({_PARTITION} == 0) * (1 + wide) * rows"),
            Use(Memory.PARAMETERS, "parameter", _PARTITION),
        ),
        checks=(
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        summary="Computes with the elements of one or two operands.",
        semantics=_VECTOR,
    ),
    Instruction(
        opcode=Opcode.MEASURE,
        executor=Executor.ACTIVATION_UNIT,
        needs=Hardware.TRAINING,
        fields=(
            *registers("accumulator", "buffer"),
            *beside(Field(name="source", width=2, doc="numbers that are measured", values=Source)),
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
        semantics=_MEASURE,
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
        semantics=_TRANSPOSE,
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
        semantics=_RANDOM,
    ),
)
