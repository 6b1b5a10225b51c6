"""What is trained on and what it is judged by: distinct chains, split by whole receptors.

A receptor is held out by a hash of its id and the seed, so that neither the order of the input nor other receptors
move it. A sequence that a held-out receptor has never trains, whoever else has it.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from airrformer.core import alphabet
from airrformer.errors import UserError
from airrformer.receptors.tables import BOUND_COLUMNS

log = logging.getLogger(__name__)

_COLUMNS = ["sequence_aa", "locus", *BOUND_COLUMNS]
_VALIDATION_CHAINS = 2_000  # enough for a loss to three digits; more would only slow every validation down


@dataclass(frozen=True)
class Corpus:
    """Distinct chains, in alphabetical order, with ``sequence_aa``, ``locus`` and the bounds of their regions.

    ``train`` and ``validation`` share no sequence; ``names`` are the datasets that they come from.
    """

    names: tuple[str, ...]
    train: pd.DataFrame
    validation: pd.DataFrame


def build_corpus(
    chains: Mapping[str, pd.DataFrame],
    max_residues: int,
    validation_fraction: float,
    seed: int,
    excluded: Mapping[str, Collection[str]] | None = None,
) -> Corpus:
    """The distinct sequences of ``chains`` (a chains table a dataset), split by held-out receptors.

    ``excluded`` names receptors of each dataset that must not be seen at all: neither they nor any sequence that is
    equal to one of theirs is in the corpus. Raises ``UserError`` for a chain above ``max_residues`` and for a corpus
    too small to hold anything out.
    """
    for name, table in chains.items():
        _check_lengths(name, table, max_residues)
    rows = pd.concat(
        [
            table[["receptor_id", *_COLUMNS]].assign(
                excluded=table["receptor_id"].isin(list((excluded or {}).get(name, ())))
            )
            for name, table in chains.items()
        ],
        ignore_index=True,
    )
    where = ", ".join(chains)
    rows = rows[~rows["sequence_aa"].isin(rows.loc[rows["excluded"], "sequence_aa"])]
    if rows["receptor_id"].nunique() < 2:
        raise UserError(f"{where}: too few receptors to train on and to hold out; pretrain needs two or more")

    in_validation = rows["receptor_id"].isin(held_out(rows["receptor_id"], validation_fraction, seed))
    in_validation |= rows["sequence_aa"].isin(rows.loc[in_validation, "sequence_aa"])
    if in_validation.all():
        raise UserError(
            f"{where}: the held-out receptors have every sequence, so that none is left to train on; add other chains"
        )
    train, validation = _distinct(rows[~in_validation]), _distinct(rows[in_validation])
    log.info("%s: %d distinct chains to train on, %d of held-out receptors", where, len(train), len(validation))
    if len(validation) > _VALIDATION_CHAINS:
        order = validation["sequence_aa"].map(lambda sequence: _hash(sequence, seed))
        validation = validation.loc[order.nsmallest(_VALIDATION_CHAINS).index.sort_values()].reset_index(drop=True)
        log.info("validation measures %d of them, drawn by the seed", len(validation))
    return Corpus(tuple(chains), train, validation)


def held_out(receptor_ids: pd.Series, fraction: float, seed: int) -> set[str]:
    """About ``fraction`` of the distinct ids, by hash: at least one, never all."""
    hashes = {receptor: _hash(receptor, seed) for receptor in receptor_ids.unique()}
    order = sorted(hashes, key=hashes.__getitem__)
    chosen = sum(value < fraction for value in hashes.values())
    return set(order[: min(max(chosen, 1), len(order) - 1)])


def _hash(text: str, seed: int) -> float:
    """A number in [0, 1) that depends on the text and the seed alone."""
    digest = hashlib.blake2b(f"{seed}:{text}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def _distinct(rows: pd.DataFrame) -> pd.DataFrame:
    # Numbered rows first, so that a sequence keeps its regions if any of its rows has them.
    order = rows.assign(unnumbered=rows["cdr3_start"].isna()).sort_values(["sequence_aa", "unnumbered"], kind="stable")
    return order.drop_duplicates("sequence_aa")[_COLUMNS].reset_index(drop=True)


def _check_lengths(name: str, table: pd.DataFrame, max_residues: int) -> None:
    lengths = table["sequence_aa"].str.len()
    long = lengths > max_residues
    if long.any():
        row = table.loc[lengths.idxmax()]
        raise UserError(
            f"{name}: {long.sum()} of {len(table)} chains are longer than the model's {max_residues} residues, "
            f"the longest is that of receptor {row['receptor_id']!r} with {math.floor(lengths.max())}; raise the "
            f"encoder's model.max_length to {math.floor(lengths.max()) + 2} or more, or leave such chains out"
        )


def encode_all(sequences: pd.Series) -> list[list[int]]:
    """Token ids of every sequence, start and end included. Raises ``UserError`` for a letter that is no residue."""
    try:
        return [alphabet.encode(sequence) for sequence in sequences]
    except ValueError as error:
        raise UserError(f"a chain of the corpus cannot be read: {error}; parse the sequences first") from None


def masking_weights(chains: pd.DataFrame, cdr3_weight: float) -> list[torch.Tensor]:
    """For each chain one number a token: ``cdr3_weight`` within the CDR3, 1 elsewhere and where it is unknown."""
    weights = []
    for sequence, start, end in zip(chains["sequence_aa"], chains["cdr3_start"], chains["cdr3_end"]):
        row = torch.ones(len(sequence) + 2)
        if not (pd.isna(start) or pd.isna(end)):
            row[1 + start : 1 + end] = cdr3_weight  # after the start token
        weights.append(row)
    return weights
