# SPDX-License-Identifier: Apache-2.0
"""The unit that numbers windows or scales, so that commands can still use older ones."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.control.command_words import NUMBERS


class SettingNumbers(wiring.Component):
    """A counter of the settings of one kind: windows or scales.

    | port        | meaning |
    |---|---|
    | `judges`    | an instruction has written all of its words |
    | `ends`      | a setting has written all of its words |
    | `present`   | number of the setting in force |
    | `following` | number of the next setting, for its words; becomes `present` with `ends` |

    The numbers go round, but leave out the `fixed` lowest numbers. Before the first `judges`,
    `following` equals `present`, as the words written after a reset are the first setting.

    The caller begins a setting only if no command uses the number `following`, and after the
    setting before it has ended.
    """

    def __init__(self, *, fixed: int = 0):
        self._fixed = fixed
        bits = ceil_log2(NUMBERS)
        super().__init__(
            {
                "judges": In(1),
                "ends": In(1),
                "present": Out(bits, init=fixed),
                "following": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        setting_begun = Signal()
        number_after = Signal(range(NUMBERS), init=self._fixed + 1)
        m.d.comb += self.following.eq(Mux(setting_begun, number_after, self.present))
        with m.If(self.judges):
            m.d.sync += setting_begun.eq(1)
        with m.If(self.ends):
            m.d.sync += self.present.eq(self.following)
        with m.If(self.ends & setting_begun):
            m.d.sync += number_after.eq(
                Mux(number_after == NUMBERS - 1, self._fixed, number_after + 1)
            )
        return m
