"""Write the generated pages: `uv run python -m docs.generated`."""

import sys

from docs.generated.pages import DOCS, left_over, pages

for page, text in pages().items():
    path = DOCS / page
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
for path in left_over():
    path.unlink()
    sys.stdout.write(f"removed {path.relative_to(DOCS.parent)}\n")
