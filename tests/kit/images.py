"""Image files."""

from pathlib import Path

from PIL import Image


def write(path: Path, mode: str = "RGB", size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 7 if mode == "L" else (1, 2, 3)).save(path)
