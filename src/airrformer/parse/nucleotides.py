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
_CHOICES = str.maketrans("BJZ", "XXX")  # what Biopython makes of codons such as SAR, which leave a choice of two
_GAPS = re.compile(r"[\s.\-]")


# A read or contig that goes beyond the V domain has stops outside; a part of so many residues may hold the domain.
_SHORTEST_OPEN_PART = 90


@dataclass(frozen=True)
class Translation:
    """Residues in ``frame`` (1, 2 or 3, negative on the opposite strand); ``others``: further frames without a stop.

    ``part``: every frame has a stop, and these are the longest parts without one; only a V domain in it makes it a
    chain.
    """

    sequence: str
    frame: int
    others: tuple[tuple[int, str], ...] = ()
    part: bool = False


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


def translate(
    text: str, reverse: bool = False, junction_aa: str | None = None, frames: tuple[int, ...] = (1, 2, 3)
) -> Translation:
    """Translate in the frame that has the junction; else in frame 1 if it has no stop inside, else in the first other.

    Ambiguous codons become X where they leave a choice; a codon cut off at the end is dropped, a stop at the end too.

    Args:
        reverse: the opposite strand goes first (AIRR: ``rev_comp``). Files do not agree on what that says of the
            sequence beside it, so the other strand is always looked at too: for the junction here, else by the caller.
        junction_aa: the junction, where it is known: stops before and after it then bound the chain.
        frames: those that may be taken.

    Raises ``Rejected`` when a letter is no nucleotide, when every frame has a stop and no long part without, or when
    nothing is left.

    >>> translate("TGTGCCAGC").sequence
    'CAS'
    """
    letters = letters_of(text)
    if not _IUPAC.issuperset(letters):
        position, letter = next((i, a) for i, a in enumerate(letters, start=1) if a not in _IUPAC)
        raise Rejected(f"illegal nucleotide {letter!r} at position {position}", text)
    if len(letters) < 3:
        raise Rejected("no sequence" if not letters else "fewer than three nucleotides", text)
    strands = [(1, letters), (-1, str(Seq(letters).reverse_complement()))]
    if reverse:
        strands.reverse()
    proteins = [(sign * frame, _translated(strand[frame - 1 :])) for sign, strand in strands for frame in frames]
    if junction_aa:
        for frame, protein in proteins:
            for part in protein.split("*"):
                if junction_aa in part:
                    return Translation(part, frame)
    here, opposite = proteins[: len(frames)], proteins[len(frames) :]
    usable = [(frame, protein) for frame, protein in here if protein and "*" not in protein]
    if not usable:
        return _longest_parts(proteins, text)
    (frame, protein), *others = usable
    others += [(frame, protein) for frame, protein in opposite if protein and "*" not in protein]
    return Translation(protein, frame, tuple(others))


def _longest_parts(proteins: list[tuple[int, str]], text: str) -> Translation:
    parts = [(frame, max(protein.split("*"), key=len)) for frame, protein in proteins if protein]
    long = sorted((part for part in parts if len(part[1]) >= _SHORTEST_OPEN_PART), key=lambda part: -len(part[1]))
    if not long:
        raise Rejected("not productive: a stop codon in every reading frame", text)
    (frame, protein), *others = long
    return Translation(protein, frame, tuple(others), part=True)


def _translated(letters: str) -> str:
    return str(Seq(letters[: len(letters) // 3 * 3]).translate()).rstrip("*").translate(_CHOICES)
