# SPDX-License-Identifier: Apache-2.0
"""A model of the machine's cycles, made to be quick: it follows instructions, but no data.

| word | meaning |
|---|---|
| issue | the sequencer hands an instruction to its unit |
| span | start and end of an instruction in its unit, see timing/span.py |
| step | the cycle, or cycles, in which the activation unit takes one line or row |
| announce | make known that a line or row will be written when a follower can read it |
| follower | an instruction that reads lines or rows while an older instruction writes them |
| gates | the part of each lane for sigmoid, tanh, exp, 1/x and 1/sqrt(x), also these functions |
| walk | the way of the model through a program, an instruction at a time |
| layer | the work of a program from one Debug_Tag to the next |
| under way | issued, and not yet complete |
| state | all that later cycles depend on, relative to the present cycle |
| course | the cycles of all events in an iteration of a loop, relative to its start |

Many units have the methods `state` and `resume`. With these methods a walk goes on from a state
that it has seen before. Other words are in docs/architecture.md.
"""
