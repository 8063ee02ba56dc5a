"""The user's own code that drawn configurations name: sound, wrong, raising, leaving, talking."""

from pathlib import Path

OWN = """
import sys
import torch
from torch import nn
import algorithms
from algorithms import Algorithm, Assign

print("own module says hello")
number = 3


class Fine(nn.Module):
    def __init__(self, shape, classes, width: int = 3):
        super().__init__()
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.Linear(width, classes))
        self.head(torch.zeros(1, *shape))

    def forward(self, x):
        return self.head(x)


class Talks(Fine):
    def forward(self, x):
        print("forward", file=sys.stderr)
        return super().forward(x)


class Plain:
    def __init__(self, shape, classes):
        pass


class Raises(Fine):
    def __init__(self, shape, classes):
        raise ValueError("no\\nsuch thing")


class Exits(Fine):
    def __init__(self, shape, classes):
        sys.exit(0)


class Fails(Fine):
    def forward(self, x):
        if self.training and len(x) > 2:
            raise RuntimeError("it fails in training")
        return super().forward(x)


class Leaves(Fine):
    def forward(self, x):
        if self.training and len(x) > 2:
            sys.exit(0)
        return super().forward(x)


class Wrong(Fine):
    def forward(self, x):
        return super().forward(x)[:, :1]


class NaN(Fine):
    def forward(self, x):
        return super().forward(x) * float("nan")


class Empty(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        return torch.zeros(len(x), self.classes)


class Huge(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2**40))


class Deep(Fine):
    def forward(self, x):
        return self.forward(x)


def algorithm(participation, local, server=Assign(), *, strength: float = 0.1) -> Algorithm:
    return algorithms.fedavg(participation, local, server)


def broken(participation, local, server=Assign()) -> Algorithm:
    raise KeyError("broken")


def leaving(participation, local, server=Assign()) -> Algorithm:
    sys.exit(0)


def nothing(participation, local, server=Assign()) -> Algorithm:
    return None


class Rule:
    def __call__(self, model, mean, total, memory, layout):
        raise ZeroDivisionError("rule")


class Logger:
    def __init__(self, run):
        pass

    def round(self, *_):
        raise ValueError("logger")
"""

FILES = {
    "own.py": OWN.encode(),
    "raising.py": b"raise RuntimeError('at its import')\n",
    "exiting.py": b"import sys\nsys.exit(0)\n",
    "misspelt.py": b"def x(:\n",
    "bytes.py": b"x = '\xff'\n",
    "endless.py": b"def x(): return x()\nx()\n",
    "empty.py": b"",
}


def write(folder: Path) -> None:
    """Write the modules into a folder."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
