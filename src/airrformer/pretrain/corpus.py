"""What is trained on and what it is judged by: distinct chains and receptors, split by whole receptors.

A receptor is held out by a hash of its id and the seed, so that neither the order of the input nor other receptors
move it. A sequence that a held-out receptor has never trains, whoever else has it; with ``held_out_edits`` neither
does a chain whose CDR3 is that near to one that is measured.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from airrformer.core import alphabet
from airrformer.errors import UserError
from airrformer.receptors.distances import linked_pieces, nearest, neighbours, unique
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_LOCI

log = logging.getLogger(__name__)

READ_COLUMNS = ("receptor_id", "sequence_aa", "locus", "v_call", "j_call", *BOUND_COLUMNS)
_COLUMNS = ["sequence_aa", "locus", "v_call", "j_call", "dataset", *BOUND_COLUMNS]
_VALIDATION_CHAINS = 2_000  # enough for a loss to three digits; more would only slow every validation down
_CHAIN_ORDER = {locus: i for i, loci in enumerate(CHAIN_LOCI.values()) for locus in loci}


@dataclass(frozen=True)
class Part:
    """Receptors to train on, or to be judged by.

    chains: distinct chains in alphabetical order: ``sequence_aa``, ``locus``, genes, bounds, the ``dataset``.
    receptors: distinct receptors, int64 (n, 2): the rows of their chains in ``chains``; -1 where there is no second.
    labels: what each binds, as numbers from 0, -1 where nothing is known, int64 (n,); of several, one.
    """

    chains: pd.DataFrame
    receptors: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Corpus:
    """``train`` and ``validation`` share no sequence; ``names`` are the datasets that they come from."""

    names: tuple[str, ...]
    train: Part
    validation: Part


def build_corpus(
    chains: Mapping[str, pd.DataFrame],
    max_residues: int,
    validation_fraction: float,
    seed: int,
    excluded: Mapping[str, Collection[str]] | None = None,
    held_out_edits: int | Mapping[str, int] = 0,
    labels: Mapping[str, pd.Series] | None = None,
) -> Corpus:
    """The distinct sequences of ``chains`` (a chains table a dataset), split by held-out receptors.

    Each table is asked for once, so that ``chains`` may read it then; what is not in the corpus is not kept.
    ``excluded`` names receptors of each dataset that must not be seen at all: neither they nor any sequence that is
    equal to one of theirs is in the corpus. ``held_out_edits``: one number, or one for each locus that it is for.
    ``labels`` gives, for each dataset, a class by receptor_id. Raises
    ``UserError`` for a chain above ``max_residues`` and for a corpus too small to hold anything out.
    """
    excluded = excluded or {}
    rows = [_rows(name, table, max_residues, excluded.get(name, ())) for name, table in chains.items()]
    rows = pd.concat(rows, ignore_index=True)
    where = ", ".join(chains)
    rows = rows[~rows["sequence_aa"].isin(rows.loc[rows["excluded"], "sequence_aa"])]
    if rows["receptor_id"].nunique() < 2:
        raise UserError(f"{where}: too few receptors to train on and to hold out; pretrain needs two or more")

    in_validation = rows["receptor_id"].isin(held_out(rows["receptor_id"], validation_fraction, seed))
    in_validation |= rows["sequence_aa"].isin(rows.loc[in_validation, "sequence_aa"])
    validation = _part(rows[in_validation], labels)
    if _size(validation) > _VALIDATION_CHAINS:
        whole, validation = _size(validation), _drawn(validation, seed)
        log.info("validation measures %d of %d held-out chains, drawn by the seed", _size(validation), whole)
    near = _near(rows, validation.chains, held_out_edits)
    if near.any():
        log.info("%s: %d chains have a CDR3 near a held-out one and do not train", where, (near & ~in_validation).sum())
    if (in_validation | near).all():
        raise UserError(
            f"{where}: the held-out receptors have every sequence, so that none is left to train on; add other chains"
        )
    train = _part(rows[~in_validation & ~near], labels)
    log.info("%s: %d distinct chains to train on, %d to be judged by", where, *map(_size, (train, validation)))
    return Corpus(tuple(chains), train, validation)


def held_out(receptor_ids: pd.Series, fraction: float, seed: int) -> set[str]:
    """About ``fraction`` of the distinct ids, by hash: at least one, never all."""
    hashes = {receptor: _hash(receptor, seed) for receptor in receptor_ids.unique()}
    order = sorted(hashes, key=hashes.__getitem__)
    chosen = sum(value < fraction for value in hashes.values())
    return set(order[: min(max(chosen, 1), len(order) - 1)])


def cdr3_of(chains: pd.DataFrame) -> list[str]:
    """The CDR3 of each chain, without its anchors; "" where it is not known."""
    starts, ends = (chains[f"cdr3_{end}"].fillna(0).tolist() for end in ("start", "end"))
    return [sequence[start:end] for sequence, start, end in zip(chains["sequence_aa"], starts, ends)]


def clusters(chains: pd.DataFrame, receptors: np.ndarray, edits: int = 1) -> np.ndarray:
    """Which of ``receptors`` (n, 2) are near copies: int64 (n,), those linked by ``edits`` in V gene and CDR3 together.

    The name of the gene is compared, too: without it most of a large repertoire is one cluster. A chain whose CDR3 is
    not known is compared as a whole.
    """
    parts = zip(chains["v_call"].fillna("").str.partition("*")[0], cdr3_of(chains), chains["sequence_aa"])
    text = [f"{v_gene}:{cdr3 or sequence}" for v_gene, cdr3, sequence in parts] + [""]  # -1: no chain
    items, inverse = unique([(text[a], text[b]) for a, b in receptors.tolist()])
    return linked_pieces(len(items), neighbours(items, edits))[inverse]


def _size(part: Part) -> int:
    return len(part.chains)


def _hash(text: str, seed: int) -> float:
    """A number in [0, 1) that depends on the text and the seed alone."""
    digest = hashlib.blake2b(f"{seed}:{text}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def _near(rows: pd.DataFrame, measured: pd.DataFrame, edits: int | Mapping[str, int]) -> pd.Series:
    """Which rows have a CDR3 within ``edits``, of their locus, of one of the ``measured`` chains of that locus."""
    near = pd.Series(False, index=rows.index)
    if not edits:
        return near
    cdr3, out = pd.Series(cdr3_of(rows), index=rows.index), pd.Series(cdr3_of(measured), index=measured.index)
    for locus, of_locus in rows.groupby(rows["locus"].fillna(""), sort=False):
        most = edits.get(locus, 0) if isinstance(edits, Mapping) else edits
        known = of_locus.index[cdr3[of_locus.index] != ""]
        others = sorted(set(out[measured["locus"].fillna("") == locus]) - {""})
        if most and len(known) and others:
            distinct, inverse = unique(cdr3[known].tolist())
            near[known] = (nearest(distinct, others, most) <= most)[inverse]
    return near


def _part(rows: pd.DataFrame, labels: Mapping[str, pd.Series] | None) -> Part:
    # Numbered rows first, so that a sequence keeps its regions if any of its rows has them; then whatever tells rows
    # apart, so that their order moves nothing.
    by = ["sequence_aa", "unnumbered", "dataset", "locus", "v_call", "j_call"]
    order = rows.assign(unnumbered=rows["cdr3_start"].isna())[by].sort_values(by, kind="stable")
    chains = rows.loc[order.drop_duplicates("sequence_aa").index].reindex(columns=_COLUMNS).reset_index(drop=True)
    place = pd.Series(chains.index, index=chains["sequence_aa"])

    same = ["dataset", "receptor_id"]
    rows = rows[same].assign(
        chain=place[rows["sequence_aa"]].to_numpy(), order=rows["locus"].map(_CHAIN_ORDER).fillna(9)
    )
    rows = rows.sort_values([*same, "order"], kind="stable")
    receptors = rows.groupby(same, sort=False)
    receptor, rank = receptors.ngroup().to_numpy(), receptors.cumcount().to_numpy()
    members = np.full((receptors.ngroups, 2), -1, dtype=np.int64)
    for i in (0, 1):
        members[receptor[rank == i], i] = rows["chain"].to_numpy()[rank == i]
    pairs = pd.DataFrame(members, columns=["a", "b"]).assign(label=-1)
    if labels is not None:
        named = [labels[dataset].get(name) for dataset, name in rows.loc[rank == 0, same].itertuples(index=False)]
        pairs["label"] = pd.factorize(pd.Series(named, dtype=object), sort=True)[0]
    # the order of the input moves nothing; a receptor that is there twice keeps a label that is known
    pairs = pairs.sort_values(["a", "b", "label"], ascending=[True, True, False]).drop_duplicates(["a", "b"])
    return Part(chains, pairs[["a", "b"]].to_numpy(dtype=np.int64), pairs["label"].to_numpy(dtype=np.int64))


def _drawn(part: Part, seed: int) -> Part:
    """Receptors drawn by the seed, as many of each dataset and combination of loci where there are as many."""
    sequences, places = (
        np.array([*part.chains[column].fillna(""), ""], dtype=object) for column in ("sequence_aa", "locus")
    )
    dataset = part.chains["dataset"].to_numpy(dtype=object)[part.receptors[:, 0]]
    a, b = part.receptors.T
    order = pd.Series([_hash(f"{one}\t{two}", seed) for one, two in zip(sequences[a], sequences[b])])
    groups = order.groupby([dataset, places[a], places[b]])
    most = _VALIDATION_CHAINS
    while groups.size().clip(upper=most).sum() * 2 > _VALIDATION_CHAINS and most > 1:
        most -= max(1, most // 20)
    receptors = (groups.rank(method="first") <= most).to_numpy()
    rows = np.unique(part.receptors[receptors])
    rows = rows[rows >= 0]
    place = np.full(len(part.chains) + 1, -1)  # the last: of a receptor without a second chain
    place[rows] = range(len(rows))
    chains = part.chains.iloc[rows].reset_index(drop=True)
    return Part(chains, place[part.receptors[receptors]], part.labels[receptors])


def _rows(name: str, table: pd.DataFrame, max_residues: int, excluded: Collection[str]) -> pd.DataFrame:
    """What is read of a dataset's chains, which dataset it is, and who is ``excluded``."""
    lengths = table["sequence_aa"].str.len()
    long = lengths > max_residues
    if long.any():
        row = table.loc[lengths.idxmax()]
        raise UserError(
            f"{name}: {long.sum()} of {len(table)} chains are longer than the model's {max_residues} residues, "
            f"the longest is that of receptor {row['receptor_id']!r} with {math.floor(lengths.max())}; raise the "
            f"encoder's model.max_length to {math.floor(lengths.max()) + 2} or more, or leave such chains out"
        )
    rows = table[[column for column in READ_COLUMNS if column in table]]
    return rows.assign(dataset=name, excluded=table["receptor_id"].isin(list(excluded)))


def encode_all(sequences: pd.Series) -> list[list[int]]:
    """Token ids of every sequence, start and end included. Raises ``UserError`` for a letter that is no residue."""
    try:
        return [alphabet.encode(sequence) for sequence in sequences]
    except ValueError as error:
        raise UserError(f"a chain of the corpus cannot be read: {error}; parse the sequences first") from None
