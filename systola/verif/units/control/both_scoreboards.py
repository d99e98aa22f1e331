# SPDX-License-Identifier: Apache-2.0
"""A unit for tests with two decoders and their scoreboards, which issue in lockstep.

One pair is `Decoder` and `Scoreboard`. The other pair is `SequencedDecoder` and
`NumberedScoreboard`, which names the entries of its lists by sequence numbers.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.control.hazards import MASKS
from systola.hdl.control.number_memory import NumberMemory
from systola.hdl.control.numbered_scoreboard import RINGS, NumberedScoreboard
from systola.hdl.control.scan_rom import LISTS
from systola.hdl.control.scoreboard import Scoreboard
from systola.verif.units.control.both_decoders import WORD, BothDecoders

CHECKED = 2
"""Cycles after which the decoder has checked an instruction that it shows."""


def _shown_by(name: str) -> str:
    """Return the first queue that waits for list `name`, so that its port shows the progress.

    The progress is the list's oldest entry and how far the entry has got.
    """
    return next(queue for queue, masks in MASKS.items() if name in masks)


class BothScoreboards(wiring.Component):
    """A unit with both decoders and both scoreboards, to compare their outputs.

    | port | meaning |
    |---|---|
    | `instruction`, `given` | the same instructions, for the decoder and the sequenced decoder |
    | `allowed` | both scoreboards may issue an instruction, in the same cycle |
    | `pop` | for each of RINGS: the unit takes a command from the queue |
    | `advance`, `retire` | for each of LISTS: the oldest entry has got to `advance_to`, or leaves |
    | `judges` | the sequenced decoder completes an instruction |
    | `issues` | both scoreboards issue an instruction |
    | `has_room` | the decoder has checked an instruction, and `Scoreboard` has room for it |
    | `failed` | the decoder has checked an instruction, which has a fault |
    | `old_*` | an output of `Scoreboard` |
    | `new_*`, `ready`, `finds`, `found`, `queue` | an output of `NumberedScoreboard` |
    """

    def __init__(self, *, config: Config):
        self._decoders = BothDecoders(config=config)
        self._old = Scoreboard(config=config)
        self._new = NumberedScoreboard(config=config)
        given = self._decoders.signature.members
        old, new = self._old.signature.members, self._new.signature.members
        self._numbers = {}
        shown = {}
        for name in LISTS:
            queue = _shown_by(name)
            shown[f"old_{name}"] = Out(old[queue].signature.members["progress"].shape[name].shape)
            shown[f"new_{name}"] = Out(new[name].signature.members["progress"].shape)
        for name in RINGS:
            members = old[name].signature.members
            shown |= {f"old_{name}_valid": Out(1), f"new_{name}_valid": Out(1)}
            if "masks" in members:
                shown[f"old_{name}_masks"] = Out(members["masks"].shape)
                self._numbers[name] = memory = NumberMemory(config=config, queue=name)
                shown[f"new_{name}_masks"] = Out(memory.masks.shape())
        both = ("idle", "tagged", "tag")
        super().__init__(
            {
                **{name: given[name] for name in ("instruction", "host_limit", "weight_tiles")},
                "given": In(stream.Signature(WORD)),
                "allowed": In(1),
                "judges": Out(1),
                "issues": Out(1),
                "has_room": Out(1),
                "failed": Out(1),
                "pop": In(len(RINGS)),
                "advance": In(len(LISTS)),
                "retire": In(len(LISTS)),
                "advance_to": In(32),
                "hold_tags": In(1),
                **{name: new[name] for name in ("ready", "finds", "found", "queue")},
                **{f"{prefix}_{name}": new[name] for prefix in ("old", "new") for name in both},
                **shown,
            }
        )

    def elaborate(self, platform):
        m = Module()
        decoders = m.submodules.decoders = self._decoders
        old, new = self._old, self._new
        m.submodules.old, m.submodules.new = old, new
        shown = decoders.decoded__payload
        seen, judged = Signal(range(CHECKED + 1)), Signal()
        # The sequenced decoder gets an instruction only when the numbered scoreboard takes it.
        m.d.comb += [
            decoders.instruction.valid.eq(self.instruction.valid),
            decoders.instruction.payload.eq(self.instruction.payload),
            self.instruction.ready.eq(decoders.instruction.ready),
            decoders.given.valid.eq(self.given.valid & new.takes),
            decoders.given.payload.eq(self.given.payload),
            self.given.ready.eq(decoders.given.ready & new.takes),
            decoders.host_limit.eq(self.host_limit),
            decoders.weight_tiles.eq(self.weight_tiles),
            new.keeps.eq(decoders.keeps),
            new.cell.eq(decoders.cell),
            new.kept.eq(decoders.kept),
            new.taken.eq(self.given.valid & self.given.ready),
            new.opcode.eq(self.given.payload.word),
            new.judged.eq(decoders.judges & ~decoders.verdict.failed),
            new.code.eq(shown.code),
            new.units.eq(shown.units),
            new.issue.eq(self.issues),
            new.hold_tags.eq(self.hold_tags),
            old.hold_tags.eq(self.hold_tags),
            old.decoded.eq(shown),
            old.offered.eq(decoders.decoded__valid),
            old.issue.eq(self.issues),
            decoders.frees.eq(old.passable & old.room),
            old.passable.eq(judged & ~self.issues & new.ready & self.allowed),
            self.judges.eq(decoders.judges),
            self.has_room.eq(judged & old.room),
            self.failed.eq(judged & shown.failed),
            judged.eq(decoders.decoded__valid & (seen == CHECKED)),
        ]
        m.d.sync += self.issues.eq(decoders.frees)
        with m.If(~decoders.decoded__valid | self.issues):
            m.d.sync += seen.eq(0)
        with m.Elif(~judged):
            m.d.sync += seen.eq(seen + 1)
        for name in ("ready", "finds", "found", "queue"):
            m.d.comb += getattr(self, name).eq(getattr(new, name))
        for prefix, board in (("old", old), ("new", new)):
            for name in ("idle", "tagged", "tag"):
                m.d.comb += getattr(self, f"{prefix}_{name}").eq(getattr(board, name))
            for number, name in enumerate(LISTS):
                queue = _shown_by(name)
                progress = (
                    getattr(old, queue).progress[name]
                    if board is old
                    else getattr(new, name).progress
                )
                m.d.comb += getattr(self, f"{prefix}_{name}").eq(progress)
                if name != "loading":
                    port = getattr(board, name)
                    m.d.comb += [
                        port.advance.eq(self.advance[number]),
                        port.advance_to.eq(self.advance_to),
                        port.retire.eq(self.retire[number]),
                    ]
            for number, name in enumerate(RINGS):
                port = getattr(board, name)
                m.d.comb += [
                    port.pop.eq(self.pop[number]),
                    getattr(self, f"{prefix}_{name}_valid").eq(port.valid),
                ]
                if prefix == "new" and name in self._numbers:
                    memory = m.submodules[f"{name}_numbers"] = self._numbers[name]
                    m.d.comb += [
                        memory.finds.eq(new.finds),
                        memory.found.eq(new.found),
                        memory.free.eq(port.free),
                        memory.oldest.eq(port.oldest),
                        memory.pop.eq(port.pop),
                        getattr(self, f"new_{name}_masks").eq(memory.masks),
                    ]
                if prefix == "old" and hasattr(port, "masks"):
                    m.d.comb += getattr(self, f"old_{name}_masks").eq(port.masks)
        return m
