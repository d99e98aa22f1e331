# SPDX-License-Identifier: Apache-2.0
"""A writer of random legal instructions, which use only a few ranges of each memory."""

from __future__ import annotations

from systola.arch.isa import (
    CURVE_TABLES,
    EXPONENT_REGISTERS,
    GATES,
    INVERSE_ROOT,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    TANH_INTEGER_BITS,
    WEIGHT_READS_IN_FLIGHT,
    Function,
    Opcode,
    Operation,
    Reduction,
)
from systola.golden.window import Window
from systola.verif.kit.program_control import Step
from systola.verif.kit.program_state import ATTEMPTS, ProgramState
from systola.verif.kit.random_windows import fits_packed, packed_window, pixel_window

_MOST_QUEUED = 16
"""The number of tiles that Read_Weights queue ahead; a Convolve queues the tiles that it needs."""
_MOST_TILES = 18
"""The largest number of tiles that one Convolve uses."""
_MOST_TAPS = 150
"""The largest number of taps of a Depthwise or Pool, all windows together; each takes a cycle."""
_MOST_GATES = 2
"""The largest number of vectors of an instruction with SIGMOID or TANH.

Each of these vectors takes some 70 cycles.
"""
_RECTIFIERS = (Function.NONE, Function.RELU, Function.RELU6)


class ProgramWriter(ProgramState):
    """A writer of random instructions, with a method for each opcode, called by the opcode's name.

    A method writes the instruction, after the instructions that it needs. If the instruction would
    not be legal, the method may write another instruction or none.
    """

    def write(self, step: Step) -> None:
        """Write the instructions for one place of the program's control flow."""
        getattr(self, step.opcode.name.lower())(**step.operands)

    # Methods for control instructions.

    def nop(self) -> None:
        """Write a few NOPs, or as many as the instruction buffer holds.

        A full buffer of NOPs is frequent in a loop. Each pass then has to fetch all instructions
        again.
        """
        rng, many = self.rng, self.config.instruction_buffer
        count = rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 5, many))
        if self.outside and rng.random() < 0.5:
            count = many
        for _ in range(count):
            self.emit(Opcode.NOP)

    def synchronize(self) -> None:
        self.emit(Opcode.SYNCHRONIZE)

    def interrupt_host(self) -> None:
        self.emit(Opcode.INTERRUPT_HOST, code=self.number(0, 0xFFFF))

    def synchronize_host(self) -> None:
        self.emit(Opcode.SYNCHRONIZE_HOST)

    def debug_tag(self) -> None:
        self.emit(Opcode.DEBUG_TAG, tag=self.number(0, 0xFFFF), wait=self.rng.getrandbits(4))

    def require_machine(self) -> None:
        self.emit(Opcode.REQUIRE_MACHINE, **self.machine)

    def set_register(self, **operands: int) -> None:
        self.emit(Opcode.SET_REGISTER, **operands)

    def loop(self, **operands: int) -> None:
        self.enter_loop()
        self.emit(Opcode.LOOP, **operands)

    def end_loop(self) -> None:
        self.leave_loop()
        self.emit(Opcode.END_LOOP)

    # Methods for copies between host memory and the on-chip memories.

    def read_host_memory(self) -> None:
        self._copy(Opcode.READ_HOST_MEMORY, self.config.input_pitch, self.config.rows)

    def read_host_memory_alternate(self) -> None:
        self._copy(Opcode.READ_HOST_MEMORY_ALTERNATE, self.config.input_pitch, self.config.rows)

    def write_host_memory(self) -> None:
        self._copy(Opcode.WRITE_HOST_MEMORY, self.config.output_pitch, self.config.cols)

    def write_host_memory_alternate(self) -> None:
        self._copy(Opcode.WRITE_HOST_MEMORY_ALTERNATE, self.config.output_pitch, self.config.cols)

    def _copy(self, opcode: Opcode, pitch: int, vector: int) -> None:
        rng, bus, shared = self.rng, self.config.host_bus_bytes, self.spans.shared
        blocks = rng.choice((1, 1, 2, 3))
        rows = min(self.rows(12), self.spans.lines.size // blocks)
        stride = rng.choice(
            (blocks * pitch, blocks * pitch, (blocks + 1) * pitch, bus * rng.randint(0, 8))
        )
        while (rows - 1) * stride + blocks * pitch > shared.size:
            rows -= 1
        extent = (rows - 1) * stride + blocks * pitch
        self.emit(
            opcode,
            self.region(opcode, "host", shared, extent, unit=bus),
            self.region(opcode, "buffer", self.spans.lines, rows * blocks),
            rows=rows,
            stride=stride,
            blocks=blocks,
            tail=rng.choice((vector, rng.randint(1, vector))),
        )

    def load_parameters(self) -> None:
        spans, entry = self.spans, PARAMETER_PLANES * self.config.output_pitch
        count = self.rng.randint(1, min(3, spans.entries.size))
        source, unit = spans.parameters, entry
        if self.rng.random() < 0.3 and spans.shared.size >= count * entry:
            source, unit = spans.shared, self.config.host_bus_bytes
        opcode = Opcode.LOAD_PARAMETERS
        self.emit(
            opcode,
            self.region(opcode, "host", source, count * entry, unit=unit),
            self.region(opcode, "parameter", spans.entries, count),
            count=count,
        )

    def load_table(self) -> None:
        if not self.config.tables:
            return
        sources = [s for s in (self.spans.tables, self.spans.shared) if s.size >= TABLE_BYTES]
        source, unit = self.rng.choice(sources), self.config.host_bus_bytes
        self.emit(
            Opcode.LOAD_TABLE,
            self.region(Opcode.LOAD_TABLE, "host", source, TABLE_BYTES, unit=unit),
            table=self.rng.randrange(self.config.tables),
        )

    # Methods for weights and products of the matrix unit.

    def read_weights(self) -> None:
        count = self.rng.randint(1, 3)
        full = len(self.queued) == WEIGHT_READS_IN_FLIGHT
        if full or sum(self.queued) + count > _MOST_QUEUED:
            self.matrix_multiply()
        else:
            self.queue_weights(count)

    def matrix_multiply(self) -> None:
        available = sum(self.queued)
        if not available:
            self.queue_weights(self.rng.randint(1, 3))
            return
        wide_vectors, wide_weights = (
            int(self.config.wide and self.rng.random() < 0.4) for _ in range(2)
        )
        if available == 1:
            wide_weights = 0
        available >>= wide_weights
        k_tiles = self.rng.randint(1, min(4, available))
        n_tiles = self.rng.randint(1, min(4, available // k_tiles))
        limit = min(
            self.spans.lines.size // (k_tiles << wide_vectors),
            self.spans.accumulators.size // n_tiles,
        )
        self.multiply(k_tiles, n_tiles, min(self.rows(9), limit), wide_vectors, wide_weights)

    def convolve(self) -> None:
        rng, size, lines = self.rng, self.config.rows, self.spans.lines.size
        rows = self.spans.accumulators.size
        channels = k_tiles = 0
        if rng.random() < 0.4:
            channels = rng.choice((1, 2, 3, rng.randint(1, size), size, -(-size // 3)))
            window = self.some_window(
                lambda: packed_window(rng, size, channels),
                lambda w: fits_packed(w, size, channels) and w.kernel_height <= _MOST_TILES,
                rows,
            )
            k_tiles = 1
        else:
            window = self.some_window(
                lambda: pixel_window(rng),
                lambda w: w.pitch >= w.width and w.taps <= _MOST_TILES,
                rows,
            )
        if window is None:
            return
        steps = window.kernel_height if channels else window.taps
        k_tiles = k_tiles or rng.randint(1, min(3, _MOST_TILES // steps))
        most = min(3, _MOST_TILES // (steps * k_tiles), rows // window.windows)
        n_tiles = rng.randint(1, most)
        room = (lines - window.map_lines) // max(1, k_tiles - 1)
        plane = rng.choice((min(window.map_lines, room), rng.randint(0, room)))
        if channels or k_tiles == 1:
            plane = rng.choice((0, plane, rng.getrandbits(20)))
        extent = window.map_lines + (0 if k_tiles == 1 else (k_tiles - 1) * plane)
        tiles = n_tiles * steps * k_tiles
        if not self.supply(tiles):
            self.matrix_multiply()
            return
        self.consume(tiles)
        opcode, sums = Opcode.CONVOLVE, window.windows * n_tiles
        self.emit(
            opcode,
            self.region(opcode, "buffer", self.spans.lines, extent),
            self.region(opcode, "accumulator", self.spans.accumulators, sums),
            plane=plane,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
            accumulate=rng.randrange(2),
            channels=channels,
            fill=self.number(-128, 127),
        )

    # Methods for the settings of window and scale.

    def set_config_window(self) -> None:
        if not self.window_fixed:
            self.set_window(pixel_window(self.rng))

    def set_config_scale(self) -> None:
        rng = self.rng

        def multiplier() -> int:
            return rng.choice(
                (
                    rng.randint(1 << 30, (1 << 31) - 1),
                    self.number(0, (1 << 31) - 1),
                    rng.getrandbits(12),
                    1 << rng.randint(20, 30),
                )
            )

        self.emit(
            Opcode.SET_CONFIG_SCALE,
            multiplier_a=multiplier(),
            shift_a=rng.choice((0, rng.randint(1, 6), self.number(0, 31))),
            multiplier_b=multiplier(),
            shift_b=rng.choice((0, rng.randint(1, 6), self.number(0, 31))),
            zero_a=rng.choice((0, self.number(-128, 127))),
            zero_b=rng.choice((0, self.number(-128, 127))),
            ceiling=self.number(-128, 127),
            limit=rng.choice((0, self.number(0, (1 << 15) - 1))),
        )

    # Methods for instructions of the activation unit.

    def activate(self) -> None:
        rng, spans, opcode = self.rng, self.spans, Opcode.ACTIVATE
        how = self._function()
        n_tiles = rng.randint(1, min(3, spans.entries.size))
        limit = min(spans.lines.size >> how["wide"], spans.accumulators.size) // n_tiles
        rows = min(self.rows(9), limit)
        if _is_gate(how):
            n_tiles, rows = 1, min(rows, _MOST_GATES)
        vectors = rows * n_tiles
        self.emit(
            opcode,
            self.region(opcode, "accumulator", spans.accumulators, vectors),
            self.region(opcode, "buffer", spans.lines, vectors << how["wide"]),
            self.region(opcode, "parameter", spans.entries, n_tiles),
            rows=rows,
            n_tiles=n_tiles,
            ceiling=self.number(-128, 127),
            rounding=rng.randrange(2),
            zero_point=self.number(-128, 127),
            exponent=self._exponent(EXPONENT_REGISTERS),
            stochastic=int(self.config.training and rng.random() < 0.3),
            **how,
        )

    def _exponent(self, registers: int) -> int:
        """Return the number of a random exponent register, often 0, which stands for none."""
        if not self.config.training or self.rng.random() < 0.5:
            return 0
        return self.rng.randrange(registers)

    def _function(self) -> dict[str, int]:
        """Return fields `function`, `table`, `wide` and `accumulate` for an Activate or Vector."""
        rng = self.rng
        if self.config.wide and rng.random() < 0.4:
            functions = [Function.NONE, Function.NONE, Function.SIGMOID, Function.TANH]
            functions.append(Function.EXP if self.config.training else Function.TANH)
            functions += [Function.TABLE, Function.TABLE] * self.config.attention
            function = rng.choice(functions)
            most = {Function.TABLE: self.config.tables - CURVE_TABLES}
            most |= {Function.TANH: TANH_INTEGER_BITS, Function.EXP: INVERSE_ROOT}
            table = rng.randint(0, most.get(function, 15))
            add = rng.randrange(2)
            return {"function": function, "table": table, "wide": 1, "accumulate": add}
        functions = [*_RECTIFIERS, Function.TABLE] if self.config.tables else _RECTIFIERS
        function = rng.choice(functions)
        table = rng.randrange(self.config.tables if function == Function.TABLE else 16)
        return {"function": function, "table": table, "wide": 0, "accumulate": 0}

    def depthwise(self) -> None:
        if not self.config.depthwise:
            return
        window = self._walked()
        if window is None:
            return
        rng, lines, opcode = self.rng, self.spans.lines, Opcode.DEPTHWISE
        blocks = self._blocks(window, self.spans.entries.size)
        taps, results = blocks * window.taps, blocks * window.windows
        for _ in range(ATTEMPTS):
            if taps > lines.size:
                return
            source = self.region(opcode, "buffer", lines, blocks * window.map_lines)
            kernels = self.region(opcode, "taps", lines, taps)
            result = self.region(opcode, "destination", lines, results)
            if result.apart(source) and result.apart(kernels):
                break
        else:
            return
        self.emit(
            opcode,
            source,
            kernels,
            result,
            self.region(opcode, "parameter", self.spans.entries, blocks),
            blocks=blocks,
            function=rng.choice(_RECTIFIERS),
            rounding=rng.randrange(2),
            zero_point=self.number(-128, 127),
            ceiling=self.number(-128, 127),
            fill=self.number(-128, 127),
        )

    def pool(self) -> None:
        window = self._walked()
        if window is None:
            return
        rng, lines, opcode = self.rng, self.spans.lines, Opcode.POOL
        entries = self.spans.entries
        reduction = rng.choice(list(Reduction))
        if window.taps > entries.size:
            reduction = rng.choice((Reduction.MAX, Reduction.SUM))
        blocks = self._blocks(window, 3)
        for _ in range(ATTEMPTS):
            source = self.region(opcode, "buffer", lines, blocks * window.map_lines)
            result = self.region(opcode, "destination", lines, blocks * window.windows)
            if result.apart(source):
                break
        else:
            return
        used = window.taps if reduction == Reduction.AVERAGE else 1
        self.emit(
            opcode,
            source,
            result,
            self.region(opcode, "parameter", entries, used),
            blocks=blocks,
            reduction=reduction,
            rounding=rng.randrange(2),
            zero_point=rng.choice((0, self.number(-128, 127))),
            floor=rng.choice((-128, self.number(-128, 127))),
            ceiling=rng.choice((127, self.number(-128, 127))),
        )

    def _walked(self) -> Window | None:
        """Return a window that suits Depthwise and Pool; None if no such window is found."""
        return self.some_window(
            lambda: pixel_window(self.rng),
            lambda w: w.pitch >= w.width and w.taps * w.windows <= _MOST_TAPS and w.taps <= 64,
            self.spans.lines.size // 2,
        )

    def _blocks(self, window: Window, most: int) -> int:
        lines = self.spans.lines.size
        most = min(most, 3, lines // max(window.map_lines, window.windows))
        return self.rng.randint(1, max(1, min(most, _MOST_TAPS // (window.taps * window.windows))))

    def vector(self) -> None:
        rng, lines, opcode = self.rng, self.spans.lines, Opcode.VECTOR
        operation = rng.choice(list(Operation))
        how = self._function()
        if self.config.training and operation == Operation.MULTIPLY and rng.random() < 0.3:
            how["function"] = Function.QUOTIENT
        wide_operands = int(self.config.wide and rng.random() < 0.5)
        looks_up = operation in (Operation.COPY, Operation.ADD)
        once = False  # whether only the first line of operand b is read
        if self.config.attention and looks_up and rng.random() < 0.3:
            how["function"] = Function.QUOTIENT
            how["table"] = rng.randint(0, self.config.tables - LONG_TABLES)
            once = operation == Operation.ADD
            wide_operands &= not once
            if once and rng.random() < 0.4:
                self._partition(how)
                return
        rows = min(self.rows(9), lines.size // 4)
        if _is_gate(how):
            rows = min(rows, _MOST_GATES)
        read, written = rows << wide_operands, rows << how["wide"]
        for _ in range(ATTEMPTS):
            a = self.region(opcode, "buffer", lines, read)
            b = self.region(opcode, "operand", lines, 1 if once else read)
            result = self.region(opcode, "destination", lines, written)
            if rng.random() < 0.2 and not once:
                b = a.named("buffer", "operand")
            replaced = rng.choice((None, None, a, a if once else b)) if read == written else None
            if replaced is a:
                result = a.named("buffer", "destination")
            elif replaced is b:
                result = b.named("operand", "destination")
            sources = [a] if operation == Operation.COPY else [a, b]
            if all(
                result.apart(source) or (read == written and result.starts == source.starts)
                for source in sources[: 1 if once else 2]
            ):
                break
        else:
            return
        self.emit(
            opcode,
            *sources,
            result,
            self.region(opcode, "parameter", self.spans.entries, 1),
            operation=operation,
            rows=rows,
            rounding=rng.randrange(2),
            zero_point=self.number(-128, 127),
            wide_operands=wide_operands,
            exponent=self._exponent(4),
            **({"operand": rng.getrandbits(20)} if operation == Operation.COPY else {}),
            **how,
        )

    def _partition(self, how: dict[str, int]) -> None:
        """Append a Vector that makes a parameter entry of the sum of all its vectors."""
        rng, lines, opcode = self.rng, self.spans.lines, Opcode.VECTOR
        rows = min(self.rows(9), lines.size // 4)
        self.emit(
            opcode,
            self.region(opcode, "buffer", lines, rows),
            self.region(opcode, "operand", lines, 1),
            self.region(opcode, "parameter", self.spans.entries, 1),
            operation=Operation.ADD,
            rows=rows,
            rounding=rng.randrange(2),
            zero_point=self.number(-128, 127),
            destination=rng.getrandbits(20),
            exponent=self._exponent(4),
            **{**how, "wide": 0, "accumulate": 1},
        )


def _is_gate(how: dict[str, int]) -> bool:
    return how["function"] in GATES
