# SPDX-License-Identifier: Apache-2.0
"""The core: the units that the end of a program clears, and their connections."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import Fault
from systola.arch.registers import BusPort, CheckedMemory
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.control.decoder import Decoder
from systola.hdl.control.fetch import Fetch
from systola.hdl.control.scalar_unit import ScalarUnit
from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.control.sequencer import Sequencer
from systola.hdl.control_joins import join_control
from systola.hdl.core_signature import CoreSignature
from systola.hdl.link.link_unit import LinkUnit, neighbour_ports
from systola.hdl.link.linked_accumulators import LinkedAccumulators
from systola.hdl.link_joins import join_memories, join_parts
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.hdl.memories.accumulators import Accumulators
from systola.hdl.memories.unified_buffer import UnifiedBuffer
from systola.hdl.scoreboard_joins import join_units, settled_queue
from systola.hdl.transfers.host_read_port import HostReadPort
from systola.hdl.transfers.host_reader import HostReader
from systola.hdl.transfers.host_writer import HostWriter
from systola.hdl.transfers.weight_fetch import WeightFetch
from systola.hdl.unit_domains import LINK_UNIT, Unit, place_unit


class Core(wiring.Component):
    """A core that runs a program: fetch, control path, units and memories.

    CoreSignature describes the ports of the core. `clear` has a reset for each unit. A reset leaves
    the contents of buffer, accumulators, parameters and tables as they are.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(CoreSignature(config=config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        self._port = self._place(m, "host_read_port", HostReadPort(config=config))
        self._fetch = self._place(m, "fetch", Fetch(config=config))
        self._scalar = self._place(m, "scalar_unit", ScalarUnit(links=config.links))
        self._decoder = self._place(m, "decoder", Decoder(config=config))
        self._sequencer = self._place(m, "sequencer", Sequencer(config=config))
        self._board = self._place(m, "scoreboard", Scoreboard(config=config))
        self._reader = self._place(m, "host_reader", HostReader(config=config))
        self._weights = self._place(m, "weight_fetch", WeightFetch(config=config))
        self._matrix = self._place(m, "matrix_unit", MatrixUnit(config=config))
        self._activation = self._place(m, "activation_unit", ActivationUnit(config=config))
        self._writer = self._place(m, "host_writer", HostWriter(config=config))
        self._buffer = self._place(m, "unified_buffer", UnifiedBuffer(config=config))
        memory = LinkedAccumulators if config.links else Accumulators
        self._accumulators = self._place(m, "accumulators", memory(config=config))

        self._join_control(m)
        units = self._reader, self._weights, self._matrix, self._activation, self._writer
        join_units(m, self._board, *units)
        self._join_buses(m)
        self._join_memories(m)
        if config.links:
            self._join_links(m)
        self._show_program(m)
        self._show_errors(m)
        self._show_activity(m)
        return m

    def _place(self, m: Module, name: str, unit: Unit) -> Unit:
        """Add a unit with a reset of its own, and return it."""
        return place_unit(m, name, unit, self.clear[name])

    def _join_control(self, m: Module) -> None:
        """Connect the control path, and give it the program and the windows."""
        fetch, decoder, sequencer = self._fetch, self._decoder, self._sequencer
        join_control(m, fetch, self._scalar, decoder, sequencer, self._board)
        m.d.comb += [
            fetch.enable.eq(self.running),
            fetch.program.eq(self.windows.program),
            fetch.limit.eq(self.windows.host_limit),
            decoder.host_limit.eq(self.windows.host_limit),
            decoder.weight_tiles.eq(self.windows.weight_tiles),
            sequencer.enable.eq(self.running),
            sequencer.program.eq(self.windows.program),
            sequencer.resume.eq(self.resume),
        ]

    def _join_buses(self, m: Module) -> None:
        """Connect the bus masters with their ports, and the readers of host memory with the host
        port.
        """
        port, fetch, reader = self._port, self._fetch, self._reader
        writer, weights = self._writer, self._weights
        connect(m, port.bus, flipped(self.host_read))
        connect(m, writer.bus, flipped(self.host_write))
        connect(m, weights.bus, flipped(self.weight_read))
        connect(m, fetch.request, port.fetch_request)
        connect(m, port.fetch_beat, fetch.beat)
        connect(m, reader.request, port.data_request)
        connect(m, port.data_beat, reader.beat)
        m.d.comb += [
            port.fetch_urgent.eq(fetch.urgent),
            port.base.eq(self.windows.host_base),
            writer.base.eq(self.windows.host_base),
            weights.base.eq(self.windows.weight_base),
        ]
        for which, unit in (
            (BusPort.HOST_READ, port),
            (BusPort.HOST_WRITE, writer),
            (BusPort.WEIGHT_READ, weights),
        ):
            m.d.comb += [
                unit.stop.eq(self.stop),
                self.quiet[exact_log2(which)].eq(unit.quiet),
            ]

    def _join_memories(self, m: Module) -> None:
        """Connect the units with the buffer, the accumulators, and memories inside other units."""
        reader, weights, matrix = self._reader, self._weights, self._matrix
        activation, buffer, accumulators = self._activation, self._buffer, self._accumulators
        connect(m, reader.buffer, buffer.dma_in)
        connect(m, matrix.buffer, buffer.mxu)
        connect(m, weights.rows, matrix.weight_rows)
        connect(m, matrix.update, accumulators.update)
        connect(m, activation.accumulators, accumulators.read)
        connect(m, activation.buffer, buffer.activate)
        connect(m, activation.operands, buffer.operands)
        connect(m, self._writer.buffer, buffer.dma_out)
        connect(m, reader.parameters, activation.parameters)
        if self._config.training:
            connect(m, weights.buffer, buffer.tiles)
            settled = settled_queue(m, self._board.weights, "weights_settled")
            m.d.comb += weights.settled.eq(settled)
        if self._config.tables:
            connect(m, reader.tables, activation.tables)
        if self._config.columns_per_lane > 1:
            m.d.comb += activation.running.eq(self.running)
        m.d.comb += self.corrupt.eq(
            Mux(buffer.flawed, int(CheckedMemory.UNIFIED_BUFFER), 0)
            | Mux(accumulators.flawed, int(CheckedMemory.ACCUMULATORS), 0)
        )

    def _join_links(self, m: Module) -> None:
        """Add the link unit, and connect it with the neighbours and with the other units."""
        links = LinkUnit(config=self._config)
        links_cleared = Signal()
        m.d.comb += links_cleared.eq(self.clear[LINK_UNIT] | self.clear_links)
        place_unit(m, LINK_UNIT, links, links_cleared)
        for name in neighbour_ports(self._config):
            connect(m, getattr(links, name), flipped(getattr(self, name)))
        join_parts(m, self._board, links)
        assert isinstance(self._accumulators, LinkedAccumulators)
        waits_for_memory = join_memories(m, links, self._buffer, self._accumulators)
        m.d.comb += [
            links.cores.eq(self.cores),
            links.arrived.eq(self._sequencer.arrived),
            self._sequencer.passed.eq(links.passed),
            self.waits.eq(links.waits),
            # A part of the link unit that only waits for a memory counts as moved: it is not stuck.
            self.moved.eq(links.moved | waits_for_memory),
            self.mismatched.eq(links.mismatched),
            self.sent.eq(links.quiet),
        ]

    def _show_program(self, m: Module) -> None:
        """Drive the outputs for the progress of the program: end, interrupts, and tags."""
        sequencer, board = self._sequencer, self._board
        connect(m, sequencer.program_status, flipped(self.program_status))
        m.d.comb += [
            self.tagged.eq(board.tagged),
            self.tag.eq(board.tag),
            self.idle.eq(board.idle),
        ]

    def _show_errors(self, m: Module) -> None:
        """Drive the error of a bus transfer, and hold tags from then on.

        A transfer that fails still completes, in the cycle of its error or later, but no Debug_Tag
        may record that. A tag is recorded at the earliest one cycle after the completion it waits
        for. So it suffices to hold tags from the cycle after the error on.
        """
        reader, writer, weights, board = self._reader, self._writer, self._weights, self._board
        transfer_fails = Signal()
        tags_held = Signal()
        m.d.comb += [
            transfer_fails.eq(Cat(unit.error for unit in (reader, writer, weights)).any()),
            board.hold_tags.eq(tags_held),
        ]
        m.d.sync += [
            self.error.found.eq(transfer_fails),
            tags_held.eq(transfer_fails | self.error.found | self.stop),
        ]
        # Cause and program counter are meaningful only with `error`.
        with m.If(weights.error):
            m.d.sync += [
                self.error.cause.eq(Fault.WEIGHT_READ_ERROR),
                self.error.pc.eq(weights.error_pc),
            ]
        with m.Elif(writer.error):
            m.d.sync += [
                self.error.cause.eq(Fault.HOST_WRITE_ERROR),
                self.error.pc.eq(board.host_writes.command.pc),
            ]
        with m.Else():
            m.d.sync += [
                self.error.cause.eq(Fault.HOST_READ_ERROR),
                self.error.pc.eq(board.host_read.command.pc),
            ]

    def _show_activity(self, m: Module) -> None:
        """Drive `activity`, the conditions that `Counters` counts."""
        matrix, sequencer, activity = self._matrix, self._sequencer, self.activity
        m.d.comb += [
            activity.active.eq(matrix.active),
            activity.awaiting_weights.eq(matrix.awaiting_weights),
            activity.weights_moving.eq(matrix.weights_moving),
            activity.matrix_waits.eq(matrix.waits.as_value().any()),
            activity.input_blocked.eq(matrix.waits.host_reading),
            activity.operand_blocked.eq(matrix.waits.activate_writing),
            activity.vector.eq(self._activation.takes_line),
            activity.host_wait.eq(sequencer.program_status.waiting),
            activity.issue_waits.eq(sequencer.waits),
        ]
