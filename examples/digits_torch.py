# SPDX-License-Identifier: Apache-2.0
"""A PyTorch classifier of digits, from float to int8 on the simulated machine."""

from importlib.resources import files

import numpy as np
import torch

import systola
from systola.runtime import compile

data = np.load(str(files("systola.models") / "digits.npz"))
x, x_test = (
    torch.from_numpy(data[name].reshape(-1, 1, 8, 8).astype(np.float32)) for name in ("x", "x_test")
)
y, y_test = torch.from_numpy(data["y"].astype(np.int64)), data["y_test"].astype(np.int64)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 4 * 4, 10),
)
optimiser = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(40):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimiser.step()

made = systola.quantize(model, x, labels=y)
made.save("digits.onnx")
np.savez("digits_torch.npz", x=x_test, y=y_test)
run = compile(made.content, preset="base").run(x_test, backend="rtl")
with torch.no_grad():
    of_float = model.eval()(x_test).numpy()
for name, scores in (("float", of_float), (f"int8, {run.cycles} cycles", run.y)):
    print(name, np.mean(scores.argmax(axis=1) == y_test))
