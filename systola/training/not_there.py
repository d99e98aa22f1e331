# SPDX-License-Identifier: Apache-2.0
"""Lists Keras's names that training does not have, each with advice for doing without it."""

from __future__ import annotations

_LAYERS = (
    "the layers that train are Conv2D, Conv1D, DepthwiseConv2D, Dense, LSTM, GRU, Embedding, "
    "poolings and Dropout"
)
_JOINS = "Add and Concatenate are there"
INSTEAD = {
    **dict.fromkeys(("SimpleRNN", "Bidirectional", "TimeDistributed"), "LSTM and GRU are there"),
    **dict.fromkeys(
        ("LayerNormalization", "GroupNormalization"),
        "BatchNormalization is there",
    ),
    **dict.fromkeys(
        ("Conv3D", "Conv2DTranspose", "SeparableConv2D"),
        "Conv2D and DepthwiseConv2D are there",
    ),
    **dict.fromkeys(("Multiply", "Average", "Subtract", "Maximum", "Minimum", "Dot"), _JOINS),
    "Normalization": "Rescaling is there, or scale the samples before fit()",
    **dict.fromkeys(("LeakyReLU", "ELU", "PReLU"), "ReLU is there"),
    **dict.fromkeys(
        ("Reshape", "Permute", "RepeatVector", "ZeroPadding2D"), "give Input the shape"
    ),
    **dict.fromkeys(("SpatialDropout2D", "GaussianNoise", "GaussianDropout"), "Dropout is there"),
    **dict.fromkeys(("MultiHeadAttention", "Attention"), _LAYERS),
    **dict.fromkeys(
        ("Adamax", "Nadam", "Adagrad", "Adadelta", "Ftrl", "Lion"),
        "Adam, RMSprop and SGD are there",
    ),
    **dict.fromkeys(
        ("TensorBoard", "BackupAndRestore", "RemoteMonitor"),
        "CSVLogger and ModelCheckpoint are there",
    ),
}
