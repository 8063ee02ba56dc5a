"""Marks of generated text in pages."""

import re

COMMAND = "uv run python -m docs.generated"
NOTE = f"<!-- Written by `{COMMAND}` from the source. -->\n\n"
"""Beginning of a page that is generated as a whole."""

PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""Generated part of a page of prose."""
