# SPDX-License-Identifier: Apache-2.0
"""The part of the compiler that turns neutral operations into a program.

It makes steps on feature maps, gives their lines places in the buffer, and emits instructions.

| word | meaning |
|---|---|
| value | an array of the network that an operation takes or makes |
| home | the place of a value: a FeatureMap in the buffer, or a HostView of host memory |
| lines | consecutive lines of the buffer; after all steps are made, they get a first line |
| step | a piece of the program that does one operation on some lines |
| attempt | an attempt to lower all operations, with a choice of spilled values |
| spill | keep a value in host memory, and work on it in bands of rows |
| batch | operations at the end of a network that run for several samples at a time |
| part | a group of operations that all run for the same number of samples at a time |
| layer | an operation with its steps; a tag in the program marks its end |
| lanes | the arithmetic of the activation unit |

Words of the hardware, like tile, block, vector and pass, are in docs/architecture.md.
"""
