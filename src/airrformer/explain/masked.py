"""Masked guesses: each residue of a stretch is hidden in turn, and the encoder says what it would put there."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.errors import UserError
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)


def masked_guesses(
    encoder: str | Path, sequence: str, region: str | None, output: str | Path, device: str = "auto"
) -> None:
    """Write p(letter | all other residues) at each position of ``region`` in ``sequence`` to ``output`` (TSV).

    Columns: position (from 0 in the sequence), residue, then ``ACDEFGHIKLMNPQRSTVWY``; a row's twenty numbers sum
    to 1. ``region`` is a stretch of residues, None the whole sequence; ``encoder`` is what ``airrformer.load`` takes.
    Raises ``UserError`` for a region that is not in the sequence or is there twice, and for an encoder that cannot
    guess.
    """
    from airrformer.embed.encoders import load  # brings torch, which maps do without

    sequence = sequence.upper()
    start, end = (0, len(sequence)) if region is None else _locate(region.upper(), sequence)
    loaded = load(encoder, device=device)
    if not hasattr(loaded, "masked_profile"):
        raise UserError(f"{encoder}: this encoder is a table and guesses no residues; name a trained one")
    positions = list(range(start, end))
    guesses = pd.DataFrame(loaded.masked_profile(sequence, positions), columns=list(AMINO_ACIDS))
    guesses.insert(0, "position", positions)
    guesses.insert(1, "residue", list(sequence[start:end]))
    write_table(guesses, output)
    best = guesses[list(AMINO_ACIDS)].idxmax(axis=1)
    logger.info(
        "%s: %d of %d residues would be guessed right", output, (best == guesses["residue"]).sum(), len(guesses)
    )


def _locate(region: str, sequence: str) -> tuple[int, int]:
    start = sequence.find(region)
    if not region or start < 0:
        raise UserError(f"region {region!r} does not occur in the sequence {sequence!r}; give it as residues of it")
    if (again := sequence.find(region, start + 1)) >= 0:
        raise UserError(
            f"region {region!r} occurs in the sequence more than once, at {start} and {again} (from 0); give a longer "
            "stretch that occurs once"
        )
    return start, start + len(region)
