# SPDX-License-Identifier: Apache-2.0
"""Weight fetch: Read_Weights, from weight memory into the weight FIFO."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.hdl.commands import PC_BITS
from systola.hdl.control.signatures import queue_signature
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.ports import BufferReadSignature, WeightRowSignature
from systola.hdl.transfers.axi import ReadSignature, is_error
from systola.hdl.transfers.burst_cutter import BurstCutter
from systola.hdl.transfers.tile_reader import TileReader
from systola.hdl.transfers.weight_fifo import LATENCY, WeightFifo

READS_IN_FLIGHT = 8
"""Largest number of bursts under way at one time."""
ROW_LATENCY = LATENCY
"""Cycles from a row's last beat to `rows.valid`."""


class WeightFetch(wiring.Component):
    """A unit that streams the tiles of one Read_Weights after the other into a FIFO of rows.

    With training it also streams tiles that a MatrixMultiply takes from the buffer.

    | port       | meaning |
    |---|---|
    | `queue`    | the queue of commands; `pop`, a register: in the cycle before, this unit began
                   the oldest command |
    | `settled`  | the queue awaited no entry in the cycle before, see `settled_queue`; only with
                   training |
    | `buffer`   | reads of lines; only with training |
    | `bus`      | the read channels of weight memory |
    | `base`     | address of the weight window |
    | `rows`     | the rows of the weight FIFO |
    | `stop`     | requests nothing more and swallows the beats |
    | `quiet`    | no burst is under way |
    | `error`    | memory answered a beat with an error in the cycle before |
    | `error_pc` | with `error`: program counter of the instruction that requested the beat |

    Throughput: one beat a cycle, or the fraction `weight_throttle` of it. The FIFO of
    `weight_fifo_tiles` tiles is the back-pressure. Latency: two cycles from the command to the bus,
    ROW_LATENCY cycles from a row's last beat to `rows.valid`.

    Commands for weight memory follow one another without waiting for data. A command `from_buffer`
    waits until its queue is unblocked and `settled`, and all tiles before it have come. The
    first line of the command is requested three cycles after the last of these conditions. The next
    command begins after the last row has come.
    """

    def __init__(self, *, config: Config):
        self._config = config
        training = {"settled": In(1), "buffer": Out(BufferReadSignature(config=config))}
        super().__init__(
            {
                **(training if config.training else {}),
                "queue": In(queue_signature("weights", config)),
                "bus": Out(
                    ReadSignature(
                        address_bits=config.address_bits, data_bytes=config.weight_bus_bytes
                    )
                ),
                "base": In(config.address_bits),
                "rows": Out(WeightRowSignature(width=8 * config.cols)),
                "stop": In(1),
                "quiet": Out(1),
                "error": Out(1),
                "error_pc": Out(PC_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus = self._config, self.bus

        # The cutter forms the bursts of each command.
        cutter = m.submodules.cutter = BurstCutter(
            address_bits=len(self.queue.command.transfer.address),
            beat_bits=len(self.queue.command.transfer.beats),
            bus_bytes=config.weight_bus_bytes,
            max_burst_beats=config.max_burst_beats,
        )
        command_begins = Signal()
        from_memory = Signal()
        reads_buffer = Signal()  # the tile reader takes a command
        m.d.comb += [
            cutter.run.valid.eq(from_memory & ~self.queue.pop),
            cutter.run.payload.address.eq(self.queue.command.transfer.address),
            cutter.run.payload.beats.eq(self.queue.command.transfer.beats),
            cutter.run.payload.last.eq(1),
            command_begins.eq(cutter.run.valid & cutter.run.ready),
        ]
        m.d.sync += self.queue.pop.eq(command_begins | reads_buffer)

        under_way = self._request(m, platform, cutter)

        # Program counters of the commands that have begun and still wait for beats: one command in
        # the cutter, the others with all bursts sent.
        pcs = m.submodules.pcs = PayloadRing(
            payload=data.StructLayout({"pc": PC_BITS}), depth=READS_IN_FLIGHT + 2
        )
        beat_taken = Signal()
        m.d.comb += [
            beat_taken.eq(bus.rvalid & bus.rready),
            under_way.r_en.eq(beat_taken & bus.rlast),
            pcs.push.eq(command_begins),
            pcs.pushed.pc.eq(self.queue.command.pc),
            pcs.pop.eq(under_way.r_en & under_way.r_data),
        ]
        m.d.sync += [
            self.error.eq(beat_taken & is_error(bus.rresp)),
            self.error_pc.eq(pcs.oldest.pc),
        ]

        beat_allowed = self._throttle(m)

        # Beats are collected to rows, which go into the FIFO.
        fifo = m.submodules.fifo = WeightFifo(
            width=8 * config.cols, depth=config.weight_fifo_tiles * config.rows
        )
        beat_arrives = Signal()
        m.d.comb += [
            beat_arrives.eq(bus.rvalid & ~fifo.full & beat_allowed),
            bus.rready.eq((~fifo.full & beat_allowed) | self.stop),
        ]
        connect(m, fifo.rows, flipped(self.rows))
        row_complete, complete_row = self._collect(m, beat_arrives)
        if not config.training:
            m.d.comb += [
                from_memory.eq(self.queue.valid),
                fifo.reserve.eq(row_complete),
                fifo.push.eq(row_complete),
                fifo.pushed.eq(complete_row),
            ]
            return m

        # Tiles from memory and tiles from the buffer never mix: a source begins when all rows of
        # the other source have come.
        reader = m.submodules.reader = TileReader(config=config)
        connect(m, reader.buffer, flipped(self.buffer))
        # Number of commands that still wait for their last beat.
        commands_expected = Signal(range(READS_IN_FLIGHT + 3))
        no_command_expected = Signal()
        m.d.comb += no_command_expected.eq(commands_expected == 0)
        m.d.sync += commands_expected.eq(commands_expected + command_begins - pcs.pop)
        m.d.comb += [
            from_memory.eq(self.queue.valid & ~self.queue.command.from_buffer & reader.idle),
            reads_buffer.eq(
                self.queue.valid
                & self.queue.command.from_buffer
                & (self.queue.unblocked & self.settled)
                & ~self.queue.pop
                & reader.idle
                & no_command_expected
            ),
            reader.start.eq(reads_buffer),
            reader.line.eq(self.queue.command.transfer.address),
            reader.tiles.eq(self.queue.command.transfer.beats),
            reader.wide.eq(self.queue.command.wide),
            reader.room.eq(~fifo.full),
            fifo.reserve.eq(row_complete | reader.asks),
            fifo.push.eq(row_complete | reader.pushes),
            fifo.pushed.eq(Mux(reader.pushes, reader.buffer.data[: 8 * config.cols], complete_row)),
        ]
        return m

    def _request(self, m: Module, platform: object, cutter: BurstCutter) -> SyncFIFO:
        """Send bursts to memory, and count those under way.

        Returns a FIFO with an entry for each burst under way, 1 for the last burst of a command.
        An entry comes into the FIFO one cycle after its burst is sent.
        """
        config, bus = self._config, self.bus
        under_way = m.submodules.under_way = SyncFIFO(width=1, depth=READS_IN_FLIGHT)
        address = data.StructLayout({"address": config.address_bits, "length": 8})
        sender = m.submodules.sender = SkidBuffer(payload=address)
        burst = cutter.burst
        burst_asks = Signal()
        burst_asked = Signal()
        reads_full = Signal()  # no further burst may be under way
        m.d.comb += [
            burst.ready.eq(sender.input.ready & ~reads_full & ~self.stop),
            burst_asks.eq(burst.valid & burst.ready),
            sender.input.valid.eq(burst_asks),
            sender.input.payload.address.eq(self.base + burst.payload.address),
            sender.input.payload.length.eq(burst.payload.length),
            bus.arvalid.eq(sender.output.valid),
            bus.araddr.eq(sender.output.payload.address),
            bus.arlen.eq(sender.output.payload.length),
            sender.output.ready.eq(bus.arready),
            under_way.w_en.eq(burst_asked),
        ]
        level = under_way.level
        last_one, last_two = level == READS_IN_FLIGHT - 1, level == READS_IN_FLIGHT - 2
        m.d.sync += [
            burst_asked.eq(burst_asks),
            under_way.w_data.eq(burst.payload.last),
            reads_full.eq(
                (level == READS_IN_FLIGHT)
                | (last_one & (burst_asked | burst_asks))
                | (last_two & burst_asked & burst_asks)
            ),
            self.quiet.eq((level == 0) & ~burst_asked & ~burst_asks),
        ]

        room = ~under_way.w_en | under_way.w_rdy
        promised(m, platform, room, "more reads of weights are under way than may be")
        promised(m, platform, ~(self.stop & burst_asks), "weights are requested after a stop")
        return under_way

    def _collect(self, m: Module, beat_arrives: Signal) -> tuple[Signal, Signal]:
        """Collect the beats of a row; return whether a row is complete, and the row."""
        config, bus = self._config, self.bus
        width = 8 * config.weight_bus_bytes
        row_complete = Signal()
        complete_row = Signal(8 * config.cols)
        beats = config.weight_row_pitch // config.weight_bus_bytes
        if beats == 1:
            m.d.comb += [complete_row.eq(bus.rdata), row_complete.eq(beat_arrives)]
        else:
            partial_row = Signal((beats - 1) * width)
            beat_count = Signal(range(beats))
            last = beat_count == beats - 1
            m.d.comb += [
                complete_row.eq(Cat(partial_row, bus.rdata)),
                row_complete.eq(beat_arrives & last),
            ]
            with m.If(beat_arrives):
                m.d.sync += [
                    partial_row.word_select(beat_count, width).eq(bus.rdata),
                    beat_count.eq(Mux(last, 0, beat_count + 1)),
                ]
        return row_complete, complete_row

    def _throttle(self, m: Module) -> Signal:
        """Return a signal that allows a beat in `numerator` of each `denominator` cycles."""
        beat_allowed = Signal()
        numerator, denominator = self._config.weight_throttle
        if numerator == denominator:
            m.d.comb += beat_allowed.eq(1)
        else:
            throttle_phase = Signal(range(denominator))
            advanced = throttle_phase + numerator
            m.d.comb += beat_allowed.eq(advanced >= denominator)
            m.d.sync += throttle_phase.eq(Mux(beat_allowed, advanced - denominator, advanced))
        return beat_allowed
