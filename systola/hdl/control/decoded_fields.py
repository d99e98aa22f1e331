# SPDX-License-Identifier: Apache-2.0
"""The fields of a decoded instruction, chosen from its word and the results of its steps."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.arch.isa import Fault, Opcode
from systola.hdl.commands import (
    HOST_OFFSET_BITS,
    TILE_COUNT_BITS,
    InstructionLayout,
    line_bits,
    parameter_space,
    table_space,
)
from systola.hdl.control.activate_decoder import ActivateDecoder
from systola.hdl.control.checks import Found, partitions, tables_used, times
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.hazards import LOADS, STORES, groups_of
from systola.hdl.control.link_decoder import LinkDecoder
from systola.hdl.control.matrix_decoder import MatrixDecoder
from systola.hdl.control.scalar_unit import EffectiveInstruction, fields_of, is_one_of
from systola.hdl.control.window import WindowProducts

ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)


class Verdict(data.StructLayout):
    """A layout that records if a check has failed, with fault and address of the first failure."""

    def __init__(self) -> None:
        super().__init__({"failed": 1, "cause": ceil_log2(len(Fault)), "address": 32})


class DecodedFields(wiring.Component):
    """A unit that forms the fields of a decoded instruction by choices between registers.

    | port       | meaning |
    |---|---|
    | `given`    | the instruction |
    | `leaves`   | `decoded` is taken in this cycle |
    | `shape`    | fields of the present window (Set_Config_Window) |
    | `products` | numbers that follow from the present window |
    | `found`    | results of the instruction's steps |
    | `ways`     | a bit for each group of instructions: the instruction belongs to the group |
    | `linear`   | the copy is a single run |
    | `tiles`    | number of weight tiles that the instruction queues or consumes |
    | `host_end` | first byte of host memory after those that the instruction uses |
    | `verdict`  | verdict on the instruction |
    | `decoded`  | the decoded instruction, in the same cycle |

    The fields of the last Set_Config_Scale that has left are kept for later instructions.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "given": In(EffectiveInstruction(links=config.links)),
                "leaves": In(1),
                "shape": In(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
                "products": In(WindowProducts()),
                "found": In(Found(config=config)),
                "ways": In(len(groups_of(config))),
                "linear": In(1),
                "tiles": In(TILE_COUNT_BITS),
                "host_end": In(HOST_OFFSET_BITS),
                "verdict": In(Verdict()),
                "decoded": Out(Decoded(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, out, shown = self._config, self.decoded, self.found
        fields = fields_of(self.given.word)
        m.d.comb += [
            out.kind.eq(self.given.kind),
            out.ways.eq(self.ways),
            out.pc.eq(self.given.pc),
            out.failed.eq(self.verdict.failed),
            out.cause.eq(self.verdict.cause),
            out.source.eq(shown.source),
            out.operand.eq(shown.operand),
            out.accumulator.eq(shown.accumulator),
            out.host.base.eq(self.given.sums[0]),
            out.host.end.eq(self.host_end),
            out.code.eq(fields[Opcode.INTERRUPT_HOST].code),
            out.units.eq(fields[Opcode.DEBUG_TAG].wait),
        ]
        self._commands(m)
        self._spaces(m)
        self._transfer(m)
        self._weights(m)
        if config.links:
            m.submodules.link = link_decoder = LinkDecoder(config=config)
            m.d.comb += [
                link_decoder.given.eq(self.given),
                link_decoder.found.eq(shown),
                out.link.eq(link_decoder.command),
                out.side.eq(link_decoder.side),
            ]
        return m

    def _commands(self, m: Module) -> None:
        """Form the commands of the matrix unit and of the activation unit."""
        word, kind = self.given.word, self.given.kind
        scale = Signal(InstructionLayout(Opcode.SET_CONFIG_SCALE))
        with m.If(self.leaves & is_one_of(kind, Opcode.SET_CONFIG_SCALE)):
            m.d.sync += scale.eq(word)
        m.submodules.matrix = matrix_decoder = MatrixDecoder(config=self._config)
        m.submodules.activate = activate_decoder = ActivateDecoder(config=self._config)
        for unit in (matrix_decoder, activate_decoder):
            m.d.comb += [
                unit.given.eq(self.given),
                unit.shape.eq(self.shape),
                unit.products.eq(self.products),
                unit.found.eq(self.found),
            ]
        m.d.comb += [
            activate_decoder.scale.eq(scale),
            self.decoded.matrix.eq(matrix_decoder.command),
            self.decoded.activate.eq(activate_decoder.command),
        ]

    def _chosen(self, *choices: tuple[Opcode | tuple[Opcode, ...], ValueLike]) -> Value:
        """Return the value listed for this kind of instruction, or 0 if none is listed."""
        found: Value = Const(0)
        for opcodes, value in choices:
            one = (opcodes,) if isinstance(opcodes, Opcode) else opcodes
            found = found | Mux(is_one_of(self.given.kind, *one), value, 0)
        return found

    def _spaces(self, m: Module) -> None:
        """Form the regions of buffer lines, parameters and tables.

        The address of an entry or table is its number ORed with the first address of its space.
        """
        config, out, shown = self._config, self.decoded, self.found
        fields = fields_of(self.given.word)
        vector, activate = fields[Opcode.VECTOR], fields[Opcode.ACTIVATE]
        entries, tables = parameter_space(config), table_space(config)
        space = self._chosen((Opcode.LOAD_PARAMETERS, entries), (Opcode.LOAD_TABLE, tables))
        looked_up = self._chosen((Opcode.ACTIVATE, activate.table), (Opcode.VECTOR, vector.table))
        looks_up = self._chosen(
            (Opcode.ACTIVATE, tables_used(config, Opcode.ACTIVATE, activate)),
            (Opcode.VECTOR, tables_used(config, Opcode.VECTOR, vector)),
        )
        end: Value = shown.buffer.end
        if config.attention:
            # A partition writes no lines, and its results begin at line 0. So its region is empty.
            # Loads wait for the entry that it writes as for any entry that an instruction uses.
            end = Mux(self._chosen((Opcode.VECTOR, partitions(vector))), 0, end)
        m.d.comb += [
            out.buffer.base.eq(shown.buffer.base | space),
            out.buffer.end.eq(end | space),
            out.parameters.base.eq(shown.parameter.base | entries),
            out.parameters.end.eq(shown.parameter.end | entries),
            out.table.base.eq(looked_up | tables),
            out.table.end.eq((looked_up + looks_up)[:5] | tables),
        ]

    def _transfer(self, m: Module) -> None:
        """Form the transfer of a copy.

        If the lines of a copy follow one another in host memory, the copy is a single run. Else
        each line is a run or, with an alternate copy, each row of lines.
        """
        config, out, shown = self._config, self.decoded, self.found
        kind, read = self.given.kind, fields_of(self.given.word)[Opcode.READ_HOST_MEMORY]
        alternate = is_one_of(kind, *ALTERNATE)
        line_beats = Mux(
            is_one_of(kind, *STORES),
            config.output_pitch // config.host_bus_bytes,
            config.input_pitch // config.host_bus_bytes,
        )
        loads = is_one_of(kind, *LOADS)
        run = Mux(self.linear, shown.run, Mux(alternate, read.blocks, 1))
        m.d.comb += [
            out.transfer.address.eq(self.given.sums[0]),
            out.transfer.beats.eq(
                Mux(loads, shown.run >> exact_log2(config.host_bus_bytes), run * line_beats)
            ),
            out.transfer.rows.eq(Mux(loads | self.linear, 1, read.rows)),
            out.transfer.stride.eq(read.stride),
            out.transfer.blocks.eq(Mux(loads | self.linear | alternate, 1, read.blocks)),
            out.tail.line.eq(shown.buffer.end - read.rows),
            out.tail.every.eq(Mux(alternate, read.blocks, 0)),
            out.tail.bytes.eq(read.tail + 1),
        ]

    def _weights(self, m: Module) -> None:
        """Form the transfer of weights, the count of tiles, and the address of a fault.

        With training, a MatrixMultiply may take its weights from the buffer.
        """
        config, out, shown = self._config, self.decoded, self.found
        fields = fields_of(self.given.word)
        weights = fields[Opcode.READ_WEIGHTS]
        first = self.given.sums[0][: len(weights.tile)]
        weight_address: Value = times(first, config.tile_bytes)
        weight_beats: Value = times(weights.count, config.tile_bytes // config.weight_bus_bytes)
        consumed, address = self.tiles, self.verdict.address
        if config.training:
            multiplies = is_one_of(self.given.kind, Opcode.MATRIX_MULTIPLY)
            from_buffer = fields[Opcode.MATRIX_MULTIPLY].from_buffer
            line = line_bits(config)
            base = Mux(multiplies, shown.source.base, weight_address)[:line]
            weight_address = Cat(base, weight_address[line:])
            weight_beats = Mux(multiplies, self.tiles[: len(weight_beats)], weight_beats)
            consumed = Mux(multiplies & from_buffer, 0, consumed)
            address = Mux(multiplies & ~self.verdict.failed, shown.source.base, address)
            m.d.comb += out.from_buffer.eq(from_buffer)
        m.d.comb += [
            out.address.eq(address),
            out.weight_transfer.address.eq(weight_address),
            out.weight_transfer.beats.eq(weight_beats),
            out.tiles.eq(consumed),
        ]
