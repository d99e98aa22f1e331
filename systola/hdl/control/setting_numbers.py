# SPDX-License-Identifier: Apache-2.0
"""Numbers of windows or of scales, for those that commands still name."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.control.command_words import NUMBERS


class SettingNumbers(wiring.Component):
    """The numbers of the settings of one sort, which go round; `fixed` ones are left out.

    Words of a setting go to the number `following`. With `ends` this becomes the `present` one.
    With `judges` an instruction has written all its words. Until the first one has, words go to the
    `present` number, as the scale of a reset must.

    A setting is begun only while no command names `following`, and after the setting before it has
    ended.
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
        begun = Signal()
        following = Signal(range(NUMBERS), init=self._fixed + 1)
        m.d.comb += self.following.eq(Mux(begun, following, self.present))
        with m.If(self.judges):
            m.d.sync += begun.eq(1)
        with m.If(self.ends):
            m.d.sync += self.present.eq(self.following)
        with m.If(self.ends & begun):
            m.d.sync += following.eq(Mux(following == NUMBERS - 1, self._fixed, following + 1))
        return m
