# SPDX-License-Identifier: Apache-2.0
"""Tests of the serial bridge at its pins: requests, repeated requests, noise, broken frames.

A frame is a request or a reply with its CRC, between two END bytes. An END or ESCAPE inside the
frame is sent as two bytes.
"""

import struct
import zlib

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from systola.arch.serial_protocol import (
    END,
    ESCAPE,
    MAX_WORDS,
    Operation,
    Status,
    decode_frame,
    encode_frame,
)
from systola.boards.board_memory import BoardMemory
from systola.boards.lite_memory_port import LiteMemoryPort
from systola.boards.serial_bridge import SerialBridge
from systola.verif.kit.launch import quick_simulators, run_module
from systola.verif.kit.serial_line import SerialLine
from systola.verif.units.unit import TOP, Bench, convert, rng

DIVISOR = 8
BOARD_WORDS = {0: 0x12345678, 4: 0xC0DBC0DB}
MEMORY_BYTES, REGISTER_BYTES = 2048, 1024


class Rig(wiring.Component):
    """A serial bridge with two memories, one of them in place of the machine's registers."""

    def __init__(self):
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.bridge = bridge = SerialBridge(
            divisor=DIVISOR, address_bits=40, board_words=BOARD_WORDS
        )
        for name, bus, address_bits, size in (
            ("memory", bridge.memory, 40, MEMORY_BYTES),
            ("registers", bridge.control, 12, REGISTER_BYTES),
        ):
            sizes = {"address_bits": address_bits, "data_bytes": 8}
            m.submodules[f"{name}_port"] = port = LiteMemoryPort(**sizes)
            m.submodules[name] = memory = BoardMemory(size=size, ports=1, **sizes)
            connect(m, bus, port.bus)
            connect(m, port.access, memory.ports[0])
        m.d.comb += [bridge.rx.eq(self.rx), self.tx.eq(bridge.tx)]
        return m


def request(operation, sequence, address, *words, count=None):
    """Return the content of a request to the bridge, as the protocol's text defines it."""
    header = struct.pack("<BBHI", operation, sequence, count or len(words), address)
    return header + struct.pack(f"<{len(words)}I", *words)


def reply(status, sequence, *words):
    """Return the content of a reply of the bridge."""
    return struct.pack(f"<BBH{len(words)}I", status, sequence, len(words), *words)


class Host:
    """A host at the serial line of a bridge, with the bridge's clock and the bytes it sends."""

    def __init__(self, dut, faster=0.0):
        self.bench = Bench(dut, Rig())
        self._dut, self._faster = dut, faster

    async def start(self):
        await self.bench.start()
        self.line = SerialLine(self._dut, divisor=DIVISOR, faster=self._faster)
        await self.line.wait(3)

    async def replies(self, quiet=500):
        """Wait until the line is quiet for `quiet` bits, and return the content of all frames."""
        count = -1
        while count != len(self.line.received):
            count = len(self.line.received)
            await self.line.wait(quiet)
        assert self.line.broken == 0
        parts = bytes(self.line.received).split(bytes([END]))
        self.line.received.clear()
        return [decode_frame(part) for part in parts if part]

    async def ask(self, *contents):
        """Send requests one after the other, and return the bridge's replies."""
        answers = []
        for content in contents:
            await self.line.send(encode_frame(content))
            answers += await self.replies()
        return answers


def test_frames():
    """Check the encoding of a frame against bytes written by hand.

    The CRC must find each flipped bit.
    """
    content = bytes([1, END, 2, ESCAPE])
    crc = zlib.crc32(content).to_bytes(4, "little")
    assert not {END, ESCAPE} & set(crc)
    line = bytes([0xC0, 1, 0xDB, 0xDC, 2, 0xDB, 0xDD, *crc, 0xC0])
    assert encode_frame(content) == line
    assert decode_frame(line[1:-1]) == content
    for place in range(1, len(line) - 1):
        for bit in range(8):
            broken = bytearray(line)
            broken[place] ^= 1 << bit
            assert decode_frame(bytes(broken[1:-1])) is None
    assert decode_frame(b"") is None
    assert decode_frame(bytes([ESCAPE])) is None


@cocotb.test
@cocotb.parametrize(faster=[-0.03, 0.0, 0.03])
async def reads_and_writes(dut, faster):
    """Check reads and writes of memory and registers, on a line a little too fast or too slow."""
    host = Host(dut, faster)
    await host.start()
    random = rng("bridge", faster)
    assert await host.ask(request(Operation.READ_BOARD, 7, 0, count=3)) == [
        reply(Status.DONE, 7, 0x12345678, 0xC0DBC0DB, 0)
    ]
    memory = [random.choice([0xC0DBC0DB, 0, random.getrandbits(32)]) for _ in range(300)]
    registers = [random.getrandbits(32) for _ in range(2)]
    pieces = ((0, 1), (1, 40), (41, 256), (297, 3)) if faster == 0 else ((0, 4), (4, 30))
    for sequence, (first, count) in enumerate(pieces):
        write = request(Operation.WRITE_MEMORY, sequence, 4 * first, *memory[first : first + count])
        assert await host.ask(write) == [reply(Status.DONE, sequence)]
    assert await host.ask(
        request(Operation.WRITE_REGISTERS, 100, 0x10, *registers),
        request(Operation.READ_REGISTERS, 101, 0x10, count=2),
    ) == [reply(Status.DONE, 100), reply(Status.DONE, 101, *registers)]
    for first, count in pieces:
        assert await host.ask(request(Operation.READ_MEMORY, 9, 4 * first, count=count)) == [
            reply(Status.DONE, 9, *memory[first : first + count])
        ]


@cocotb.test
async def refuses(dut):
    """Check that the bridge refuses invalid requests, and addresses without register or memory."""
    host = Host(dut)
    await host.start()
    for content in (
        request(len(Operation), 1, 0, count=1),
        request(0xFF, 1, 0, count=1),
        request(Operation.READ_MEMORY, 1, 0, count=0),
        request(Operation.READ_MEMORY, 1, 0, count=MAX_WORDS + 1),
        request(Operation.READ_MEMORY, 1, 2, count=1),
        request(Operation.READ_MEMORY, 1, 0, 5, count=1),
        request(Operation.WRITE_MEMORY, 1, 0, 5, count=2),
        request(Operation.WRITE_MEMORY, 1, 0, 5, 6, count=1),
        request(Operation.WRITE_MEMORY, 1, 0, *range(MAX_WORDS + 1)),
        request(Operation.WRITE_MEMORY, 1, 0, *range(MAX_WORDS + 40)),
    ):
        assert await host.ask(content) == [reply(Status.REFUSED, 1)]
    for content in (b"", b"abc", request(Operation.READ_MEMORY, 1, 0, count=1) + b"x", bytes(6)):
        assert await host.ask(content) == []
    assert await host.ask(
        request(Operation.WRITE_MEMORY, 2, MEMORY_BYTES - 4, 77, 78),
        request(Operation.READ_MEMORY, 3, MEMORY_BYTES - 4, count=2),
        request(Operation.READ_MEMORY, 4, 1 << 31, count=1),
        request(Operation.READ_REGISTERS, 5, REGISTER_BYTES, count=1),
        request(Operation.WRITE_REGISTERS, 6, REGISTER_BYTES, 1),
        request(Operation.READ_MEMORY, 7, MEMORY_BYTES - 4, count=1),
    ) == [
        *(reply(Status.BUS_ERROR, sequence) for sequence in (2, 3, 4, 5, 6)),
        reply(Status.DONE, 7, 77),
    ]


@cocotb.test
async def repeated_writes(dut):
    """Check that a repeated write request gets the same answer, but is not executed again."""
    host = Host(dut)
    await host.start()
    first = request(Operation.WRITE_REGISTERS, 5, 0, 1)
    again = request(Operation.WRITE_REGISTERS, 5, 0, 2)
    read = request(Operation.READ_REGISTERS, 6, 0, count=1)
    assert await host.ask(first, again, again, read, again, read) == [
        *[reply(Status.DONE, 5)] * 3,
        reply(Status.DONE, 6, 1),
        reply(Status.DONE, 5),
        reply(Status.DONE, 6, 2),
    ]
    failing = request(Operation.WRITE_REGISTERS, 7, REGISTER_BYTES, 1)
    assert await host.ask(failing, failing) == [reply(Status.BUS_ERROR, 7)] * 2


@cocotb.test
async def noise(dut):
    """Check flipped bits, lost bytes, cut frames, glitches and garbage on the line.

    The only effect of each is a missing answer, and the bridge serves the next request.
    """
    host = Host(dut)
    await host.start()
    random = rng("noise")
    value = 0
    await host.ask(request(Operation.WRITE_MEMORY, 0, 0, value, value))
    for sequence in range(1, 25):
        frame = encode_frame(request(Operation.WRITE_MEMORY, sequence, 0, 99, 99, 99))
        broken = bytearray(frame)
        kind = sequence % 6
        place = random.randrange(1, len(frame) - 1)
        if kind == 0:
            broken[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            del broken[place]
        elif kind == 2:
            del broken[place:]
        elif kind == 3:
            broken = bytearray(random.randbytes(random.randrange(1, 30)))
        elif kind == 4:
            broken.insert(place, random.randrange(256))
        else:
            # This is a whole frame in which one byte has no stop bit.
            await host.line.send(broken[:place])
            bits = [broken[place] >> number & 1 for number in range(8)]
            await host.line.send_bits([0, *bits, 0, 1])
            del broken[: place + 1]
        await host.line.send(broken)
        if sequence % 3 == 0:
            await host.line.wait(random.uniform(0, 15))
            # A glitch of nearly half a bit may pass for a start bit, and cost the next frame.
            await host.line.glitch(random.uniform(0.05, 0.3))
            await host.line.wait(1)
        value = random.getrandbits(32)
        expected = reply(Status.DONE, sequence, value, value)
        answers = await host.ask(
            request(Operation.WRITE_MEMORY, sequence + 100, 0, value, value),
            request(Operation.READ_MEMORY, sequence, 0, count=2),
        )
        assert answers == [reply(Status.DONE, sequence + 100), expected], (sequence, kind)


@cocotb.test
async def cut_end(dut):
    """Check a frame that has lost its last END byte.

    The bridge answers when the first END of the next frame comes. The next frame repeats the
    request, which is executed only once.
    """
    host = Host(dut)
    await host.start()
    frame = encode_frame(request(Operation.WRITE_MEMORY, 1, 0, 42))
    await host.line.send(frame[:-1])
    assert await host.replies() == []
    await host.line.send(frame)
    assert (await host.replies())[0] == reply(Status.DONE, 1)
    assert await host.ask(request(Operation.READ_MEMORY, 2, 0, count=1)) == [
        reply(Status.DONE, 2, 42)
    ]


@pytest.mark.thorough  # no other test uses this simulator, which takes 20 seconds to build
@pytest.mark.parametrize("simulator", quick_simulators())
def test_serial_bridge(simulator):
    run_module("boards.test_serial_bridge", simulator, verilog=convert(Rig()), top=TOP)
