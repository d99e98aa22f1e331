# SPDX-License-Identifier: Apache-2.0
"""A writer of instructions that fault, for the middle of random programs, also inside loops."""

from __future__ import annotations

from collections.abc import Callable

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import (
    BY_OPCODE,
    CURVE_TABLES,
    DEPTHWISE_TAPS,
    GATES,
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    INVERSE_ROOT,
    LINK_OPCODES,
    LOOP_DEPTH,
    PARAMETER_PLANES,
    REGISTERS,
    TABLE_BYTES,
    TANH_INTEGER_BITS,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Function,
    Instruction,
    Opcode,
    Operation,
    Reduction,
)
from systola.verif.kit.program_limits import LimitWriter, limit_program, program_alone
from systola.verif.kit.program_state import TILES, ProgramState
from systola.verif.kit.single_instructions import SingleInstructions
from systola.verif.kit.training_faults import TrainingFaults

STATIC_FAULTS = tuple(
    fault
    for fault in Fault
    if fault
    not in (
        Fault.NONE,
        Fault.HOST_READ_ERROR,
        Fault.HOST_WRITE_ERROR,
        Fault.WEIGHT_READ_ERROR,
        Fault.FETCH_ERROR,
        Fault.BUS_TIMEOUT,
        Fault.MEMORY_ERROR,
        Fault.LINK_KIND,
        Fault.LINK_TIMEOUT,
        Fault.POD_STOPPED,
    )
)
"""Faults that a program alone causes, without an error of a bus, a memory or another core."""

_READS = (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
_WRITES = (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
_OFTEN = 0.4
"""The share of the faults at a memory limit that are written by LimitWriter."""


def static_faults(config: Config) -> tuple[Fault, ...]:
    """Return the faults of STATIC_FAULTS that can occur on a machine of this configuration."""
    impossible: list[Fault] = []
    if all((config.depthwise, config.wide, config.tables, config.training, config.links)):
        impossible.append(Fault.UNAVAILABLE)
    if not config.tables:
        impossible.append(Fault.TABLE_RANGE)
    return tuple(fault for fault in STATIC_FAULTS if fault not in impossible)


class FaultWriter(SingleInstructions):
    """A writer of instructions, one of which faults: in the first pass, or a later pass of a loop.

    `depth` loops are open before these instructions. FETCH_WINDOW needs a program without Halt, so
    this class does not write it.
    """

    def __init__(self, writer: ProgramState, depth: int) -> None:
        super().__init__(writer)
        self._depth = depth
        self._limits = LimitWriter(writer)
        self._training = TrainingFaults(writer)

    def write(self, fault: Fault) -> None:
        """Write instructions, one of which causes `fault`."""
        if fault in LimitWriter.FAULTS and self._rng.random() < _OFTEN:
            self._limits.write(fault)
        elif (
            self._config.training and fault in TrainingFaults.FAULTS and self._rng.random() < _OFTEN
        ):
            self._training.write(fault)
        else:
            getattr(self, f"_{fault.name.lower()}")()

    def write_alone(self, fault: Fault) -> None:
        """Write instructions that cause `fault`, one of ALONE, in a program that has set no
        window.
        """
        if self._rng.random() < 0.8:
            self._set_window()
        self.write(fault)

    def write_reserved(self, bit: int) -> None:
        """Write a random instruction in which the reserved bit number `bit` is set."""
        entry = self._rng.choice([entry for entry in INSTRUCTIONS if bit in _reserved(entry)])
        self._word(entry, self._anything(entry), 1 << bit)

    def _limit(self, opcode: Opcode, name: str, value: int, unit: int = 1) -> dict[str, int]:
        """Return the operand `name`, often with an index register, so that it reaches `value`.

        With the register, the operand has `value` in a later pass of the loop. In the passes
        before, the operand is less by multiples of `unit`.
        """
        modulus = 1 << BY_OPCODE[opcode].field(name).width
        late: list[tuple[int, int]] = []
        for register in range(REGISTERS):
            moves = self._writer.offsets(register, modulus)
            last = moves.index(max(moves))
            before = moves[: last + 1]
            near = max(before) - min(before) <= value
            if last and near and not any((move - before[-1]) % unit for move in before):
                late.append((last, register))
        if not late or self._rng.random() < 0.3:
            return self._value(opcode, name, value)
        return self._indexed(opcode, name, value, *self._rng.choice(late))

    def _illegal_opcode(self) -> None:
        unused = sorted(set(range(256)) - {int(opcode) for opcode in Opcode})
        word = bytes([self._rng.choice(unused)]) + self._rng.randbytes(INSTRUCTION_BYTES - 1)
        self._writer.words.append(word)

    def _illegal_field(self) -> None:
        """Write a random instruction with one illegal field; other fields may name cells beyond
        all memories.
        """
        rng, bus = self._rng, self._config.host_bus_bytes
        entry = rng.choice(INSTRUCTIONS)
        at = self._anything(entry)
        wrong: list[dict[str, int]] = []
        for field in entry.fields:
            if field.minimum:
                wrong.append({field.name: 0})
            if field.values and len(field.values) < 1 << field.width:
                wrong.append({field.name: rng.randrange(len(field.values), 1 << field.width)})
            if field.name in ("host", "stride"):
                wrong.append({field.name: at[field.name] + rng.randrange(1, bus)})
        if "host" in at:
            crooked = [r for r, held in enumerate(self._writer.registers[0]) if held % bus]
            wrong += [{"host_register": register} for register in crooked]
        match entry.opcode:
            case Opcode.READ_HOST_MEMORY | Opcode.READ_HOST_MEMORY_ALTERNATE:
                wrong += self._long_tail(self._config.rows)
            case Opcode.WRITE_HOST_MEMORY | Opcode.WRITE_HOST_MEMORY_ALTERNATE:
                wrong += self._long_tail(self._config.cols)
            case Opcode.ACTIVATE | Opcode.VECTOR:
                if entry.opcode == Opcode.ACTIVATE and not self._config.training:
                    wrong.append({"stochastic": 1})
                for function in (*GATES, Function.QUOTIENT):
                    if function != Function.QUOTIENT or not self._divides(at):
                        changes = {"wide": 0, "accumulate": 0, "table": 0}
                        wrong.append({"function": function, **changes})
                if "operation" in at and self._config.attention:
                    changes = {"operation": Operation.ADD, "wide_operands": 1, "table": 0}
                    wrong.append({"function": Function.QUOTIENT, **changes})
                curves = () if self._config.attention else (Function.TABLE,)
                for function in (Function.RELU, Function.RELU6, *curves):
                    wrong.append({"function": function, "wide": 1})
                wrong.append({"wide": 0, "accumulate": 1})
                most = INVERSE_ROOT if self._config.training else TANH_INTEGER_BITS
                for function, bits in ((Function.TANH, TANH_INTEGER_BITS), (Function.EXP, most)):
                    table = rng.randint(bits + 1, 15)
                    wrong.append({"function": function, "wide": 1, "table": table})
            case Opcode.DEPTHWISE:
                wrong.append({"function": Function.TABLE})
            case _:
                pass
        if not entry.reserved or (wrong and rng.random() < 0.8):
            self._word(entry, {**at, **rng.choice(wrong)})
        else:
            self._word(entry, at, 1 << rng.choice(_reserved(entry)))

    def _long_tail(self, most: int) -> list[dict[str, int]]:
        """Return a list of one operand `tail` of more than `most` bytes; an empty list if the
        field cannot hold so large a number.
        """
        _, longest = BY_OPCODE[Opcode.READ_HOST_MEMORY].field("tail").range
        return [{"tail": self._rng.randint(most + 1, longest)}] if most < longest else []

    def _divides(self, at: dict[str, int]) -> bool:
        """Return whether an Activate or Vector with these fields may have function QUOTIENT."""
        operation = at.get("operation")
        sums = operation == Operation.ADD and not at["wide_operands"]
        return (self._config.training and operation == Operation.MULTIPLY) or (
            self._config.attention and (operation == Operation.COPY or sums)
        )

    def _anything(self, entry: Instruction) -> dict[str, int]:
        """Return random legal values for all fields of an instruction, without index registers."""
        at: dict[str, int] = {}
        for field in entry.fields:
            low, high = field.range
            at[field.name] = self._rng.randint(low, high)
            if field.values is not None:
                at[field.name] = self._rng.choice(list(field.values))
            if field.indexes:
                at[field.name] = 0
            if field.name in ("host", "stride"):
                at[field.name] -= at[field.name] % self._config.host_bus_bytes
        if "tail" in at:
            at["tail"] = 1
        if "function" in at:
            at["function"] = Function.NONE
        if "exponent" in at:
            at["exponent"] = max(1, at["exponent"]) if entry.opcode == Opcode.MEASURE else 0
        if "accumulate" in at and "wide" in at:
            at["accumulate"] &= at["wide"]
        if "stochastic" in at:
            at["stochastic"] &= self._config.training
        return at

    def _buffer_range(self) -> None:
        rng, config = self._rng, self._config
        lines = config.buffer_lines
        size = rng.choice((1, 2, rng.randint(1, 8)))
        first = lines - size + 1
        second = rng.choice((first, lines, rng.randint(first, (1 << 20) - 1)))
        opcode = rng.choice(
            (
                *_READS,
                *_WRITES,
                Opcode.MATRIX_MULTIPLY,
                Opcode.CONVOLVE,
                Opcode.ACTIVATE,
                Opcode.POOL,
                Opcode.VECTOR,
                *((Opcode.DEPTHWISE,) if config.depthwise else ()),
            )
        )
        match opcode:
            case _ if opcode in _READS:
                # Data that are read before the fault go to lines on which no other instruction
                # depends.
                self._one(opcode, **self._limit(opcode, "buffer", first), rows=size)
            case _ if opcode in _WRITES:
                blocks = rng.randint(1, 4095)
                rows = rng.choice((size, 65535))
                where = lines - rows * blocks + 1
                at = self._value(opcode, "buffer", rng.choice((max(0, where), second)))
                self._one(opcode, **at, rows=rows, blocks=blocks)
            case Opcode.MATRIX_MULTIPLY | Opcode.ACTIVATE:
                self._one(opcode, **self._value(opcode, "buffer", second), rows=size)
            case Opcode.CONVOLVE:
                self._set_window(height=size)
                plane = rng.choice((0, rng.getrandbits(20)))
                at = self._value(opcode, "buffer", second)
                if rng.random() < 0.3:
                    plane, at = lines, self._value(opcode, "buffer", rng.randrange(lines))
                self._one(opcode, **at, plane=plane, k_tiles=rng.choice((2, 4095)))
            case Opcode.VECTOR:
                operation = rng.choice(list(Operation))
                names = ["buffer", "destination"]
                if operation != Operation.COPY:
                    names.append("operand")
                at = {"buffer": 0, "operand": 0, "destination": 0, "rows": size}
                at["operation"] = operation
                name = rng.choice(names)
                self._one(opcode, **{**at, **self._value(opcode, name, second)})
            case _:
                names = ["buffer", "destination"]
                if opcode == Opcode.DEPTHWISE:
                    names.append("taps")
                name = rng.choice(names)
                many = {
                    "buffer": {"height": size},
                    "taps": {"kernel_height": size},
                    "destination": {"out_height": size},
                }
                self._set_window(**many[name])
                self._one(opcode, **self._value(opcode, name, second))

    def _accumulator_range(self) -> None:
        rng, rows = self._rng, self._config.accumulator_rows
        size = rng.choice((1, 2, rng.randint(1, 8)))
        first = rows - size + 1
        opcode = rng.choice((Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.ACTIVATE))
        value = rng.choice((first, rows, rng.randint(first, 65535)))
        match opcode:
            case Opcode.MATRIX_MULTIPLY if self._writer.supply(1):
                self._writer.consume(1)
                at = self._limit(opcode, "accumulator", first)
                self._one(opcode, **at, rows=size, buffer=self._writer.spans.lines.start)
            case Opcode.CONVOLVE:
                self._set_window(out_height=size)
                self._one(opcode, **self._value(opcode, "accumulator", value))
            case _:
                many = rng.choice(({"rows": size}, {"n_tiles": size}, {"rows": 9, "n_tiles": 4095}))
                if "rows" in many and "n_tiles" in many:
                    value = rng.randrange(rows)
                opcode = Opcode.ACTIVATE
                self._one(opcode, **self._value(opcode, "accumulator", value), **many)

    def _parameter_range(self) -> None:
        rng, config = self._rng, self._config
        size = rng.randint(1, min(4, config.parameter_entries))
        first = config.parameter_entries - size + 1
        value = rng.choice((first, rng.randint(first, 4095)))
        opcodes = [Opcode.LOAD_PARAMETERS, Opcode.ACTIVATE, Opcode.POOL, Opcode.VECTOR]
        if config.depthwise:
            opcodes.append(Opcode.DEPTHWISE)
        opcode = rng.choice(opcodes)
        at = {"parameter": value}
        match opcode:
            case Opcode.LOAD_PARAMETERS:
                at = self._limit(opcode, "parameter", first)
                host = self._writer.spans.parameters.start
                self._one(opcode, **at, host=host, count=size)
            case Opcode.ACTIVATE:
                at = self._value(opcode, "parameter", value)
                self._one(opcode, **at, n_tiles=size)
            case Opcode.DEPTHWISE:
                self._set_window()
                self._one(opcode, **at, blocks=size, destination=8, taps=0)
            case Opcode.POOL:
                self._set_window(kernel_height=size)
                self._one(opcode, **at, destination=8, reduction=Reduction.AVERAGE)
            case _:
                self._one(opcode, parameter=config.parameter_entries, operation=Operation.COPY)

    def _table_range(self) -> None:
        rng, tables = self._rng, self._config.tables
        opcode = rng.choice((Opcode.LOAD_TABLE, Opcode.ACTIVATE, Opcode.VECTOR))
        curves = self._config.attention
        if curves and (tables > 15 or rng.random() < 0.5):
            opcode = rng.choice((Opcode.ACTIVATE, Opcode.VECTOR))
            tables -= CURVE_TABLES - 1
            how = {"function": Function.TABLE, "wide": 1}
            # With wide operands, results may lie in exactly the lines of an operand: no OVERLAP.
            how |= {"wide_operands": 1} if opcode == Opcode.VECTOR else {}
        else:
            how = {} if opcode == Opcode.LOAD_TABLE else {"function": Function.TABLE}
        self._one(opcode, table=rng.choice((tables, 15, rng.randint(tables, 15))), **how)

    def _host_window(self) -> None:
        rng, config, spans = self._rng, self._config, self._writer.spans
        bus, line = config.host_bus_bytes, spans.lines.start
        opcode = rng.choice((*_READS, *_WRITES, Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE))
        if opcode == Opcode.LOAD_TABLE and not config.tables:
            opcode = Opcode.LOAD_PARAMETERS
        match opcode:
            case _ if opcode in _READS:
                stride = bus * rng.randrange(8)
                end = spans.window - config.input_pitch - stride
                at = self._limit(opcode, "host", end + bus, bus)
                self._one(opcode, **at, buffer=line, rows=2, stride=stride)
            case _ if opcode in _WRITES:
                end = spans.window - config.output_pitch
                host = rng.choice((end + bus, spans.window, (1 << 32) - bus))
                self._one(opcode, **self._value(opcode, "host", host), buffer=line)
            case Opcode.LOAD_PARAMETERS:
                end = spans.window - PARAMETER_PLANES * config.output_pitch
                at = self._limit(opcode, "host", end + bus, bus)
                self._one(opcode, **at, parameter=spans.entries.start)
            case _:
                end = spans.window - TABLE_BYTES
                self._one(opcode, **self._limit(opcode, "host", end + bus, bus), table=0)

    def _weight_window(self) -> None:
        opcode, count = Opcode.READ_WEIGHTS, self._rng.randint(1, 3)
        if len(self._writer.queued) == WEIGHT_READS_IN_FLIGHT or self._rng.random() < 0.3:
            self._one(opcode, **self._value(opcode, "tile", TILES), count=(1 << 24) - 1)
            return
        self._writer.queued.append(count)
        self._one(opcode, **self._limit(opcode, "tile", TILES - count + 1), count=count)

    def _weight_underflow(self) -> None:
        rng, spans, queued = self._rng, self._writer.spans, sum(self._writer.queued)
        if rng.random() < 0.5:
            wide = int(self._config.wide and rng.random() < 0.5)
            tiles = (queued >> wide) + 1
            self._one(
                Opcode.MATRIX_MULTIPLY,
                buffer=spans.lines.start,
                accumulator=spans.accumulators.start,
                **rng.choice(({"k_tiles": tiles}, {"n_tiles": tiles})),
                wide_weights=wide,
            )
        else:
            self._set_window(kernel_height=queued + 1)
            self._one(
                Opcode.CONVOLVE,
                buffer=spans.lines.start,
                accumulator=spans.accumulators.start,
                channels=rng.randrange(2),
            )

    def _weight_overflow(self) -> None:
        read = Opcode.READ_WEIGHTS
        if self._depth < LOOP_DEPTH and self._rng.random() < 0.5:
            self._one(Opcode.LOOP, count=WEIGHT_READS_IN_FLIGHT + 1)
            self._one(read, **self._value(read, "tile", self._rng.randrange(TILES)))
            self._one(Opcode.END_LOOP)
        else:
            for _ in range(WEIGHT_READS_IN_FLIGHT + 1):
                self._one(read, **self._value(read, "tile", self._rng.randrange(TILES)))

    def _unavailable(self) -> None:
        config, rng = self._config, self._rng
        lacking: list[tuple[Opcode, dict[str, int]]] = []
        if not config.wide:
            lacking += [
                (Opcode.MATRIX_MULTIPLY, {"wide_vectors": 1}),
                (Opcode.MATRIX_MULTIPLY, {"wide_weights": 1}),
                (Opcode.ACTIVATE, {"wide": 1}),
                (Opcode.ACTIVATE, {"wide": 1, "function": Function.SIGMOID, "accumulate": 1}),
                (Opcode.ACTIVATE, {"wide": 1, "function": Function.TANH, "table": 4}),
                (Opcode.VECTOR, {"wide": 1}),
                (Opcode.VECTOR, {"wide_operands": 1}),
            ]
        if not config.training:
            lacking += [
                (Opcode.MEASURE, {}),
                (Opcode.TRANSPOSE, {}),
                (Opcode.RANDOM, {}),
                (Opcode.MATRIX_MULTIPLY, {"from_buffer": 1}),
                (Opcode.ACTIVATE, {"exponent": rng.randint(1, 7)}),
                (Opcode.ACTIVATE, {"wide": 1, "function": Function.EXP, "table": 4}),
                (Opcode.VECTOR, {"exponent": rng.randint(1, 3)}),
                (Opcode.VECTOR, {"wide": 1, "function": Function.EXP, "table": 0}),
            ]
        if not config.links:
            lacking += [(opcode, {}) for opcode in LINK_OPCODES]
        if not config.depthwise:
            lacking.append((Opcode.DEPTHWISE, {}))
        if not config.tables:
            lacking += [
                (Opcode.LOAD_TABLE, {}),
                (Opcode.ACTIVATE, {"function": Function.TABLE, "wide": 0, "accumulate": 0}),
                (Opcode.VECTOR, {"function": Function.TABLE, "wide": 0, "accumulate": 0}),
            ]
        opcode, needs = rng.choice(lacking)
        self._word(BY_OPCODE[opcode], {**self._anything(BY_OPCODE[opcode]), **needs})

    def _window(self) -> None:
        rng, size = self._rng, self._config.rows
        if all(word[0] != Opcode.SET_CONFIG_WINDOW for word in self._writer.words):
            opcodes = [Opcode.CONVOLVE, Opcode.POOL]
            if self._config.depthwise:
                opcodes.append(Opcode.DEPTHWISE)
            entry = BY_OPCODE[rng.choice(opcodes)]
            self._word(entry, self._anything(entry))
            return
        if self._config.depthwise and rng.random() < 0.2:
            taps = rng.choice(((DEPTHWISE_TAPS + 1, 1), (5, 13), (255, 255), (1, 255)))
            self._set_window(kernel_height=taps[0], kernel_width=taps[1])
            self._one(Opcode.DEPTHWISE)
            return
        channels = rng.randint(2, size)
        most = size // channels
        change, k_tiles = rng.choice(
            (
                ({"kernel_width": rng.choice((most + 1, 255))}, 1),
                ({"stride_x": min(255, rng.randint(most + 1, 256))}, 1),
                ({"dilation_x": rng.randint(2, 15)}, 1),
                (
                    {
                        "left": rng.choice(
                            (max(-128, -most - 1), min(127, -(-size // channels)), -128, 127)
                        )
                    },
                    1,
                ),
                ({}, rng.choice((2, 4095))),
            )
        )
        self._set_window(**change)
        self._one(Opcode.CONVOLVE, channels=channels, k_tiles=k_tiles)

    def _overlap(self) -> None:
        rng, start = self._rng, self._writer.spans.lines.start
        rows = rng.randint(2, 6)
        opcodes = [Opcode.POOL, Opcode.VECTOR]
        if self._config.depthwise:
            opcodes.append(Opcode.DEPTHWISE)
        opcode = rng.choice(opcodes)
        source, apart = start + rows, start + 4 * rows
        if opcode == Opcode.VECTOR:
            # The results overlap a part of an operand's lines. Either the results begin at another
            # line, or the machine has int16 and the results are longer than the operand.
            how = {"destination": source + rng.choice((-1, 1)) * rng.randint(1, rows - 1)}
            if self._config.wide and rng.random() < 0.3:
                how = {"destination": source, "wide": 1}
            operation = rng.choice(list(Operation))
            near, far = "buffer", "operand"
            if operation != Operation.COPY and rng.random() < 0.5:
                near, far = far, near
            where = {near: source, far: apart, "rows": rows, "operation": operation}
            self._one(opcode, **where, **how)
            return
        self._set_window(height=rows, kernel_height=rows, out_height=rows)
        result = source + rng.randint(1 - rows, rows - 1)
        where = {"buffer": source, "destination": result}
        if opcode == Opcode.DEPTHWISE:
            near, far = rng.choice((("buffer", "taps"), ("taps", "buffer")))
            where = {near: source, far: apart, "destination": result}
        self._one(opcode, **where)

    def _other_machine(self) -> None:
        """Write a Require_Machine with one or several operands wrong, often in a single bit."""
        rng, opcode, own = self._rng, Opcode.REQUIRE_MACHINE, self._writer.machine
        found = dict(own)
        while found == own:
            for name in rng.sample(list(own), rng.choice((1, 1, 1, 2, 4))):
                width = BY_OPCODE[opcode].field(name).width
                found[name] = rng.choice((own[name] ^ 1 << rng.randrange(width), 0))
                if rng.random() < 0.3:
                    found[name] = rng.getrandbits(width)
        self._one(opcode, **found)

    def _loop(self) -> None:
        choice = self._rng.randrange(3 if self._depth == 0 else 2)
        if choice == 0:
            self._one(Opcode.LOOP, **self._value(Opcode.LOOP, "count", 0))
        elif choice == 1:
            for _ in range(LOOP_DEPTH + 1 - self._depth):
                self._one(Opcode.LOOP, count=1)
        else:
            self._one(Opcode.END_LOOP)


ALONE = (
    *(Fault.ILLEGAL_OPCODE, Fault.ILLEGAL_FIELD, Fault.WINDOW, Fault.OVERLAP, Fault.LOOP),
    Fault.OTHER_MACHINE,
    *(Fault.BUFFER_RANGE, Fault.PARAMETER_RANGE, Fault.TABLE_RANGE, Fault.UNAVAILABLE),
    *(Fault.ACCUMULATOR_RANGE, Fault.WEIGHT_OVERFLOW),
)
"""Faults that the machine finds in an instruction without any data."""


def fault_program(config: Config, seed: str, fault: Fault) -> Image:
    """Make a program of one instruction with a fault of ALONE, and the instructions it needs."""
    return program_alone(config, seed, lambda state: FaultWriter(state, 0).write_alone(fault))


def lone_faults(config: Config) -> list[tuple[Fault, Callable[[Config, str, Fault], Image]]]:
    """Return the faults that a short program can cause, each with the function that makes the
    program.
    """
    alone = [(fault, fault_program) for fault in ALONE if fault in static_faults(config)]
    return [*((fault, limit_program) for fault in LimitWriter.FAULTS), *alone]


def _reserved(entry: Instruction) -> list[int]:
    """Return the numbers of the bits of an instruction word that must be zero."""
    return [bit for start, end in entry.reserved for bit in range(start, end)]


def reserved_program(config: Config, seed: str, bit: int) -> Image:
    """Make a program of one instruction in which reserved bit `bit` is set."""
    return program_alone(config, seed, lambda state: FaultWriter(state, 0).write_reserved(bit))
