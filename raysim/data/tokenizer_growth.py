"""Bounds of what a tokenizer makes of a text: a few steps in a row may fill any memory."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raysim.common.errors import InputError

MOST_GROWTH = 1000
"""Largest factor by which a tokenizer may make a text longer, and most characters or tokens that it may add."""

FORMS: dict[str, int] = dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer", "Precompiled"), 18)
"""Steps that lengthen a text only once, however often they follow each other; U+FDFA becomes 18 characters."""

FACTORS = {"ByteLevel": 4, "Metaspace": 2}
"""Steps that lengthen a text each time: a byte, or a piece's beginning, becomes a character."""

USUAL_FORM = 64
"""Longest replacement, in bytes, that a usual table of `Precompiled` has."""


@dataclass
class _Growth:
    """Bound a n + b of the length that n characters get."""

    factor: float = 1.0
    added: float = 0.0
    formed: bool = True
    """Whether a form changes nothing more. The first one is free, as usual tokenizers have it."""

    def step(self, factor: float, added: float = 0.0) -> None:
        self.factor *= factor
        self.added = self.added * factor + added

    def normalise(self, step: dict[str, Any]) -> None:
        """Take in a step of the normaliser, or of what divides the text."""
        kind = step.get("type")
        if kind in FORMS:
            longest = _longest_form(step) if kind == "Precompiled" else 0
            self.step(longest if longest > USUAL_FORM else 1 if self.formed else FORMS[kind])
            self.formed = True
            return
        if kind == "Replace":
            # A regular expression may match a single character, or none between two of them.
            pattern = (step.get("pattern") or {}).get("String", "")
            content = len(step.get("content") or "")
            self.step(max(1.0, content / len(pattern)) if pattern else 1.0 + content, 0.0 if pattern else content)
        elif kind == "Prepend":
            self.step(1.0, len(step.get("prepend") or ""))
        elif kind in FACTORS:
            self.step(FACTORS[kind], 1)
        else:
            return
        self.formed = False

    def complete(self, step: dict[str, Any]) -> None:
        """Take in a step that adds tokens, and may repeat the text."""
        specials = step.get("special_tokens")
        lengths = {
            name: len(each.get("ids") or ())
            for name, each in (specials.items() if isinstance(specials, dict) else ())
            if isinstance(each, dict)
        }
        forms = [[each for each in step.get(form) or () if isinstance(each, dict)] for form in ("single", "pair")]
        if step.get("type") == "TemplateProcessing":
            texts = [sum("Sequence" in each for each in form) for form in forms]
            added = [sum(lengths.get((each.get("SpecialToken") or {}).get("id"), 0) for each in form) for form in forms]
            self.step(max(1.0, texts[0], texts[1] / 2), max(added))


def check_growth(name: str, tokenizer: str | bytes) -> None:
    """Refuse a tokenizer that may make texts much longer.

    Args:
        name: name of the tokenizer in the file.
        tokenizer: its `tokenizer.json`.

    Raises:
        InputError: a text may become more than `MOST_GROWTH` times as long, or get more characters or tokens.
    """
    parts, growth = json.loads(tokenizer), _Growth()
    for step in _steps(parts.get("normalizer")):
        growth.normalise(step)
    for step in _steps(parts.get("pre_tokenizer")):
        growth.normalise(step)
    for step in _steps(parts.get("post_processor")):
        growth.complete(step)
    for bound, what in ((growth.factor, "times as long"), (growth.added, "characters or tokens longer")):
        if bound > MOST_GROWTH:
            raise InputError(
                f"data.text.tokenizer = {name!r} may make a text {bound:.3g} {what}: must be at most {MOST_GROWTH}; "
                "use another tokenizer"
            )


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of nested sequences, in their order."""
    waiting = [value]
    while waiting:
        step = waiting.pop()
        if isinstance(step, dict):
            yield step
            for inner in ("normalizers", "pretokenizers", "processors"):
                waiting.extend(reversed(step.get(inner) or ()))


def _longest_form(step: dict[str, Any]) -> int:
    """Return the longest replacement of sentencepiece's table: the size of a tree, the tree, texts that end in 0."""
    table = base64.b64decode(step.get("precompiled_charsmap") or "")
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max(map(len, texts.split(b"\0")))
