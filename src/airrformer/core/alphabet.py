"""Residue letters <-> token ids. ESM-1b's order is the one alphabet of every protein model here.

Source of the order: fair-esm, ``esm/constants.py`` and ``esm.data.Alphabet`` ("ESM-1b"). Foreign models have their
rows re-ordered into it when their weights are mapped (core/weights.py).
"""

from __future__ import annotations

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
RESIDUES = "LAGVSERTIDPKQNFYMHWCXBUZO"  # the letters that a sequence may hold
TOKENS: tuple[str, ...] = ("<cls>", "<pad>", "<eos>", "<unk>", *RESIDUES, ".", "-", "<null_1>", "<mask>")
ID: dict[str, int] = {token: i for i, token in enumerate(TOKENS)}
CLS, PAD, EOS, UNK, MASK = (ID[token] for token in ("<cls>", "<pad>", "<eos>", "<unk>", "<mask>"))
AMINO_ACID_IDS: tuple[int, ...] = tuple(ID[letter] for letter in AMINO_ACIDS)

_RESIDUE_ID = {letter: ID[letter] for letter in RESIDUES}


def encode(sequence: str) -> list[int]:
    """Token ids of ``sequence`` between start and end: length L + 2.

    Only residue letters are read, one letter a token, so that text such as ``<pad>`` can never become a token.
    Raises ``ValueError`` that names the first letter that is no residue and its position (from 0).

    >>> encode("CAS")
    [0, 23, 5, 8, 2]
    """
    try:
        return [CLS, *(_RESIDUE_ID[letter] for letter in sequence), EOS]
    except KeyError:
        position, letter = next((i, c) for i, c in enumerate(sequence) if c not in _RESIDUE_ID)
        raise ValueError(
            f"{letter!r} at position {position} is no residue (one of {''.join(sorted(RESIDUES))})"
        ) from None
