"""What `cstool data` says of data sets."""

from __future__ import annotations

from cstool.cli.render import bytes_text, print_table
from cstool.data import TextSummary


def print_text_summary(made: TextSummary, val_fraction: float) -> None:
    """Print what was made of a text, where `val_fraction` of it was to be held out."""
    print(f"{made.path}: {'already prepared' if made.already_prepared else f'prepared in {made.duration_s:.1f} s'}")
    if (continued := made.continued) is not None:
        tokenized = f"{continued.tokenized} of {continued.of_tokenized} files of tokens and "
        print(
            f"continued: {tokenized if continued.of_tokenized else ''}{continued.files} of {continued.of_files} files "
            "were there"
        )
    rows = [
        (name, f"{part.files:,}", bytes_text(part.size_bytes), f"{part.samples:,}", f"{part.tokens:,}")
        for name, part in (("train", made.train), ("val", made.val))
    ]
    columns = ("part", "files", "text", "samples", "tokens")
    print_table(columns, rows, right=columns[1:])
    if (share := f"{made.held_out_share:.1%}") != f"{val_fraction:.1%}":
        print(f"Held out: {share} of the text, asked for {val_fraction:.1%}")
    if made.tokenizer != "bytes":
        ratio = (made.train.size_bytes + made.val.size_bytes) / (made.train.tokens + made.val.tokens)
        print(f"Tokenizer: {made.tokenizer}, {made.vocab_size:,} tokens, {ratio:.2f} bytes to each")
    if made.unknown_characters:
        print(f"Unknown: no token stands for {made.unknown_characters:,} characters")
