# SPDX-License-Identifier: Apache-2.0
"""A bridge that carries out a host's requests over a serial line, see arch/serial_protocol.py."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from systola.arch.registers import REGISTER_SPACE_BITS
from systola.arch.serial_protocol import MAX_WORDS, REQUEST_HEADER_BYTES, WORD_BYTES, Operation
from systola.arch.serial_protocol import Status as ReplyStatus
from systola.boards.frame_receiver import FrameReceiver
from systola.boards.frame_sender import FrameSender
from systola.boards.uart_receiver import UartReceiver
from systola.boards.uart_transmitter import UartTransmitter
from systola.hdl.memories.sram import Sram
from systola.hdl.transfers.axi import LiteSignature, is_error

HEADER_WORDS = REQUEST_HEADER_BYTES // WORD_BYTES


class SerialBridge(wiring.Component):
    """A bridge that carries out one request at a time, and answers each when it is done.

    A request waits in a buffer until its CRC has proved right, and only then has an effect. Bytes
    that come while a request is carried out are dropped. `board_words` are the words of the board
    by their addresses; other words read 0. `divisor` is the cycles of a bit.

    Members
    -------
    rx, tx : the serial line
    control : AXI4-Lite master for the registers of the machine
    memory : AXI4-Lite master for the memory
    """

    def __init__(self, *, divisor: int, address_bits: int, board_words: Mapping[int, int]):
        self._divisor = divisor
        self._board_words = board_words
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "control": Out(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                "memory": Out(LiteSignature(address_bits=address_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.uart_receiver = uart_receiver = UartReceiver(divisor=self._divisor)
        m.submodules.uart_transmitter = uart_transmitter = UartTransmitter(divisor=self._divisor)
        m.submodules.frame_receiver = frame = FrameReceiver()
        m.submodules.frame_sender = sender = FrameSender()
        m.submodules.buffer = buffer = Sram(width=8 * WORD_BYTES, depth=MAX_WORDS)
        connect(m, sender.byte, uart_transmitter.byte)
        m.d.comb += [
            uart_receiver.rx.eq(self.rx),
            self.tx.eq(uart_transmitter.tx),
            frame.data.eq(uart_receiver.data),
            frame.valid.eq(uart_receiver.valid),
            frame.error.eq(uart_receiver.error),
        ]

        # The word that is being moved: from the line to the bus in a write, from the bus to the
        # line in a read.
        word = Signal(8 * WORD_BYTES, reset_less=True)
        place = Signal(range(WORD_BYTES))
        """Number of the byte of the word that is next on the line."""
        words = Signal(range(MAX_WORDS + HEADER_WORDS + 3))
        """Number of whole words that came since the last END, the CRC included."""
        number = Signal(range(MAX_WORDS + 1))
        """Number of words of the request that are done."""

        operation = Signal(8, reset_less=True)
        sequence = Signal(8, reset_less=True)
        count = Signal(16, reset_less=True)
        address = Signal(8 * WORD_BYTES, reset_less=True)
        status = Signal(8)
        answered = Signal()
        answered_sequence = Signal(8, reset_less=True)
        is_write = Signal()
        m.d.comb += is_write.eq(operation[0])

        whole = Signal()
        m.d.sync += whole.eq(0)
        with m.If(whole):
            m.d.sync += words.eq(words + (words != MAX_WORDS + HEADER_WORDS + 2))
            with m.Switch(words):
                with m.Case(0):
                    m.d.sync += Cat(operation, sequence, count).eq(word)
                with m.Case(1):
                    m.d.sync += address.eq(word)

        storing = Signal()
        index = Signal(ceil_log2(MAX_WORDS))
        m.d.comb += [
            # The longest request fills the buffer: its CRC is not stored.
            buffer.write_enable.eq(
                storing | (whole & (words >= HEADER_WORDS) & (words < HEADER_WORDS + MAX_WORDS))
            ),
            index.eq(words - HEADER_WORDS),
            buffer.write_address.eq(Mux(storing, number, index)),
            buffer.write_data.eq(word),
            buffer.read_address.eq(number),
        ]

        expected = Signal(range(MAX_WORDS + HEADER_WORDS + 2))
        right = Signal()
        repeated = Signal()
        m.d.comb += [
            expected.eq(Mux(is_write, count, 0) + HEADER_WORDS + 1),
            right.eq(
                (operation < len(Operation))
                & (count != 0)
                & (count <= MAX_WORDS)
                & (address[:2] == 0)
                & (words == expected)
            ),
            repeated.eq(is_write & answered & (sequence == answered_sequence)),
        ]

        of_registers = Signal()
        m.d.comb += of_registers.eq(operation[1])
        address_pending = Signal()
        data_pending = Signal()
        asking = Signal()
        taking = Signal()
        written = Signal()
        read = Signal()
        read_data = Signal(8 * WORD_BYTES)
        failed = Signal()
        for target, chosen in ((self.control, of_registers), (self.memory, ~of_registers)):
            m.d.comb += [
                target.awaddr.eq(address),
                target.wdata.eq(word),
                target.wstrb.eq(~0),
                target.araddr.eq(address),
                target.awvalid.eq(address_pending & chosen),
                target.wvalid.eq(data_pending & chosen),
                target.arvalid.eq(asking & chosen),
                target.bready.eq(taking),
                target.rready.eq(taking),
            ]
            with m.If(chosen):
                m.d.comb += [
                    written.eq(target.bvalid),
                    read.eq(target.rvalid),
                    read_data.eq(target.rdata),
                    failed.eq(Mux(is_write, is_error(target.bresp), is_error(target.rresp))),
                ]
                with m.If(target.awready):
                    m.d.sync += address_pending.eq(0)
                with m.If(target.wready):
                    m.d.sync += data_pending.eq(0)
                with m.If(target.arready):
                    m.d.sync += asking.eq(0)

        left = Signal(range(MAX_WORDS + 1))
        """Number of words of the reply that follow the present word."""
        with m.FSM():
            with m.State("SKIP"):
                m.d.sync += [place.eq(0), words.eq(0)]
                with m.If(frame.end):
                    m.next = "COLLECT"
            with m.State("COLLECT"):
                with m.If(frame.content_valid):
                    m.d.sync += [
                        word.eq(Cat(word[8:], frame.content)),
                        place.eq(place + 1),
                        whole.eq(place == WORD_BYTES - 1),
                    ]
                with m.If(frame.end):
                    m.d.sync += [place.eq(0), words.eq(0)]
                    with m.If(frame.good & (place == 0) & (words > HEADER_WORDS)):
                        m.d.sync += words.eq(words)
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += number.eq(0)
                m.next = "REPLY"
                with m.If(~right):
                    m.d.sync += status.eq(ReplyStatus.REFUSED)
                with m.Elif(~repeated):
                    m.d.sync += status.eq(ReplyStatus.DONE)
                    m.next = "READ"
                    with m.If(is_write):
                        m.next = "FETCH"

            with m.State("FETCH"):
                m.d.comb += buffer.read_enable.eq(1)
                m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += [word.eq(buffer.read_data), address_pending.eq(1), data_pending.eq(1)]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += taking.eq(1)
                with m.If(written):
                    m.d.sync += [number.eq(number + 1), address.eq(address + WORD_BYTES)]
                    m.next = "FETCH"
                    with m.If(number + 1 == count):
                        m.next = "REPLY"
                    with m.If(failed):
                        m.d.sync += status.eq(ReplyStatus.BUS_ERROR)
                        m.next = "REPLY"

            with m.State("READ"):
                m.d.sync += asking.eq(1)
                m.next = "AWAIT"
                with m.If(operation == Operation.READ_BOARD):
                    m.d.sync += [asking.eq(0), word.eq(0)]
                    with m.Switch(address):
                        for place_of_word, value in self._board_words.items():
                            with m.Case(place_of_word):
                                m.d.sync += word.eq(value)
                    m.next = "STORE"
            with m.State("AWAIT"):
                m.d.comb += taking.eq(1)
                with m.If(read):
                    m.d.sync += word.eq(read_data)
                    m.next = "STORE"
                    with m.If(failed):
                        m.d.sync += status.eq(ReplyStatus.BUS_ERROR)
                        m.next = "REPLY"
            with m.State("STORE"):
                m.d.comb += storing.eq(1)
                m.d.sync += [number.eq(number + 1), address.eq(address + WORD_BYTES)]
                m.next = "READ"
                with m.If(number + 1 == count):
                    m.next = "REPLY"

            with m.State("REPLY"):
                carried = Signal(16)
                with m.If(~is_write & (status == ReplyStatus.DONE)):
                    m.d.comb += carried.eq(count)
                m.d.sync += [
                    answered.eq(1),
                    answered_sequence.eq(sequence),
                    word.eq(Cat(status, sequence, carried)),
                    left.eq(carried),
                    number.eq(0),
                    place.eq(0),
                ]
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [
                    sender.content.valid.eq(1),
                    sender.content.payload.data.eq(word[:8]),
                    sender.content.payload.last.eq((left == 0) & (place == WORD_BYTES - 1)),
                ]
                with m.If(sender.content.ready):
                    m.d.sync += [word.eq(word[8:]), place.eq(place + 1)]
                    with m.If(place == WORD_BYTES - 1):
                        m.next = "REFETCH"
                        with m.If(left == 0):
                            m.next = "SKIP"
            with m.State("REFETCH"):
                m.d.comb += buffer.read_enable.eq(1)
                m.next = "RELOAD"
            with m.State("RELOAD"):
                m.d.sync += [
                    word.eq(buffer.read_data),
                    number.eq(number + 1),
                    left.eq(left - 1),
                ]
                m.next = "SEND"
        return m
