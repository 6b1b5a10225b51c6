"""Edit distances between receptors, summed over their chains, and who is whose neighbour.

A receptor is a tuple of strings, one a chain, usually its CDR3s; distances are Levenshtein's (substitutions,
insertions and deletions) by rapidfuzz. Nothing here holds an n x n table of a large set: distance 1 goes through the
neighbourhood of single deletions, larger distances go block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from airrformer.receptors.tables import CHAIN_LOCI

BLOCK = 1024  # rows compared at once: 1024 x 100,000 distances are 400 MB
_COLUMNS = (
    "receptor_id", "chain", "sequence_aa", "junction_aa", "cdr3_start", "cdr3_end", "fwr1_start", "fwr4_end",
)  # fmt: skip

Pairs = tuple[np.ndarray, np.ndarray]  # positions i and j, int64
NO_PAIRS: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def chain_names(chains: pd.DataFrame) -> list[str]:
    """The chains that occur, in the one order of the project: TRA, TRB, TRG, TRD, heavy, light."""
    present = set(chains["chain"])
    return [name for name in CHAIN_LOCI if name in present]


def chain_strings(
    receptor_ids: Sequence[str], chains: pd.DataFrame, names: Sequence[str], string_of: Callable[..., str]
) -> list[tuple[str, ...]]:
    """``string_of(row)`` of each chain of each receptor, in the order of ``receptor_ids`` and ``names``.

    A chain that a receptor lacks is the empty string. ``row`` is a named tuple with ``_COLUMNS`` of the chains table.
    """
    rows = chains.loc[:, list(_COLUMNS)].itertuples(index=False)
    found = {(row.receptor_id, row.chain): string_of(row) for row in rows}
    return [tuple(found.get((receptor, name), "") for name in names) for receptor in receptor_ids]


def whole_chain(row) -> str:
    """All residues of the chain."""
    return row.sequence_aa


def cdr3_or_chain(row) -> str:
    """The CDR3 without its anchors, by its bounds or from the junction; without either the whole chain."""
    if pd.notna(row.cdr3_start) and pd.notna(row.cdr3_end):
        return row.sequence_aa[int(row.cdr3_start) : int(row.cdr3_end)]
    if isinstance(row.junction_aa, str) and len(row.junction_aa) > 2:
        return row.junction_aa[1:-1]
    return row.sequence_aa


def v_domain_or_chain(row) -> str:
    """The V domain, FWR1 to FWR4; without its bounds the whole chain."""
    if pd.notna(row.fwr1_start) and pd.notna(row.fwr4_end):
        return row.sequence_aa[int(row.fwr1_start) : int(row.fwr4_end)]
    return row.sequence_aa


def unique(items: Sequence[Hashable]) -> tuple[list, np.ndarray]:
    """The distinct items in order of first appearance, and the position of each item among them, int (n,)."""
    positions: dict[Hashable, int] = {}
    inverse = np.array([positions.setdefault(item, len(positions)) for item in items], dtype=np.int64)
    return list(positions), inverse


def edit_distances(
    queries: Sequence[tuple[str, ...]], choices: Sequence[tuple[str, ...]], cutoff: int | None = None
) -> np.ndarray:
    """Edit distances summed over the chains, int32 (queries, choices).

    With ``cutoff`` every distance above it comes out as some larger number, which is faster.

    >>> edit_distances([("CASSF",)], [("CASSF",), ("CASTF",), ("CATF",)]).tolist()
    [[0, 1, 2]]
    """
    total = np.zeros((len(queries), len(choices)), dtype=np.int32)
    if total.size:
        for left, right in zip(zip(*queries, strict=True), zip(*choices, strict=True), strict=True):
            total += cdist(left, right, scorer=Levenshtein.distance, score_cutoff=cutoff, dtype=np.int32)
    return total


def neighbour_pairs(items: Sequence[tuple[str, ...]], distance: int) -> Pairs:
    """All pairs i < j of distinct ``items`` whose summed edit distance is at most ``distance``, sorted."""
    if distance == 0 or len(items) < 2:
        return NO_PAIRS
    if distance == 1:
        return _pairs_within_one(items)
    return _pairs_by_block(len(items), lambda rows: edit_distances(items[rows], items, distance) <= distance)


def identity_pairs(sequences: Sequence[str], identity: float) -> Pairs:
    """All pairs i < j of ``sequences`` that are alike: 1 - edits / longer length is at least ``identity``."""
    lengths = np.array([len(sequence) for sequence in sequences])
    # integers are compared, with a hair of slack, so that exactly 80 % is 80 %
    allowed = (1 - identity) * lengths + 1e-9

    def alike(rows: slice) -> np.ndarray:
        cutoff = int(allowed.max())
        edits = cdist(sequences[rows], sequences, scorer=Levenshtein.distance, score_cutoff=cutoff, dtype=np.int32)
        return edits <= np.maximum(allowed[rows, None], allowed[None, :])

    return _pairs_by_block(len(sequences), alike)


def linked(n: int, pairs: Pairs) -> np.ndarray:
    """Single linkage: int (n,) labels of the connected components of ``pairs``."""
    rows, columns = pairs
    graph = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _pairs_within_one(items: Sequence[tuple[str, ...]]) -> Pairs:
    # Two strings one edit apart share a string with at most one letter taken out of each (SymSpell's trick), so only
    # those that share one are compared. Chains are joined by a tab, which no single edit can move.
    strings = ["\t".join(item) for item in items]
    sharing: dict[str, list[int]] = {}
    for i, string in enumerate(strings):
        for shorter in {string, *(string[:k] + string[k + 1 :] for k in range(len(string)))}:
            sharing.setdefault(shorter, []).append(i)
    candidates = {pair for members in sharing.values() for pair in combinations(members, 2)}
    return _sorted_pairs(
        {(i, j) for i, j in candidates if Levenshtein.distance(strings[i], strings[j], score_cutoff=1) <= 1}
    )


def _pairs_by_block(n: int, close: Callable[[slice], np.ndarray]) -> Pairs:
    found = []
    for start in range(0, n, BLOCK):
        rows, columns = np.nonzero(close(slice(start, start + BLOCK)))
        rows = rows + start
        found.append(np.stack([rows, columns])[:, rows < columns])
    rows, columns = np.concatenate(found, axis=1) if found else NO_PAIRS
    return rows, columns


def _sorted_pairs(pairs: set[tuple[int, int]]) -> Pairs:
    table = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
