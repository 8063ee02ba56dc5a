"""The network of the next-symbol LSTM."""

import torch
from torch import nn

from raysim.common.errors import InputError


class NextSymbol(nn.Module):
    """Network from symbols [n, length] to the logits [n, classes] of the next symbol."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(self._symbols(x)))
        logits: torch.Tensor = self.output(states[:, -1])
        return logits

    def _symbols(self, x: torch.Tensor) -> torch.Tensor:
        # raysim reads uint8 as pixels in [0, 1], and all of them would become symbol 0. This check excludes torch.func,
        # but that would run LSTMs one by one anyway.
        symbols, count = x.long(), self.embedding.num_embeddings
        wrong = (symbols != x) | (symbols < 0) | (symbols >= count)
        if wrong.any():
            raise InputError(
                f"model lstm on the value {x[wrong][0].item():g}: must be a whole number from 0 to {count - 1}; set "
                "model.vocabulary, and store symbols as int16 or wider, because raysim reads uint8 as pixels"
            )
        return symbols
