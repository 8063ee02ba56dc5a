"""A tokenizer of six words, as the library `transformers` stores one."""

from pathlib import Path


def write_tokenizer(folder: Path) -> Path:
    """Write the tokenizer: <pad> 0, <end> 1, <unk> 2, to 3, be 4, or 5, not 6."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = ("<pad>", "<end>", "<unk>", "to", "be", "or", "not")
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return folder
