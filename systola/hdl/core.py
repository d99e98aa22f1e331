# SPDX-License-Identifier: Apache-2.0
"""The units and their connections: all of the machine that the end of a program clears."""

from typing import TypeVar

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import Fault, LinkPart
from systola.arch.registers import BusPort, CheckedMemory
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.commands import HOST_OFFSET_BITS, PC_BITS, TAG_BITS, TILE_BITS
from systola.hdl.control.decoder import Decoder
from systola.hdl.control.fetch import Fetch
from systola.hdl.control.hazards import list_of
from systola.hdl.control.scalar_unit import ScalarUnit
from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.control.sequencer import Sequencer
from systola.hdl.link.link_unit import SIDES, LinkUnit, neighbour_ports
from systola.hdl.link.linked_accumulators import LinkedAccumulators
from systola.hdl.link.pod_barrier import CORES_BITS
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.hdl.memories.accumulators import Accumulators
from systola.hdl.memories.unified_buffer import UnifiedBuffer
from systola.hdl.ports import FaultReport
from systola.hdl.transfers.axi import master_ports
from systola.hdl.transfers.host_read_port import HostReadPort
from systola.hdl.transfers.host_reader import HostReader
from systola.hdl.transfers.host_writer import HostWriter
from systola.hdl.transfers.weight_fetch import WeightFetch

Unit = TypeVar("Unit", bound=wiring.Component)

UNITS = (
    "core",
    "host_read_port",
    "fetch",
    "scalar_unit",
    "decoder",
    "sequencer",
    "scoreboard",
    "host_reader",
    "weight_fetch",
    "matrix_unit",
    "activation_unit",
    "host_writer",
    "unified_buffer",
    "accumulators",
)
"""Names of clock domains with resets of their own: for the core, and for each unit in it."""
LINK_UNIT = "link_unit"
"""Name of the clock domain of the link unit, where there is one."""


def units_of(config: Config) -> tuple[str, ...]:
    """Return the names of UNITS and, with links, the name of the link unit."""
    return (*UNITS, LINK_UNIT) if config.links else UNITS


class Activity(data.StructLayout):
    """A structure that has the conditions of `Counters`."""

    def __init__(self) -> None:
        super().__init__(
            {
                "active": 1,
                "awaiting_weights": 1,
                "weights_moving": 1,
                "matrix_waits": 1,
                "input_blocked": 1,
                "operand_blocked": 1,
                "vector": 1,
                "host_wait": 1,
                "issue_waits": 1,
            }
        )


class Core(wiring.Component):
    """A core that runs a program: fetch, control path, units and memories.

    | port                                     | meaning |
    |---|---|
    | `host_read`, `host_write`, `weight_read` | AXI4 masters |
    | `running`                                | runs the program |
    | `stop`                                   | starts no more bus transfers; from the next cycle
                                                 on no tag enters the trace |
    | `clear`                                  | a reset for each of UNITS, all in the same cycle |
    | `program`                                | byte offset of the program in the host window |
    | `host_base`                              | address of the host window |
    | `host_limit`                             | bytes of the host window |
    | `weight_base`                            | address of the weight window |
    | `weight_tiles`                           | tiles of the weight window |
    | `halted`                                 | the program ends at Halt |
    | `rejected`                               | the program ends with the fault in `rejection` |
    | `error`                                  | a bus transfer has failed, for `error_cause` at
                                                 `error_pc` |
    | `corrupt`                                | the memories that have a flaw |
    | `idle`                                   | all issued instructions are complete |
    | `quiet`                                  | for each bus port: nothing is under way, nor was in
                                                 the two cycles before |
    | `waiting`                                | Synchronize_Host waits for `resume` |
    | `resume`                                 | lets Synchronize_Host go on |
    | `interrupt`                              | an Interrupt_Host passes, with its `code` |
    | `tagged`                                 | the `tag` of a Debug_Tag enters the trace |
    | `activity`                               | the conditions of `Counters` |

    | port of the links                       | meaning |
    |---|---|
    | `to_left`, `to_right`                   | links to the neighbours, see LinkUnit |
    | `from_left`, `from_right`               | links from the neighbours, see LinkUnit |
    | `cores`, `waits`, `moved`, `mismatched` | ports of the LinkUnit |
    | `clear_links`                           | resets the link unit alone |
    | `sent`                                  | all that complete instructions sent has left |

    Contents of buffer, accumulators, parameters and tables outlive a reset.
    """

    def __init__(self, *, config: Config):
        self._config = config
        links = {
            **neighbour_ports(config),
            "cores": In(CORES_BITS),
            "clear_links": In(1),
            "waits": Out(len(LinkPart)),
            "moved": Out(1),
            "sent": Out(1),
            "mismatched": Out(len(SIDES)),
        }
        super().__init__(
            {
                **(links if config.links else {}),
                **master_ports(config),
                "running": In(1),
                "stop": In(1),
                "clear": In(data.StructLayout(dict.fromkeys(units_of(config), 1))),
                "program": In(32),
                "host_base": In(config.address_bits),
                "host_limit": In(HOST_OFFSET_BITS),
                "weight_base": In(config.address_bits),
                "weight_tiles": In(TILE_BITS),
                "halted": Out(1),
                "rejected": Out(1),
                "rejection": Out(FaultReport()),
                "error": Out(1),
                "error_cause": Out(Fault),
                "error_pc": Out(PC_BITS),
                "corrupt": Out(CheckedMemory),
                "idle": Out(1),
                "quiet": Out(BusPort),
                "interrupt": Out(1),
                "resume": In(1),
                "waiting": Out(1),
                "code": Out(16),
                "tagged": Out(1),
                "tag": Out(TAG_BITS),
                "activity": Out(Activity()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        port = self._add(m, "host_read_port", HostReadPort(config=config))
        fetch = self._add(m, "fetch", Fetch(config=config))
        scalar = self._add(m, "scalar_unit", ScalarUnit(links=config.links))
        decoder = self._add(m, "decoder", Decoder(config=config))
        sequencer = self._add(m, "sequencer", Sequencer(config=config))
        board = self._add(m, "scoreboard", Scoreboard(config=config))
        reader = self._add(m, "host_reader", HostReader(config=config))
        weights = self._add(m, "weight_fetch", WeightFetch(config=config))
        matrix = self._add(m, "matrix_unit", MatrixUnit(config=config))
        activation = self._add(m, "activation_unit", ActivationUnit(config=config))
        writer = self._add(m, "host_writer", HostWriter(config=config))
        buffer = self._add(m, "unified_buffer", UnifiedBuffer(config=config))
        memory = LinkedAccumulators if config.links else Accumulators
        accumulators = self._add(m, "accumulators", memory(config=config))

        connect(m, port.bus, flipped(self.host_read))
        connect(m, writer.bus, flipped(self.host_write))
        connect(m, weights.bus, flipped(self.weight_read))
        connect(m, fetch.request, port.fetch_request)
        connect(m, port.fetch_beat, fetch.beat)
        connect(m, reader.request, port.data_request)
        connect(m, port.data_beat, reader.beat)
        connect(m, fetch.instruction, scalar.fetched)
        connect(m, scalar.coming, decoder.coming)
        m.d.comb += [
            decoder.opcode.eq(scalar.opcode),
            scalar.moves.eq(decoder.moves),
            decoder.instruction.eq(scalar.instruction),
        ]
        connect(m, decoder.decoded, sequencer.decoded)
        m.d.comb += decoder.frees.eq(sequencer.frees)
        connect(m, reader.buffer, buffer.dma_in)
        connect(m, matrix.buffer, buffer.mxu)
        connect(m, activation.buffer, buffer.activate)
        connect(m, writer.buffer, buffer.dma_out)
        if config.training:
            connect(m, weights.buffer, buffer.tiles)
            # Lines are written a cycle later than the lists let them go, so tiles are read a cycle
            # later, too.
            queue, settled = board.weights, Signal()
            m.d.sync += settled.eq(queue.unblocked & ~queue.pop)
            m.d.comb += weights.unblocked.eq(queue.unblocked & settled)
        connect(m, reader.parameters, activation.parameters)
        connect(m, activation.operands, buffer.operands)
        if config.tables:
            connect(m, reader.tables, activation.tables)

        self._control(m, port, fetch, scalar, decoder, sequencer, board)
        self._reader(m, board, reader)
        self._matrix(m, board, matrix, weights, accumulators)
        self._activation(m, board, activation, accumulators)
        self._writer(m, board, writer)
        if config.links:
            self._links(m, board, sequencer, buffer, accumulators)

        m.d.comb += [
            port.base.eq(self.host_base),
            writer.base.eq(self.host_base),
            weights.base.eq(self.weight_base),
            port.stop.eq(self.stop),
            weights.stop.eq(self.stop),
            writer.stop.eq(self.stop),
        ]
        failed = Signal()
        m.d.comb += failed.eq(Cat(unit.error for unit in (reader, writer, weights)).any())
        for which, unit in (
            (BusPort.HOST_READ, port),
            (BusPort.HOST_WRITE, writer),
            (BusPort.WEIGHT_READ, weights),
        ):
            m.d.comb += self.quiet[exact_log2(which)].eq(unit.quiet)
        # A transfer that fails still completes, in the cycle of its error or later, but no
        # Debug_Tag may record that. A tag is recorded at the earliest one cycle after the
        # completion it waits for. So it suffices to hold tags from the cycle after the error on.
        held = Signal()
        m.d.comb += board.hold_tags.eq(held)
        m.d.sync += [self.error.eq(failed), held.eq(failed | self.error | self.stop)]
        m.d.comb += self.corrupt.eq(
            Mux(buffer.flawed, int(CheckedMemory.UNIFIED_BUFFER), 0)
            | Mux(accumulators.flawed, int(CheckedMemory.ACCUMULATORS), 0)
        )
        # Cause and program counter have a meaning with `error` only.
        with m.If(weights.error):
            m.d.sync += [
                self.error_cause.eq(Fault.WEIGHT_READ_ERROR),
                self.error_pc.eq(weights.error_pc),
            ]
        with m.Elif(writer.error):
            m.d.sync += [
                self.error_cause.eq(Fault.HOST_WRITE_ERROR),
                self.error_pc.eq(board.host_writes.command.pc),
            ]
        with m.Else():
            m.d.sync += [
                self.error_cause.eq(Fault.HOST_READ_ERROR),
                self.error_pc.eq(board.host_read.command.pc),
            ]
        return m

    def _add(self, m: Module, name: str, unit: Unit, clear: Value | None = None) -> Unit:
        """Add a unit with a reset of its own, and return it."""
        m.domains += ClockDomain(name, local=True)
        m.d.comb += [
            ClockSignal(name).eq(ClockSignal()),
            ResetSignal(name).eq(self.clear[name] if clear is None else clear),
        ]
        m.submodules[name] = DomainRenamer(name)(unit)
        return unit

    def _control(
        self,
        m: Module,
        port: HostReadPort,
        fetch: Fetch,
        scalar: ScalarUnit,
        decoder: Decoder,
        sequencer: Sequencer,
        board: Scoreboard,
    ) -> None:
        m.d.comb += [
            fetch.enable.eq(self.running),
            fetch.program.eq(self.program),
            fetch.limit.eq(self.host_limit),
            fetch.starved.eq(decoder.idle),
            fetch.jump.eq(scalar.jump),
            fetch.jump_to.eq(scalar.jump_to),
            port.fetch_urgent.eq(fetch.urgent),
            decoder.host_limit.eq(self.host_limit),
            decoder.weight_tiles.eq(self.weight_tiles),
            sequencer.enable.eq(self.running),
            sequencer.exhausted.eq(fetch.exhausted & decoder.idle),
            sequencer.pc.eq(fetch.instruction.payload.pc),
            sequencer.program.eq(self.program),
            sequencer.room.eq(board.room),
            sequencer.idle.eq(board.idle),
            board.offered.eq(decoder.decoded.valid),
            board.passable.eq(sequencer.passable),
            board.issue.eq(sequencer.issue),
            board.decoded.eq(decoder.decoded.payload),
            self.halted.eq(sequencer.halted),
            self.rejected.eq(sequencer.faulted),
            self.rejection.eq(sequencer.fault),
            self.interrupt.eq(sequencer.interrupt),
            sequencer.resume.eq(self.resume),
            self.waiting.eq(sequencer.waiting),
            self.code.eq(sequencer.code),
            self.tagged.eq(board.tagged),
            self.tag.eq(board.tag),
            self.activity.host_wait.eq(sequencer.waiting),
            self.idle.eq(board.idle),
            self.activity.issue_waits.eq(sequencer.waits),
        ]

    def _reader(self, m: Module, board: Scoreboard, reader: HostReader) -> None:
        queue, reading = board.host_reads, board.host_reading
        m.d.comb += [
            reader.transfer.eq(queue.command),
            reader.transfer_valid.eq(queue.unblocked),
            queue.pop.eq(reader.transfer_pop),
            reader.entry.eq(board.host_read.command),
            board.host_read.pop.eq(reader.entry_pop),
            reading.advance.eq(reader.advance),
            reading.advance_to.eq(reader.advance_to),
            reading.retire.eq(reader.done),
        ]

    def _matrix(
        self,
        m: Module,
        board: Scoreboard,
        matrix: MatrixUnit,
        weights: WeightFetch,
        accumulators: Accumulators | LinkedAccumulators,
    ) -> None:
        queue = board.matrix
        m.d.comb += [
            weights.command.eq(board.weights.command),
            weights.command_valid.eq(board.weights.valid),
            board.weights.pop.eq(weights.command_pop),
            matrix.command.eq(queue.command),
            matrix.command_valid.eq(queue.valid),
            queue.pop.eq(matrix.command_pop),
            matrix.weight_row.eq(weights.row),
            matrix.weight_arrived.eq(weights.row_valid),
            weights.row_take.eq(matrix.weight_take),
            board.matrix_reading.advance.eq(matrix.advance_read),
            board.matrix_reading.advance_to.eq(matrix.advance_read_to),
            board.matrix_reading.retire.eq(matrix.read_done),
            board.matrix_summing.advance.eq(matrix.advance_sum),
            board.matrix_summing.advance_to.eq(matrix.advance_sum_to),
            board.matrix_summing.retire.eq(matrix.sum_done),
            accumulators.update.eq(matrix.update),
            accumulators.reads.eq(matrix.update_reads),
            accumulators.row.eq(matrix.update_row),
            accumulators.accumulate.eq(matrix.accumulate),
            accumulators.shift.eq(matrix.shift),
            accumulators.sums.eq(matrix.sums),
            self.activity.active.eq(matrix.active),
            self.activity.awaiting_weights.eq(matrix.awaiting_weights),
            self.activity.weights_moving.eq(matrix.weights_moving),
            self.activity.matrix_waits.eq(matrix.waits.as_value().any()),
            self.activity.input_blocked.eq(matrix.waits.host_reading),
            self.activity.operand_blocked.eq(matrix.waits.activate_writing),
        ]
        self._show_awaited(m, board, queue, matrix)

    def _activation(
        self,
        m: Module,
        board: Scoreboard,
        activation: ActivationUnit,
        accumulators: Accumulators | LinkedAccumulators,
    ) -> None:
        queue = board.activate
        m.d.comb += [
            activation.command.eq(queue.command),
            activation.command_valid.eq(queue.valid),
            *([activation.running.eq(self.running)] if self._config.columns_per_lane > 1 else []),
            queue.pop.eq(activation.command_pop),
            accumulators.enable.eq(activation.enable),
            accumulators.address.eq(activation.address),
            activation.ready.eq(accumulators.ready),
            activation.accumulators.eq(accumulators.data),
            board.activate_reading.advance.eq(activation.advance_read),
            board.activate_reading.advance_to.eq(activation.advance_read_to),
            board.activate_reading.retire.eq(activation.rows_done),
            board.activate_operands.retire.eq(activation.lines_done),
            self.activity.vector.eq(activation.takes_line),
            board.activate_writing.advance.eq(activation.advance_write),
            board.activate_writing.advance_to.eq(activation.advance_write_to),
            board.activate_writing.retire.eq(activation.write_done),
        ]
        self._show_awaited(m, board, queue, activation)

    def _writer(self, m: Module, board: Scoreboard, writer: HostWriter) -> None:
        queue = board.host_writes
        m.d.comb += [
            writer.command.eq(queue.command),
            writer.command_valid.eq(queue.valid),
            queue.pop.eq(writer.done),
            writer.blocked.eq(queue.blocked.host_memory),
            board.host_writing.advance.eq(writer.advance),
            board.host_writing.advance_to.eq(writer.advance_to),
            board.host_writing.retire.eq(writer.done),
        ]
        self._show_awaited(m, board, queue, writer)

    def _links(
        self,
        m: Module,
        board: Scoreboard,
        sequencer: Sequencer,
        buffer: UnifiedBuffer,
        accumulators: Accumulators | LinkedAccumulators,
    ) -> None:
        """Add the link unit, which uses the memories' ports in cycles in which no other unit
        does."""
        links = LinkUnit(config=self._config)
        cleared = Signal()
        m.d.comb += cleared.eq(self.clear[LINK_UNIT] | self.clear_links)
        self._add(m, LINK_UNIT, links, cleared)
        for name in neighbour_ports(self._config):
            connect(m, getattr(links, name), flipped(getattr(self, name)))
        for side in SIDES:
            for queue_name, list_name in (
                (f"send_{side}", f"sending_{side}"),
                (f"receive_{side}", f"receiving_{side}"),
            ):
                part, queue, uses = (
                    getattr(links, queue_name),
                    getattr(board, queue_name),
                    getattr(board, list_name),
                )
                # Lines are written a cycle later than the lists let them go.
                settled = Signal(name=f"{queue_name}_settled")
                m.d.sync += settled.eq(queue.unblocked & ~queue.pop)
                connect(m, part.rows, uses.rows)
                connect(m, uses.cleared, part.cleared)
                m.d.comb += [
                    part.command.valid.eq(queue.unblocked & settled),
                    part.command.payload.eq(queue.command),
                    queue.pop.eq(part.command.valid & part.command.ready),
                    uses.taken.eq(queue.pop),
                    uses.advance.eq(part.advance),
                    uses.advance_to.eq(part.advance_to),
                    uses.retire.eq(part.done),
                ]
        connect(m, links.buffer_read, buffer.link_out)
        connect(m, links.buffer_write, buffer.link_in)

        connect(m, links.sums_read, accumulators.sums_read)
        connect(m, links.sums_update, accumulators.sums_update)
        memories = (links.buffer_read, links.buffer_write, links.sums_read, links.sums_update)
        m.d.comb += [
            links.cores.eq(self.cores),
            links.arrived.eq(sequencer.arrived),
            sequencer.passed.eq(links.passed),
            self.waits.eq(links.waits),
            # A part that only waits for a memory is not stuck.
            self.moved.eq(links.moved | Cat(port.enable & ~port.ready for port in memories).any()),
            self.mismatched.eq(links.mismatched),
            self.sent.eq(links.quiet),
        ]

    def _show_awaited(
        self,
        m: Module,
        board: Scoreboard,
        queue: wiring.PureInterface,
        unit: MatrixUnit | ActivationUnit | HostWriter,
    ) -> None:
        """Connect the masks of a unit's queue with the unit, and the progress of the lists that
        they name.

        The queue and the unit may have the masks in different orders.
        """
        for mask, _ in unit.masks.shape():
            m.d.comb += [
                unit.masks[mask].eq(queue.masks[mask]),
                unit.progress[mask].eq(getattr(board, list_of(mask)).progress),
            ]
