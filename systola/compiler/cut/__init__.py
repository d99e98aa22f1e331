# SPDX-License-Identifier: Apache-2.0
"""Networks that run in parts: some on the machine, the rest in an interpreter on the host.

| word | meaning |
|---|---|
| part | an operator of the model file |
| segment, piece | parts that run together, on the machine or in the interpreter |
| copied part | a part that runs again in each segment that takes its results |
| refused | of an operator: the machine cannot run it, for a given reason |
| placement | the side on which an operator runs, machine or host, with the reason |
| variable | a value of the network that is kept from sample to sample |
| text | of an operator: its position and kind, such as "node 3 (Conv)", for messages |
"""
