"""Small files of lines for encoder-decoders: the same for the vendor's data processors and for the tests."""

from pathlib import Path

PLACE = Path(__file__).with_name("vendor_pairs.json")
"""what the vendor's made of them"""
SENTINELS, SOURCE, TARGET = 10, 32, 16
LENGTHS = (3, 1, 2, 40, 75, 130, 18, 64)
"""tokens of the texts of which spans are taken out"""
PAIRS = ((3, 4), (0, 2), (31, 15), (32, 3), (5, 16), (1, 1))
"""tokens of the texts of a translation: the second, fourth and fifth pair do not fit"""
ASKED = (16, 32, 64, 100, 114, 128, 256, 512, 1024)
"""lengths S of inputs"""
WORDS = ("<pad>", "</s>", "<unk>", "<s>", *(f"w{number}" for number in range(60)))


def text(length: int, offset: int) -> str:
    """Tokens of a line, some of them unknown; a line without any has a space."""
    return " ".join(f"w{(7 * place + offset) % 62}" for place in range(length)) or " "


def write_pair_files(folder: Path) -> tuple[Path, Path, Path]:
    """Write a vocabulary, texts and pairs; return the file of the first and the folders of the others."""
    texts, pairs, vocabulary = folder / "texts", folder / "pairs", folder / "vocab.txt"
    texts.mkdir(parents=True)
    pairs.mkdir()
    vocabulary.write_text("".join(f"{word}\n" for word in WORDS))
    lines = [text(length, number) for number, length in enumerate(LENGTHS)]
    (texts / "a.txt").write_text("".join(f"{line}\n" for line in lines[:5]))
    (texts / "b.txt").write_text("".join(f"{line}\n" for line in lines[5:]))
    (texts / "meta.dat").write_text("a.txt 5\nb.txt 3\n")
    for side, name in enumerate(("x.en", "x.de")):
        made = (text(lengths[side], number + 3 * side) for number, lengths in enumerate(PAIRS))
        (pairs / name).write_text("".join(f"{line}\n" for line in made))
    (pairs / "meta.dat").write_text(f"{pairs}/x.en {pairs}/x.de {len(PAIRS)}\n")
    return vocabulary, texts, pairs
