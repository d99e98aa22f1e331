# SPDX-License-Identifier: Apache-2.0
"""Decodes instruction words into regions, commands and fault causes."""

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import LINK_OPCODES, OPCODE_BITS, Fault, Opcode
from systola.hdl.commands import (
    HOST_OFFSET_BITS,
    TILE_BITS,
    TILE_COUNT_BITS,
    InstructionLayout,
)
from systola.hdl.control.checks import LEAST_STEPS, Found, Known
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.decoded_fields import ALTERNATE, DecodedFields, Verdict
from systola.hdl.control.decoder_steps import walks
from systola.hdl.control.hazards import groups_of
from systola.hdl.control.scalar_unit import (
    Coming,
    EffectiveInstruction,
    fields_of,
    is_one_of,
)
from systola.hdl.control.walk_table import WalkTable, selected
from systola.hdl.control.window import WindowProducts
from systola.hdl.control.word_checks import word_checks
from systola.hdl.parts.in_flight import Region
from systola.hdl.parts.multiplier import LATENCY as MULTIPLIED
from systola.hdl.parts.multiplier import WIDTH_LIMIT, Multiplier
from systola.hdl.parts.promise import promised
from systola.hdl.parts.selecting_adder import SelectingAdder

A, B = signed(25), unsigned(16)
"""Shapes of the two factors of the product in a step."""
RESULT = signed(42)
"""Shape of a step's result, the sum of a base and a product."""


@dataclass(frozen=True)
class _Finish:
    """A group of signals that mark the end of an instruction in the decoder.

    | field     | meaning |
    |---|---|
    | `pending` | a finished instruction waits |
    | `copies`  | the finished instruction is copied to `decoded` |
    | `judged`  | `decoded` has the instruction in its first cycle, with its verdict |
    """

    pending: Signal
    copies: Signal
    judged: Signal


class Decoder(wiring.Component):
    """A decoder that walks through the steps of each instruction, one step a cycle.

    `decoder_steps` has these steps. They share one multiplier, one adder and one comparison.

    | port           | meaning |
    |---|---|
    | `opcode`       | first byte of the next instruction, one cycle before it is `coming` |
    | `coming`       | stream of instructions; each stays until the multiplier has taken the factors
                       of its last step |
    | `moves`        | the instruction moves from `coming` to `instruction` |
    | `instruction`  | the instruction that has moved, at least three cycles after it came; its
                       addresses are used MULTIPLIED cycles after its factors |
    | `decoded`      | stream of decoded instructions |
    | `frees`        | the value that `decoded.ready` will have one cycle later |
    | `host_limit`   | bytes of the host window |
    | `weight_tiles` | tiles of the weight memory |
    | `idle`         | the decoder has no instruction |

    With the sum of its last step an instruction is copied to `decoded`, or waits until `decoded` is
    free.
    While it waits, no later instruction moves to `instruction`. A Set_Config_Window waits until all
    instructions before it have left.

    An instruction of n steps (n >= LEAST_STEPS) that comes to an empty decoder is valid in
    `decoded` after n + MULTIPLIED + 1 cycles. The next instruction may follow n cycles after it.
    An undefined opcode takes the steps of the opcode that has the same lower bits. The checks of
    arch/isa/ are made in the order of the ISA, except the two that need the state of the weight
    queue.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "opcode": In(OPCODE_BITS),
                "coming": In(stream.Signature(Coming(links=config.links))),
                "moves": Out(1),
                "instruction": In(EffectiveInstruction(links=config.links)),
                "decoded": Out(stream.Signature(Decoded(config=config))),
                "frees": In(1),
                "host_limit": In(HOST_OFFSET_BITS),
                "weight_tiles": In(TILE_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        self._window_shape = Signal(InstructionLayout(Opcode.SET_CONFIG_WINDOW), reset_less=True)
        self._window_products = Signal(WindowProducts(), reset_less=True)
        self._window_set = Signal()  # the program has set a window
        self._found_regions = Signal(Found(config=config), reset_less=True)
        self._step_result = Signal(RESULT)
        self._step_sum = Signal(RESULT, reset_less=True)
        self._step_limit = Signal(HOST_OFFSET_BITS, reset_less=True)
        self._region_base = Signal(HOST_OFFSET_BITS, reset_less=True)
        self._finished_instruction = Signal(
            EffectiveInstruction(links=config.links), reset_less=True
        )
        steps = walks(
            config,
            self.coming.payload.word,
            self.instruction.word,
            self.instruction.sums,
            Known(
                shape=self._window_shape,
                products=self._window_products,
                found=self._found_regions,
                host_limit=self.host_limit,
                weight_tiles=self.weight_tiles,
            ),
        )
        table = self._table = WalkTable(steps, self._step_sum, links=config.links)
        # row of the table for the step that is in the adder
        self._added_row = Signal(table.results, reset_less=True)
        # the product is zero, in a step that requires at least 1
        self._product_zero = Signal(reset_less=True)
        # fault of the compared step, if its check fails
        self._step_fault = Signal(Fault, reset_less=True)
        self._overlap_allowed = Signal(reset_less=True)  # the compared regions may overlap

        stages_move = Signal(init=1)
        tokens, low, high = self._factors(m, stages_move)
        multiplied_step, added_step = tokens[-2:]
        compared_step = Signal.like(added_step)  # marks the step that is compared with its limit
        finish = self._finish(m, platform, stages_move, tokens)
        m.d.sync += [
            added_step.eq(multiplied_step),
            added_step.valid.eq(multiplied_step.valid & stages_move),
            self._added_row.eq(table.row(multiplied_step.place)),
            compared_step.eq(added_step),
            self._step_fault.eq(table.fault(self._added_row.limit)),
            # The product is zero if its two parts are zero.
            self._product_zero.eq(self._added_row.least & ~(low.any() | high.any())),
        ]
        # The results of a Vector may replace an operand: they may have exactly its lines.
        given = self.instruction
        vector = fields_of(given.word)[Opcode.VECTOR]
        replaces = is_one_of(given.kind, Opcode.VECTOR) & (vector.wide == vector.wide_operands)
        allowed = table.overlaps(self._added_row.limit, self._found_regions.buffer.base)
        m.d.sync += self._overlap_allowed.eq(replaces & allowed)

        product = self._add(m, added_step, low, high, self._found_regions)
        self._show(m, finish, product, self._judge(m, compared_step))
        return m

    def _factors(self, m: Module, stages_move: Signal) -> tuple[list[data.View], Value, Value]:
        """Give the factors of a step to the multiplier; return the steps in its stages, and the two
        parts of the product.

        A token accompanies each step through the stages of the multiplier. The last token is the
        step in the adder.
        """
        table = self._table
        # the step that gives its factors to the multiplier in this cycle
        factor_step = Signal(table.operands, reset_less=True)
        step_place = Signal(range(table.places + 1), reset_less=True)
        step_begins = Signal(reset_less=True)
        token = data.StructLayout(
            {**dict.fromkeys(("valid", "first", "last"), 1), "place": len(step_place)}
        )
        tokens = [Signal(token, name=f"token_{i}") for i in range(1, MULTIPLIED + 1)]
        first_place, first_step = table.start(self.opcode)
        goes_on = self.coming.valid & ~factor_step.last
        with m.If(stages_move | ~self.coming.valid):
            m.d.sync += [
                factor_step.eq(Mux(goes_on, table.behind(step_place), first_step)),
                step_place.eq(Mux(goes_on, step_place + 1, first_place)),
                step_begins.eq(~goes_on),
            ]
        factor_a = Signal(A)
        factor_b = Signal(B)
        m.d.comb += [
            factor_a.eq(table.a.selected(factor_step.a)),
            factor_b.eq(table.b.selected(factor_step.b)),
            self.coming.ready.eq(stages_move & factor_step.last),
        ]
        with m.If(stages_move):
            m.d.sync += [
                tokens[0].valid.eq(self.coming.valid),
                tokens[0].first.eq(step_begins),
                tokens[0].last.eq(factor_step.last),
                tokens[0].place.eq(step_place),
                *(later.eq(earlier) for earlier, later in pairwise(tokens[:-1])),
            ]
        return tokens, *self._multiply(m, factor_a, factor_b, stages_move)

    def _finish(
        self, m: Module, platform: object, stages_move: Signal, tokens: list[data.View]
    ) -> _Finish:
        """Move the instructions from stage to stage.

        A finished instruction waits until `decoded` is free. The instructions after it wait, too.
        """
        decoded = self.decoded
        entering, multiplied, added_step = tokens[-3:]
        decoded_free = Signal()
        finished_waits = Signal()
        step_finished = Signal()
        instruction_copies = Signal()
        verdict_due = Signal()
        last_added = added_step.valid & added_step.last
        enters = multiplied.valid & multiplied.first
        m.d.comb += [
            decoded_free.eq(~decoded.valid | decoded.ready),
            step_finished.eq(last_added | finished_waits),
            instruction_copies.eq(step_finished & decoded_free),
            self.moves.eq(enters & stages_move),
            self.idle.eq(
                ~Cat(
                    self.coming.valid,
                    *(token.valid for token in tokens),
                    finished_waits,
                    decoded.valid,
                ).any()
            ),
        ]
        # `stages_move` is a register, because all stages back to the fetch use it as their `ready`.
        # An instruction enters when its first step is in the last stage of the multiplier. Until
        # then `coming` shows the instruction, as it has at least as many steps as the multiplier
        # has stages.
        assert LEAST_STEPS >= MULTIPLIED
        sets_window = is_one_of(self.coming.payload.kind, Opcode.SET_CONFIG_WINDOW)
        will_enter = Mux(stages_move, entering.valid & entering.first, enters)
        will_wait = step_finished & ~decoded_free
        will_finish = (multiplied.valid & stages_move & multiplied.last) | will_wait
        will_show = instruction_copies | (decoded.valid & ~decoded.ready)
        will_be_free = ~will_show | self.frees
        decoded_freed = Signal()
        m.d.sync += decoded_freed.eq(self.frees)
        promised(
            m, platform, decoded.ready == decoded_freed, "decoded.ready is what frees has said"
        )
        m.d.sync += [
            finished_waits.eq(will_wait),
            verdict_due.eq(instruction_copies),
            decoded.valid.eq(will_show),
            stages_move.eq(
                ~will_enter
                | Mux(sets_window, ~will_finish & will_be_free, ~will_finish | will_be_free)
            ),
        ]
        return _Finish(pending=finished_waits, copies=instruction_copies, judged=verdict_due)

    def _ways_of(self, given: data.View) -> Value:
        """Return a bit for each group of instructions: `given` belongs to this group."""
        from_buffer = fields_of(given.word)[Opcode.MATRIX_MULTIPLY].from_buffer
        return Cat(
            is_one_of(given.kind, *group.opcodes) & (from_buffer | (not group.from_buffer))
            for group in groups_of(self._config)
        )

    def _multiply(self, m: Module, a: Value, b: Value, stages_move: Value) -> tuple[Value, Value]:
        """Return two products: `b` times the lower bits, and `b` times the upper bits of `a`.

        The lower part has WIDTH_LIMIT bits, as a multiplier block takes no longer operand.
        """
        low = m.submodules.low = Multiplier(a=unsigned(WIDTH_LIMIT), b=B)
        high = m.submodules.high = Multiplier(a=signed(len(a) - WIDTH_LIMIT), b=B)
        m.d.comb += [
            low.a.eq(a[:WIDTH_LIMIT]),
            high.a.eq(a[WIDTH_LIMIT:]),
            low.b.eq(b),
            high.b.eq(b),
            low.enable.eq(stages_move),
            high.enable.eq(stages_move),
        ]
        return low.product, high.product

    def _add(
        self, m: Module, added_step: data.View, low: Value, high: Value, found: data.View
    ) -> Value:
        """Add base and product of a step, store the sum, choose its limit; return the product."""
        product = Cat(low[:WIDTH_LIMIT], low[WIDTH_LIMIT:] + high).as_signed()
        table, row, word = self._table, self._added_row, self.instruction.word
        stride = fields_of(word)[Opcode.READ_HOST_MEMORY].stride
        region_base = Signal(RESULT)
        first_base = Signal(RESULT)
        second_base = Signal(RESULT)
        limits = [Const(0) if each is None else Value.cast(each.value) for each in table.limits]
        begins = added_step.valid & table.begins(row.base)
        adder = m.submodules.adder = SelectingAdder(width=len(self._step_result))
        # The bases of all steps form two halves, of which each offers one base. The look-up tables
        # of the adder choose between these two.
        m.d.comb += [
            first_base.eq(table.bases.selected(row.base, 0)),
            second_base.eq(table.bases.selected(row.base, 1)),
            region_base.eq(Mux(row.base.half, second_base, first_base)),
            adder.a.eq(product),
            adder.b.eq(second_base),
            adder.c.eq(first_base),
            adder.choose_b.eq(row.base.half.replicate(len(first_base))),
            self._step_result.eq(adder.total),
        ]
        with m.If(added_step.valid):
            m.d.sync += [
                self._step_sum.eq(self._step_result),
                self._step_limit.eq(selected(limits, row.limit)),
            ]
        with m.If(begins):
            # A constant base is no address, so a failed check of the window has address 0.
            addresses = (table.bases.selected(row.base, half, constants=False) for half in (0, 1))
            m.d.sync += self._region_base.eq(Mux(row.base.half, *reversed(tuple(addresses))))
        # The pitch fits into the lower part of the factor, so `low` holds the whole product.
        assert not self._config.input_pitch >> WIDTH_LIMIT
        special: dict[str, ValueLike] = {"run": product, "dense": low == stride}
        regions = [n for n, shape in found.shape().members.items() if isinstance(shape, Region)]
        with m.If(added_step.valid & added_step.first):
            m.d.sync += [found[name].eq(0) for name in regions]
        for target in (found, self._window_products):
            for name, shape in target.shape().members.items():
                numbers = [i for i, names in enumerate(table.intos) if name in names]
                goes_here = added_step.valid & Cat(row.into == number for number in numbers).any()
                with m.If(goes_here):
                    if isinstance(shape, Region):
                        m.d.sync += target[name].end.eq(self._step_result)
                    else:
                        m.d.sync += target[name].eq(special.get(name, self._step_result))
                if isinstance(shape, Region):
                    with m.If(goes_here & begins):
                        m.d.sync += target[name].base.eq(region_base)
        is_window = is_one_of(self.instruction.kind, Opcode.SET_CONFIG_WINDOW)
        with m.If(added_step.valid & added_step.first & is_window):
            m.d.sync += [self._window_shape.eq(word), self._window_set.eq(1)]
        return product

    def _judge(self, m: Module, compared_step: data.View) -> data.View:
        """Return the verdict on the instruction in `decoded`, valid in its first cycle there."""
        fault, begins = self._step_fault, compared_step.valid & compared_step.first
        sum_beyond = Signal()
        half_beyond = Signal()
        check_counts = Signal()
        check_fails = Signal()
        # The address in the verdict belongs to the first failed check. Without a failed check, it
        # is the base of the first step.
        kept_verdict = Signal(Verdict(), reset_less=True)
        m.d.comb += [
            # Taken as an unsigned number, a negative sum is very large and exceeds every limit.
            sum_beyond.eq(self._step_limit - self._step_sum.as_unsigned() < 0),
            check_counts.eq(
                compared_step.valid
                & (fault != Fault.NONE)
                & ((fault != Fault.OVERLAP) | (half_beyond & ~self._overlap_allowed))
                & (compared_step.first | ~kept_verdict.failed)
            ),
            check_fails.eq(check_counts & sum_beyond),
        ]
        m.d.sync += kept_verdict.failed.eq(check_fails | (kept_verdict.failed & ~begins))
        with m.If(begins | check_fails):
            m.d.sync += [
                kept_verdict.cause.eq(Mux(check_fails, fault, Fault.NONE)),
                kept_verdict.address.eq(self._region_base),
            ]
        least_zero = Signal(reset_less=True)
        least_now = Signal()
        m.d.comb += least_now.eq(
            Mux(
                compared_step.valid,
                (least_zero & ~compared_step.first) | self._product_zero,
                least_zero,
            )
        )
        with m.If(compared_step.valid):
            m.d.sync += half_beyond.eq(sum_beyond)
        m.d.sync += least_zero.eq(least_now)

        given = self._finished_instruction
        opcode = given.word[:OPCODE_BITS]
        unknown: ValueLike = Fault.ILLEGAL_OPCODE
        if not self._config.links:
            # On a machine without links, opcodes of the links are undefined, too. Only their fault
            # differs from the fault of other undefined opcodes.
            size = len(LINK_OPCODES)
            is_of_links = opcode[exact_log2(size) :] == min(LINK_OPCODES) // size
            unknown = Mux(is_of_links, int(Fault.UNAVAILABLE), int(Fault.ILLEGAL_OPCODE))
        # The checks of the word look at `instruction` of the cycle before. The word has been there
        # for at least three cycles.
        checks = word_checks(
            self._config,
            self.instruction,
            self._table.checked,
            self._window_shape,
            self._window_set,
        )
        word_faults = Signal(len(checks), reset_less=True)
        m.d.sync += word_faults.eq(Cat(checks))
        no_kind, *wrong, other_machine, unavailable, no_window = word_faults
        early: tuple[tuple[Value, ValueLike, ValueLike], ...] = (
            (given.error, Fault.FETCH_ERROR, 0),
            (no_kind, unknown, opcode),
            (Cat(*wrong, least_now).any(), Fault.ILLEGAL_FIELD, 0),
            (given.loop_fault, Fault.LOOP, given.loops),
            (other_machine, Fault.OTHER_MACHINE, 0),
            (unavailable, Fault.UNAVAILABLE, opcode),
            (no_window, Fault.WINDOW, 0),
        )
        # `earlier_verdict` is the verdict for the case that the last check holds. The result of the
        # last check is known late in the cycle.
        earlier_verdict = Signal(Verdict())
        word_fails = Signal()
        m.d.comb += [
            earlier_verdict.failed.eq(kept_verdict.failed & ~begins),
            earlier_verdict.cause.eq(Mux(begins, Fault.NONE, kept_verdict.cause)),
            earlier_verdict.address.eq(Mux(begins, self._region_base, kept_verdict.address)),
            word_fails.eq(Cat(condition for condition, _, _ in early).any()),
        ]
        for condition, cause, address in reversed(early):
            with m.If(condition):
                m.d.comb += [
                    earlier_verdict.failed.eq(1),
                    earlier_verdict.cause.eq(cause),
                    earlier_verdict.address.eq(address),
                ]
        verdict = Signal(Verdict())
        last_verdict = Signal(Verdict())
        m.d.comb += [
            last_verdict.failed.eq(1),
            last_verdict.cause.eq(fault),
            last_verdict.address.eq(self._region_base),
            verdict.eq(Mux(check_fails & ~word_fails, last_verdict, earlier_verdict)),
        ]
        return verdict

    def _show(self, m: Module, finish: _Finish, product: Value, verdict: data.View) -> None:
        """Copy the finished instruction to registers, and drive `decoded` from them."""
        given, found = self.instruction, self._found_regions
        tile_count = Signal(TILE_COUNT_BITS, reset_less=True)  # number of tiles, the last product
        # end of the bytes in host memory, which is the last sum
        host_end = Signal(HOST_OFFSET_BITS, reset_less=True)
        shown_found = Signal(Found(config=self._config), reset_less=True)
        kept_verdict = Signal(Verdict(), reset_less=True)
        groups_entered = Signal(len(groups_of(self._config)), reset_less=True)
        lines_linear = Signal(reset_less=True)
        # If the lines of a copy follow one another in host memory, the copy is a single run.
        copy = fields_of(given.word)[Opcode.READ_HOST_MEMORY]
        one_block = is_one_of(given.kind, *ALTERNATE) | (copy.blocks == 1)
        with m.If(finish.copies):
            m.d.sync += [
                self._finished_instruction.eq(given),
                shown_found.eq(found),
                groups_entered.eq(self._ways_of(given)),
                lines_linear.eq((copy.rows == 1) | (one_block & found.dense)),
                # A step that counts tiles has base 0, so its sum is the product.
                tile_count.eq(Mux(finish.pending, self._step_sum, product)),
            ]
        with m.If(finish.judged):
            m.d.sync += [kept_verdict.eq(verdict), host_end.eq(self._step_sum)]
        fields = m.submodules.fields = DecodedFields(config=self._config)
        m.d.comb += [
            fields.given.eq(self._finished_instruction),
            fields.leaves.eq(self.decoded.valid & self.decoded.ready),
            fields.shape.eq(self._window_shape),
            fields.products.eq(self._window_products),
            fields.found.eq(shown_found),
            fields.ways.eq(groups_entered),
            fields.linear.eq(lines_linear),
            fields.tiles.eq(tile_count),
            fields.host_end.eq(host_end),
            fields.verdict.eq(kept_verdict),
            self.decoded.payload.eq(fields.decoded),
        ]
