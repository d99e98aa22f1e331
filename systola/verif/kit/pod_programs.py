# SPDX-License-Identifier: Apache-2.0
"""Random programs for the cores of a pod that all reach Halt, and their expected results."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import LINK_OPCODES, PARAMETER_PLANES, Opcode, Operation, Side, decode, encode
from systola.golden.machine import Machine

LINES, ROWS, ENTRIES, TILES = 40, 20, 4, 6
"""The numbers of lines, accumulator rows, parameter entries and weight tiles in use.

They are small, so that instructions often use the same cells.
"""
RESULTS = 0x1000
"""The byte offset in the host window of the final buffer lines.

Instructions read only bytes below RESULTS.
"""
WINDOW = 0x4000
PROGRAM = 0x2000


class PodWriter:
    """A writer of a pod's programs, which adds one random step at a time, for one core or two.

    Each step is executed at once on single golden machines, `expected`. Lines and rows that a core
    sends are taken by its neighbour in the same step or, if they fit into a link, later.
    """

    def __init__(self, rng: random.Random, config: Config, cores: int) -> None:
        self._rng, self._config = rng, config
        self.words: list[list[bytes]] = [[] for _ in range(cores)]
        self.expected = [Machine(config) for _ in range(cores)]
        self.hosts = [self._bytes(WINDOW) for _ in range(cores)]
        weights = [self._bytes(TILES * config.tile_bytes) for _ in range(cores)]
        # In half of the pods all cores have the same weights, so that they may read a shared memory
        # once.
        self.weights = weights[:1] * cores if rng.random() < 0.5 else weights
        self._windows = [host.copy() for host in self.hosts]
        self._links: dict[tuple[int, Side], deque[NDArray[np.generic]]] = {
            (core, side): deque() for core in range(cores) for side in Side
        }
        for core, machine in enumerate(self.expected):
            machine.start(self._windows[core], self.weights[core], 0)
            self._do(core, Opcode.LOAD_PARAMETERS, host=0, parameter=0, count=ENTRIES)
            lines = {"rows": LINES, "stride": config.input_pitch, "blocks": 1, "tail": config.rows}
            self._do(core, Opcode.READ_HOST_MEMORY, host=self._host(), buffer=0, **lines)
            self._matrix(core, ROWS)

    def step(self) -> None:
        """Write a random step: work on one core, a transfer between two cores, or a barrier."""
        core = self._rng.randrange(len(self.words))
        kind = self._rng.random()
        if kind < 0.5:
            side = self._rng.choice(list(Side))
            self._send(core, side)
            if self._beats(core, side) > self._config.link_beats or self._rng.random() < 0.5:
                self._take(core, side)
        elif kind < 0.55:
            for words in self.words:
                words.append(encode(Opcode.BARRIER))
        elif kind < 0.65:
            self._take(core, self._rng.choice(list(Side)))
        else:
            self._rng.choice((self._matrix, self._activate, self._vector, self._copy))(core)

    def finish(self) -> None:
        """Take all data that are under way in links, write all lines to host memory, and end the
        programs.
        """
        for core, side in self._links:
            self._take(core, side)
        pitch = self._config.output_pitch
        for core, words in enumerate(self.words):
            tail = {"stride": pitch, "blocks": 1, "tail": self._config.cols}
            where = {"host": RESULTS, "buffer": 0, "rows": LINES}
            self._do(core, Opcode.WRITE_HOST_MEMORY, **where, **tail)
            words.append(encode(Opcode.HALT))

    def images(self) -> list[Image]:
        """Return a memory image for each core, with its program and data."""
        found: list[Image] = []
        for words, host, weights in zip(self.words, self.hosts, self.weights, strict=True):
            program = b"".join(words)
            assert PROGRAM + len(program) <= WINDOW
            content = host.copy()
            content[PROGRAM : PROGRAM + len(program)] = np.frombuffer(program, np.uint8)
            found.append(Image(program, content, PROGRAM, weights))
        return found

    def check(self, machines: list[Machine], images: list[Image]) -> None:
        """Fail unless memories are as expected after `images` have run on `machines`."""
        for machine, expected, image, window in zip(
            machines, self.expected, images, self._windows, strict=True
        ):
            np.testing.assert_array_equal(machine.buffer, expected.buffer)
            np.testing.assert_array_equal(machine.accumulators, expected.accumulators)
            np.testing.assert_array_equal(image.host[:PROGRAM], window[:PROGRAM])

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._rng.randbytes(count), np.uint8).copy()

    def _host(self) -> int:
        bus = self._config.host_bus_bytes
        return self._rng.randrange(0, RESULTS // 4, bus)

    def _do(self, core: int, opcode: Opcode, **operands: int) -> None:
        self._write(core, opcode, **operands)
        decoded = decode(encode(opcode, **operands))
        assert decoded is not None
        entry, fields = decoded
        at = {field.name: fields[field.name] for field in entry.fields if not field.indexes}
        self.expected[core].execute(entry, at)

    def _write(self, core: int, opcode: Opcode, **operands: int) -> None:
        """Write an instruction for one core; now and then an index register supplies a part of an
        operand.
        """
        for name, numbers in (("buffer", (1, 2, 3)), ("accumulator", (4, 5, 6, 7))):
            if operands.get(name) and self._rng.random() < 0.2:
                register, offset = self._rng.choice(numbers), self._rng.randint(1, operands[name])
                set_register = encode(Opcode.SET_REGISTER, register=register, value=offset)
                self.words[core].append(set_register)
                operands[name] -= offset
                operands[f"{name}_register"] = register
        self.words[core].append(encode(opcode, **operands))

    def _region(self, size: int) -> tuple[int, int]:
        """Return a random first line or row, and a random number of lines or rows from there on."""
        rows = self._rng.randint(1, self._rng.choice((2, size // 2)))
        return self._rng.randint(0, size - rows), rows

    def _neighbour(self, core: int, side: Side) -> int:
        return (core + (1 if side == Side.RIGHT else -1)) % len(self.words)

    def _beats(self, core: int, side: Side) -> int:
        rows, line = self._config.link_row_beats, self._config.link_line_beats
        sent = self._links[core, side]
        return sum(rows if what.dtype == np.int32 else line for what in sent)

    def _send(self, core: int, side: Side) -> None:
        machine, sent = self.expected[core], self._links[core, side]
        for _ in range(self._rng.randint(1, 3)):
            sums = self._rng.random() >= 0.5
            first, rows = self._region(ROWS if sums else LINES)
            if len(self.words) == 1:
                # A core that is its own neighbour receives nothing before it has sent all.
                beats = self._config.link_row_beats if sums else self._config.link_line_beats
                rows = min(rows, (self._config.link_beats - self._beats(core, side)) // beats)
                if rows == 0:
                    return
            if sums:
                sent.extend(machine.accumulators[first : first + rows].copy())
                self._write(core, Opcode.SEND, side=side, sums=1, accumulator=first, rows=rows)
            else:
                sent.extend(machine.buffer[first : first + rows].copy())
                self._write(core, Opcode.SEND, side=side, buffer=first, rows=rows)

    def _take(self, core: int, side: Side) -> None:
        """Write Receives and Reduces in the neighbour for all data that `core` has sent to `side`.

        The data are taken in other pieces than they were sent in.
        """
        sent = self._links[core, side]
        taker = self._neighbour(core, side)
        machine, back = self.expected[taker], Side.LEFT if side == Side.RIGHT else Side.RIGHT
        while sent:
            sums = sent[0].dtype == np.int32
            alike = next((i for i, what in enumerate(sent) if what.dtype != sent[0].dtype), None)
            first, rows = self._region(ROWS if sums else LINES)
            rows = min(rows, alike or len(sent))
            values = np.array([sent.popleft() for _ in range(rows)])
            if not sums:
                machine.buffer[first : first + rows] = values
                self._write(taker, Opcode.RECEIVE, side=back, buffer=first, rows=rows)
                continue
            adds = int(self._rng.random() < 0.7)
            target = machine.accumulators[first : first + rows]
            target[:] = target + values if adds else values
            at = {"accumulator": first, "rows": rows, "accumulate": adds}
            self._write(taker, Opcode.REDUCE, side=back, **at)

    def _matrix(self, core: int, most: int | None = None) -> None:
        first, rows = (0, most) if most else self._region(ROWS)
        tile = self._rng.randrange(TILES)
        self._do(core, Opcode.READ_WEIGHTS, tile=tile, count=1)
        at = {"buffer": self._rng.randint(0, LINES - rows), "accumulator": first, "rows": rows}
        added = int(not most and self._rng.random() < 0.5)
        self._do(core, Opcode.MATRIX_MULTIPLY, **at, k_tiles=1, n_tiles=1, accumulate=added)

    def _activate(self, core: int) -> None:
        first, rows = self._region(ROWS)
        line = self._rng.randint(0, LINES - rows)
        at = {"accumulator": first, "buffer": line, "rows": rows, "n_tiles": 1}
        self._do(core, Opcode.ACTIVATE, **at, parameter=self._rng.randrange(ENTRIES))

    def _vector(self, core: int) -> None:
        rows = self._rng.randint(1, LINES // 4)
        a, b, c = self._rng.sample(range(4), 3)
        size = LINES // 4
        at = {"buffer": a * size, "operand": b * size, "destination": c * size, "rows": rows}
        entry = self._rng.randrange(ENTRIES)
        self._do(core, Opcode.VECTOR, **at, operation=Operation.MULTIPLY, parameter=entry)

    def _copy(self, core: int) -> None:
        first, rows = self._region(LINES)
        pitch = self._config.input_pitch
        at = {"buffer": first, "rows": rows, "stride": pitch, "blocks": 1}
        if self._rng.random() < 0.5:
            tail = self._rng.randint(1, self._config.rows)
            self._do(core, Opcode.READ_HOST_MEMORY, host=self._host(), **at, tail=tail)
        else:
            where = RESULTS // 2 + self._host()
            self._do(core, Opcode.WRITE_HOST_MEMORY, host=where, **at, tail=self._config.cols)


def random_pod(rng: random.Random, config: Config, cores: int, steps: int) -> PodWriter:
    """Make programs for all cores of a pod, which end after `steps` random steps."""
    assert ENTRIES * PARAMETER_PLANES * config.output_pitch <= RESULTS
    writer = PodWriter(rng, config, cores)
    for _ in range(steps):
        writer.step()
    writer.finish()
    return writer


def damage(rng: random.Random, writer: PodWriter) -> None:
    """Replace one random link instruction of a core by another instruction, if the core has one."""
    words = rng.choice(writer.words)
    links = [i for i, word in enumerate(words) if word[0] in LINK_OPCODES]
    if links:
        new = (encode(Opcode.NOP), bytes(16), encode(Opcode.BARRIER), b"\xff" * 16)
        words[rng.choice(links)] = rng.choice(new)
