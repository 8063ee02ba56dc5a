"""The next-character network of RADFed, section V, which is LEAF's for Shakespeare (Caldas et al., 2018)."""

import torch
from torch import nn

from raysim.common.errors import InputError
from raysim.models.checks import positive


def lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    vocabulary: int = 80,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
) -> nn.Module:
    """Next-character LSTM: an embedding, two recurrent layers, a linear layer on the last state.

    With 80 symbols and 80 classes 819,920 parameters.

    Args:
        shape: (length,), a window of symbols; RADFed's is 80 long. The model takes x [n, length] of whole numbers in
            [0, vocabulary), of a floating type as all samples are.
        classes: outputs, the logits [n, classes]: the next symbol.
        vocabulary: how many symbols there are.
        embedding: numbers a symbol.
        hidden: width of the recurrent layers.
        layers: how many of them.

    Raises:
        InputError: the data are not sequences, or a size is not positive; from the model, a value that is no symbol.

    Deviations:
        RADFed's text has no width: 256 is that of its code, and of LEAF's.
    """
    if len(shape) != 1:
        raise InputError(
            f"model lstm on samples of shape {shape}: must be sequences, (length,), of whole numbers; store each as "
            'one list of fixed length, or set model.name = "cnn"'
        )
    return NextSymbol(
        positive("vocabulary", vocabulary),
        positive("embedding", embedding),
        positive("hidden", hidden),
        positive("layers", layers),
        classes,
    )


class NextSymbol(nn.Module):
    """Symbols [n, length] to the logits [n, classes] of the one that follows."""

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
        # Looked at, although this stops torch.func, which would run LSTMs one by one all the same: pixels in [0, 1],
        # which small whole numbers are taken for, would all become symbol 0.
        symbols, count = x.long(), self.embedding.num_embeddings
        wrong = (symbols != x) | (symbols < 0) | (symbols >= count)
        if wrong.any():
            raise InputError(
                f"model lstm on the value {x[wrong][0].item():g}: must be a whole number from 0 to {count - 1}; set "
                "model.vocabulary, and store symbols as int16 or wider, for uint8 is taken for pixels and divided"
            )
        return symbols
