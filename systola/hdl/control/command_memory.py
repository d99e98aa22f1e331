# SPDX-License-Identifier: Apache-2.0
"""The memory for the commands in the queue of a unit, which are written word by word."""

from collections.abc import Collection, Mapping, Sequence

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.commands import PC_BITS
from systola.hdl.control.command_words import (
    NUMBERS,
    command_layout,
    command_words,
    commands_of,
)
from systola.hdl.control.sequenced_decoder import Written
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import TWO_LINES
from systola.hdl.parts.promise import promised

LANE_BITS = 18
"""Bits of each of the two lanes of a block RAM. Each lane has a write enable."""
LONGEST = 2 * LANE_BITS
TAKEN_EARLY = 2
"""Commands that the memory takes in addition to a full queue."""
_BLOCK = {"ram_style": "block", "no_rw_check": 1}


class CommandMemory(wiring.Component):
    """A memory that holds the commands in a unit's queue, oldest first.

    The sequenced decoder writes the words of a command one by one.

    | port | meaning |
    |---|---|
    | `writes` | writes a word, for a command of any unit or for a setting (a window or scale) |
    | `written` | the word that is written |
    | `ends` | all words of an instruction are written |
    | `takes` | with `ends`: takes the written command, as the instruction belongs to this unit |
    | `pc` | with `takes`: the program counter of the instruction |
    | `windowed` | with `takes`: the command uses the present window; else a fixed window |
    | `window`, `scale` | numbers of the window and scale in force |
    | `next_window`, `next_scale` | numbers of the window and scale that are being written |
    | `holds_window`, `holds_scale` | a command still uses the number `next_window` or
                                      `next_scale` |
    | `push` | issues the oldest command that was taken but not issued; only while not `full` |
    | `full` | the queue has no room for another issued command |
    | `valid` | there is an issued command: from the cycle after its `push`, or after the `pop` of
                the command before |
    | `command` | the words of the oldest issued command |
    | `pop` | drops this command, and its use of window and scale; only while `valid` |

    The own words of a command lie at its place in the memory. A word that the instruction does not
    write is undefined. Words of windows and scales lie in memories of their own, and each command
    keeps the numbers of its window and scale. The ports for windows or scales do nothing if no word
    comes from a window or scale.

    The fields `single` and `double` of the command show if counts are one or two. The memory has
    room for the whole queue and TAKEN_EARLY more commands. Latency: one cycle from `push` or `pop`
    to `valid` and `command`. Throughput: one word and one command a cycle. Back-pressure: `full`,
    `holds_window` and `holds_scale`.
    """

    def __init__(self, *, config: Config, queue: str = "activate"):
        self._words = command_words(config, queue)
        self._numbers = StepRom(config).words
        self._depth = depth = commands_of(config, queue)
        self._places = 2 << ceil_log2(depth)
        assert self._places > depth + TAKEN_EARLY
        number = ceil_log2(NUMBERS)
        super().__init__(
            {
                "writes": In(1),
                "written": In(Written()),
                "ends": In(1),
                "takes": In(1),
                "pc": In(PC_BITS),
                "windowed": In(1),
                **{name: In(number) for name in ("window", "scale")},
                **{name: In(number) for name in ("next_window", "next_scale")},
                **{name: Out(1) for name in ("holds_window", "holds_scale")},
                "push": In(1),
                "full": Out(1),
                "valid": Out(1),
                "command": Out(command_layout(config, queue)),
                "pop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._words
        push_place, oldest_place = (
            Signal(range(self._places), name=name) for name in ("push_place", "oldest_place")
        )
        shown_place = Signal.like(oldest_place)
        # a thermometer code: as many ones, from bit 0, as there are issued commands
        commands_waiting = Signal(self._depth)
        commands_kept = Signal.like(commands_waiting)
        places_used = Signal(self._places)
        m.d.comb += [
            shown_place.eq(oldest_place + self.pop),
            commands_kept.eq(Mux(self.pop, commands_waiting[1:], commands_waiting)),
            self.full.eq(commands_waiting[-1]),
        ]
        m.d.sync += [
            push_place.eq(push_place + self.takes),
            oldest_place.eq(shown_place),
            commands_waiting.eq(commands_kept | Mux(self.push, Cat(1, commands_kept), 0)),
            self.valid.eq(commands_kept[0]),
            places_used.eq(
                (places_used & ~(self.pop << oldest_place)) | (self.takes << push_place)
            ),
        ]
        self._keep(m, words.own, push_place, shown_place, self._places, ())
        if words.window:
            two_lines = Signal()
            with m.If(self.writes & (self.written.word == self._numbers.get(TWO_LINES, 0))):
                m.d.sync += two_lines.eq(self.written.data[0])
            with m.If(self.ends):
                m.d.sync += two_lines.eq(0)
            window = self._name(m, Mux(self.windowed, self.window, two_lines), push_place, "window")
            m.d.comb += self.holds_window.eq(_holds(places_used, window, self.next_window))
            window_shown = Array(window)[shown_place]
            self._keep(m, words.window, self.next_window, window_shown, NUMBERS, words.fixed)
        if words.scale:
            scale = self._name(m, self.scale, push_place, "scale")
            m.d.comb += self.holds_scale.eq(_holds(places_used, scale, self.next_scale))
            self._keep(m, words.scale, self.next_scale, Array(scale)[shown_place], NUMBERS, ())
        promised(m, platform, ~(self.push & self.full), "a command for a full queue")
        promised(m, platform, ~self.pop | self.valid, "a command is taken that is not there")
        return m

    def _name(self, m: Module, number: Value, free: Value, name: str) -> list[Signal]:
        """Keep the number of the window or scale that each command uses.

        Returns the numbers by the places of the commands.
        """
        places = [
            Signal(ceil_log2(NUMBERS), name=f"{name}_of_{place}") for place in range(self._places)
        ]
        with m.If(self.takes):
            m.d.sync += Array(places)[free].eq(number)
        return places

    def _keep(
        self,
        m: Module,
        words: Mapping[str, int],
        to: Value,
        shown: Value,
        depth: int,
        contents: Sequence[Mapping[str, int]],
    ) -> None:
        """Keep the words in block RAMs, at most two in each, and show the words at address `shown`.

        The words that the decoder writes go to address `to`.
        """
        for names in _paired(words, self._words.counts):
            lanes = [_width(name, words, self._words.counts) for name in names]
            lane = LONGEST if len(names) == 1 else LANE_BITS
            init = [
                sum(self._initial(row, name) << place * lane for place, name in enumerate(names))
                for row in contents
            ]
            memory = Memory(shape=lane * len(names), depth=depth, init=init, attrs=_BLOCK)
            m.submodules["_".join(names)] = memory
            read = memory.read_port()
            write = memory.write_port(granularity=lane)
            written = self.written
            m.d.comb += [read.addr.eq(shown), write.addr.eq(to)]
            for place, (name, width) in enumerate(zip(names, lanes, strict=True)):
                value = written.data[: words[name]]
                stored = read.data.word_select(place, lane)[:width]
                into = write.data.word_select(place, lane)
                m.d.comb += self.command[name].eq(stored)
                if name == "pc":
                    m.d.comb += [write.en[place].eq(self.takes), into.eq(self.pc)]
                    continue
                m.d.comb += write.en[place].eq(self.writes & (written.word == self._numbers[name]))
                if name in self._words.counts:
                    m.d.comb += [
                        into.eq(Cat(written.single, written.double, value)),
                        self.command.single[name].eq(stored[0]),
                        self.command.double[name].eq(stored[1]),
                        self.command[name].eq(stored[2:]),
                    ]
                else:
                    m.d.comb += into.eq(value)

    def _initial(self, row: Mapping[str, int], name: str) -> int:
        value = row.get(name, 0)
        if name not in self._words.counts:
            return value
        return (value == 1) | (value == 2) << 1 | value << 2


def _holds(used: Value, named: list[Signal], number: Value) -> Value:
    """Return whether a command in a used place has the window or scale with this number."""
    return Cat(used[place] & (each == number) for place, each in enumerate(named)).any()


def _width(name: str, words: Mapping[str, int], counts: Collection[str]) -> int:
    """Return the width in bits of a word in memory.

    A count is stored with two flags, `single` and `double`.
    """
    return words[name] + 2 * (name in counts)


def _paired(words: Mapping[str, int], counts: Collection[str]) -> list[tuple[str, ...]]:
    """Return the names of the words in each memory: one long word, or up to two short words."""
    long = [name for name in words if _width(name, words, counts) > LANE_BITS]
    short = [name for name in words if name not in long]
    assert all(_width(name, words, counts) <= LONGEST for name in long)
    return [(name,) for name in long] + [tuple(short[i : i + 2]) for i in range(0, len(short), 2)]
