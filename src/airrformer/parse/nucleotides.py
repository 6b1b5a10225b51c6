"""Nucleotides: whether a file holds them, and their translation in the frame that stays open."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from Bio.Seq import Seq

from airrformer.parse.files import is_missing
from airrformer.parse.residues import Rejected

MINIMUM_LETTERS = 60  # CATTGAGAT is a fair CDR3: below this many letters in a file nothing is concluded
_PLAIN = set("ACGTUN")
_IUPAC = set("ACGTUNRYSWKMBDHV")
_GAPS = re.compile(r"[\s.\-]")


@dataclass(frozen=True)
class Translation:
    """Residues in ``frame`` (1, 2 or 3); ``others`` are the translations in further frames without a stop."""

    sequence: str
    frame: int
    others: tuple[tuple[int, str], ...] = ()


def letters_of(text: str) -> str:
    return "" if is_missing(text) else _GAPS.sub("", text).upper()


def looks_like_nucleotides(sequences: Iterable[str]) -> tuple[bool, int]:
    """Whether all letters are nucleotides, and how many letters there are.

    A few ambiguity codes (up to one letter in twenty) are nucleotides too; alone, letters such as K, S or W are not.
    """
    total = plain = 0
    for letters in map(letters_of, sequences):
        if not set(letters) <= _IUPAC:
            return False, len(letters)
        total += len(letters)
        plain += sum(letters.count(letter) for letter in _PLAIN)
    return total > 0 and plain >= 0.95 * total, total


def translate(text: str) -> Translation:
    """Translate in frame 1 if it has no stop inside, else in the first other forward frame that has none.

    Ambiguous codons become X where they leave a choice; a codon cut off at the end is dropped, a stop at the end too.

    Raises ``Rejected`` when a letter is no nucleotide, when every frame has a stop, or when nothing is left.

    >>> translate("TGTGCCAGC").sequence
    'CAS'
    """
    letters = letters_of(text)
    for position, letter in enumerate(letters, start=1):
        if letter not in _IUPAC:
            raise Rejected(f"illegal nucleotide {letter!r} at position {position}", text)
    if len(letters) < 3:
        raise Rejected("no sequence" if not letters else "fewer than three nucleotides", text)
    frames = [(frame, _translated(letters[frame - 1 :])) for frame in (1, 2, 3)]
    usable = [(frame, protein) for frame, protein in frames if protein and "*" not in protein]
    if not usable:
        raise Rejected("not productive: a stop codon in every reading frame", text)
    (frame, protein), *others = usable
    return Translation(protein, frame, tuple(others))


def _translated(letters: str) -> str:
    return str(Seq(letters[: len(letters) // 3 * 3]).translate()).rstrip("*").replace("J", "X")
