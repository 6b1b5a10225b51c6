"""Masked guesses: residues of a chain are hidden one at a time, and the encoder says what it would put there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.errors import UserError
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)

SHOWN = 4  # guesses on a line


def masked_guesses(
    encoder: str | Path,
    sequence: str,
    region: str | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    positions: Sequence[int] | None = None,
) -> pd.DataFrame:
    """p(letter | all other residues) at each of ``positions``, or of ``region``, or of the whole ``sequence``.

    A row a position, in the order asked for; columns: position (from 0 in the sequence), residue, then
    ``ACDEFGHIKLMNPQRSTVWY``, whose twenty numbers sum to 1. ``region`` is a stretch of residues that occurs once;
    ``encoder`` is what ``airrformer.load`` takes. ``output``, if given, gets the table (TSV). Raises ``UserError`` for
    a position outside the sequence, for a region that is not in it or is there twice, and for an encoder that cannot
    guess.
    """
    from airrformer.embed.encoders import load  # brings torch, which maps do without

    sequence = sequence.upper()
    if region is not None and positions is not None:
        raise UserError("a region and positions were given; give one of them")
    if region is not None:
        start = _locate(region.upper(), sequence)
        positions = range(start, start + len(region))
    positions = list(range(len(sequence)) if positions is None else positions)
    if outside := [position for position in positions if not 0 <= position < len(sequence)]:
        raise UserError(f"position {outside[0]} is outside the sequence: its {len(sequence)} residues count from 0")
    loaded = load(encoder, device=device)
    if not hasattr(loaded, "masked_profile"):
        raise UserError(f"{encoder}: this encoder is a table and guesses no residues; name a trained one")
    guesses = pd.DataFrame(loaded.masked_profile(sequence, positions), columns=list(AMINO_ACIDS))
    guesses.insert(0, "position", positions)
    guesses.insert(1, "residue", [sequence[position] for position in positions])
    if output is not None:
        write_table(guesses, output)
        best = guesses[list(AMINO_ACIDS)].idxmax(axis=1)
        right = (best == guesses["residue"]).sum()
        logger.info("%s: %d of %d residues would be guessed right", output, right, len(guesses))
    return guesses


def guess_lines(guesses: pd.DataFrame, region: bool = False) -> list[str]:
    """A line a row of ``masked_guesses``: position, residue, its probability, and the likeliest four with theirs.

    ``region``: the rows are those of a region, and are counted from 1 as well, as in the report.
    """
    lines = []
    columns = guesses[["position", "residue", *AMINO_ACIDS]]
    for i, (position, residue, *numbers) in enumerate(columns.itertuples(index=False), start=1):
        p = dict(zip(AMINO_ACIDS, numbers))
        likeliest = sorted(AMINO_ACIDS, key=lambda letter: -p[letter])[:SHOWN]  # equal ones stay in alphabetical order
        place = f"position {position}, {i} in the region" if region else f"position {position}"
        true = f"p({residue}) = {p[residue]:.3f}" if residue in p else f"{residue}, none of the twenty"
        lines.append(f"{place}: {true}; likeliest " + ", ".join(f"{letter} {p[letter]:.3f}" for letter in likeliest))
    return lines


def _locate(region: str, sequence: str) -> int:
    start = sequence.find(region)
    if not region or start < 0:
        raise UserError(f"region {region!r} does not occur in the sequence {sequence!r}; give it as residues of it")
    if (again := sequence.find(region, start + 1)) >= 0:
        raise UserError(
            f"region {region!r} occurs in the sequence more than once, at {start} and {again} (from 0); give a longer "
            "stretch that occurs once"
        )
    return start
