"""What may stand in an amino-acid sequence, and what becomes of it: one table for every format.

| found | becomes |
| --- | --- |
| A C D E F G H I K L M N P Q R S T V W Y | itself |
| lower case | upper case, counted |
| X | X, the unknown residue, counted |
| B J O Z (ambiguous or rare) | X, counted |
| U (selenocysteine) | C, counted |
| ``*`` at the end | taken off, counted |
| ``*`` ``_`` ``~`` ``#`` elsewhere | rejected: a stop or a frame shift, not productive |
| ``-`` ``.`` (gaps of an alignment) | taken out, counted |
| blanks | taken out |
| anything else (digits, ``<``, ``?``, ...) | rejected, with its position |
| nothing, ``None``, ``NaN``, ``NA`` | rejected as missing |
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.parse.files import MISSING, is_missing

# A record of fewer residues is a junction or a CDR3, not a V domain; the longest antibody CDR3s have about 40.
SHORTEST_DOMAIN = 50
SHORTEST_CDR3 = 3

REPLACED = {"B": "X", "J": "X", "O": "X", "Z": "X", "U": "C"}
_ALLOWED = set(AMINO_ACIDS + "X")
_AMINO_ACIDS = AMINO_ACIDS.encode()
_NOT_PRODUCTIVE = re.compile(r"[*_~#]")


class Rejected(ValueError):
    """Why a record cannot be used; ``value`` is what was found."""

    def __init__(self, reason: str, value: str = "") -> None:
        super().__init__(reason)
        self.reason, self.value = reason, value


_UNCHANGED: Counter[str] = Counter()
_LONGEST_MISSING = max(len(word) for word in MISSING if word.isalpha())


class Cleaned(NamedTuple):
    """Residues of the twenty letters and X. ``changes``: what was done -> how many letters."""

    sequence: str
    changes: Counter[str]


def clean_residues(text: str | None, strict: bool = False) -> Cleaned:
    """Apply the table above. ``strict`` rejects gaps and replaced letters instead of mending them.

    >>> clean_residues("cassLgf*").sequence
    'CASSLGF'
    >>> clean_residues("CAS--SF").changes
    Counter({'gaps taken out': 2})
    """
    if text and len(text) > _LONGEST_MISSING and not text.encode(errors="replace").translate(None, _AMINO_ACIDS):
        return Cleaned(text, _UNCHANGED)  # nearly all there are, so this is the fastest way to tell
    if text is None or is_missing(text):
        raise Rejected("no sequence", text or "")
    sequence = "".join(text.split())
    if not sequence.isascii():  # before upper case, which would make S of the long s and SS of sharp s
        position, letter = next((i, a) for i, a in enumerate(sequence, start=1) if not a.isascii())
        raise Rejected(f"illegal character {letter!r} at position {position}", text)
    changes: Counter[str] = Counter()
    if sequence != sequence.upper():
        changes["lower-case letters"] = sum(letter.islower() for letter in sequence)
        sequence = sequence.upper()
    gaps = sequence.count("-") + sequence.count(".")
    if gaps:
        changes["gaps taken out"] = gaps
        sequence = sequence.replace("-", "").replace(".", "")
    stripped = sequence.rstrip("*")
    if stripped != sequence:
        changes["final stops taken off"] = len(sequence) - len(stripped)
        sequence = stripped
    if stop := _NOT_PRODUCTIVE.search(sequence):
        raise Rejected(f"not productive: {stop.group()!r} at position {stop.start() + 1}", text)
    for letter, replacement in REPLACED.items():
        if letter in sequence:
            changes[f"{letter} read as {replacement}"] = sequence.count(letter)
            sequence = sequence.replace(letter, replacement)
    if "X" in sequence and (unknown := sequence.count("X") - sum(n for k, n in changes.items() if k.endswith("as X"))):
        changes["unknown residues X"] = unknown
    if not sequence:
        raise Rejected("no sequence", text)
    for position, letter in enumerate(sequence, start=1):
        if letter not in _ALLOWED:
            raise Rejected(f"illegal character {letter!r} at position {position}", text)
    mended = [what for what in changes if what not in ("lower-case letters", "final stops taken off")]
    if strict and mended:
        raise Rejected(f"strict: {mended[0]}", text)
    return Cleaned(sequence, changes)
