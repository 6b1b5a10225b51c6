"""Edit distances between receptors, summed over their chains, and who is whose neighbour.

A receptor is a tuple of strings, one a chain, usually its CDR3s; distances are Levenshtein's (substitutions,
insertions and deletions) by rapidfuzz. Nothing here holds an n x n table of a large set.

Two strings at most k edits apart become the same string when at most k letters are taken out of each (the idea of
SymSpell). So, for k of 1 and 2, only strings that share such a shorter string are compared; shorter strings are hashes
in a sorted array. Where that would be more work than comparing all with all, block by block, the blocks are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import comb

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist, cpdist
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from airrformer.receptors.tables import CHAIN_LOCI

BLOCK = 256  # rows compared at once: 256 x 100,000 distances are 100 MB
MOST_SHORTENED = 100_000_000  # shorter strings held at once, 12 bytes each
SHORTENED_COST, MEETING_COST = 10, 30  # of a shorter string and of a pair that shares one, in pairs compared by block
CANDIDATES = 1_000_000  # pairs compared at once
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
    return _joined(neighbours(items, distance), len(items))


def neighbours(items: Sequence[tuple[str, ...]], distance: int) -> Iterator[Pairs]:
    """The same pairs in pieces, some of them perhaps twice: for sets so dense that all pairs would not fit."""
    n = len(items)
    if distance == 0 or n < 2:
        return
    strings = ["\t".join(item) for item in items]
    shorter = _shortened_count(strings, distance) if distance <= 2 else np.inf
    if shorter > MOST_SHORTENED or SHORTENED_COST * shorter > n * n / 2:
        yield from _close_by_block(items, distance)
        return
    hashes, owners = _shortened(strings, distance)
    in_order = np.sort(hashes)
    hashes, owners = _among(hashes, owners, in_order[1:][in_order[1:] == in_order[:-1]])
    if MEETING_COST * _meetings(hashes) > n * n / 2:
        yield from _close_by_block(items, distance)
        return
    for i, j in _meeting(hashes, owners, hashes, owners):
        some = i < j
        yield _within(items, items, i[some], j[some], distance)


def nearest(queries: Sequence[str], references: Iterable[str], most: int = 2) -> np.ndarray:
    """How many edits each query is from the nearest of ``references``, int8 (n,); ``most`` + 1 stands for more.

    ``most`` is 2 at most. The references are gone through in pieces, so there may be millions of them.

    >>> nearest(["ASSF", "ATSF", "QQQQQ"], ["ASSF", "ASSSF"]).tolist()
    [0, 1, 3]
    """
    if not 0 <= most <= 2:
        raise ValueError(f"most is 0, 1 or 2, not {most}")
    distinct, of = unique(queries)
    references = list(dict.fromkeys(references))
    known = set(references)
    found = np.array([0 if query in known else most + 1 for query in distinct], dtype=np.int8)
    for edits in range(1, most + 1):
        for start in range(0, len(references), 50_000):
            left = np.flatnonzero(found > most)  # what has been found is asked no more: dense sets are soon done
            some, asked = references[start : start + 50_000], [distinct[i] for i in left]
            hashes, owners = _shortened(asked, edits)
            for i, j in _meeting(hashes, owners, *_among(*_shortened(some, edits), hashes)):
                there = found[left[i]] > most
                hits, _ = _within([(a,) for a in asked], [(b,) for b in some], i[there], j[there], edits)
                found[left[hits]] = edits
    return found[of] if len(of) else np.empty(0, dtype=np.int8)


def identity_pairs(sequences: Sequence[str], identity: float) -> Pairs:
    """All pairs i < j of ``sequences`` that are alike: 1 - edits / longer length is at least ``identity``."""
    lengths = np.array([len(sequence) for sequence in sequences])
    # integers are compared, with a hair of slack, so that exactly 80 % is 80 %
    allowed = (1 - identity) * lengths + 1e-9

    def alike(rows: slice) -> np.ndarray:
        cutoff = int(allowed.max())
        edits = cdist(sequences[rows], sequences, scorer=Levenshtein.distance, score_cutoff=cutoff, dtype=np.int32)
        return edits <= np.maximum(allowed[rows, None], allowed[None, :])

    return _joined(_by_block(len(sequences), alike), len(sequences))


def linked(n: int, pairs: Pairs) -> np.ndarray:
    """Single linkage: int (n,) labels of the connected components of ``pairs``."""
    return linked_pieces(n, [pairs])


def linked_pieces(n: int, pieces: Iterable[Pairs]) -> np.ndarray:
    """As ``linked``; what a piece has linked is all that is kept of it."""
    labels = np.arange(n, dtype=np.int64)
    for rows, columns in pieces:
        rows, columns = labels[rows], labels[columns]
        graph = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
        labels = connected_components(graph, directed=False)[1].astype(np.int64)[labels]
    return labels


def near_copies(items: Sequence[tuple[str, ...]], edits: int) -> np.ndarray:
    """Which items are linked by ``edits`` or fewer over all their parts, directly or in turn: int64 (n,).

    Numbered in the order of their letters, so that the order of the items changes nothing.
    """
    distinct = sorted(set(items))
    place = {item: i for i, item in enumerate(distinct)}
    return linked_pieces(len(distinct), neighbours(distinct, edits))[[place[item] for item in items]]


# ------------------------------------------------------------------------------------------------- who is compared


def _close_by_block(items: Sequence[tuple[str, ...]], distance: int) -> Iterator[Pairs]:
    # the chain that tells most apart is compared first: of the others only what it leaves
    chains = list(zip(*items))
    telling = max(chains, key=lambda strings: len(set(strings)))
    for start in range(0, len(items), BLOCK):
        block = telling[start : start + BLOCK], telling[start:]
        close = cdist(*block, scorer=Levenshtein.distance, score_cutoff=distance, dtype=np.int32) <= distance
        if len(chains) > 1 and close.mean() > 0.02:  # nearly all are left: a whole block is the faster way
            close = edit_distances(items[start : start + BLOCK], items[start:], distance) <= distance
        i, j = np.nonzero(np.triu(close, 1))
        i, j = i + start, j + start
        yield (i, j) if len(chains) == 1 else _within(items, items, i, j, distance)


def _by_block(n: int, close: Callable[[slice], np.ndarray]) -> Iterator[Pairs]:
    for start in range(0, n, BLOCK):
        rows, columns = np.nonzero(close(slice(start, start + BLOCK)))
        rows = rows + start
        yield rows[rows < columns], columns[rows < columns]


def _within(
    left: Sequence[tuple[str, ...]], right: Sequence[tuple[str, ...]], i: np.ndarray, j: np.ndarray, distance: int
) -> Pairs:
    """Those of the pairs, each once and sorted, whose summed edit distance is at most ``distance``."""
    i, j = np.divmod(np.unique(i * len(right) + j), max(1, len(right)))
    total = np.zeros(len(i), dtype=np.int64)
    for a, b in zip(zip(*(left[k] for k in i)), zip(*(right[k] for k in j))):
        total += cpdist(a, b, scorer=Levenshtein.distance, score_cutoff=distance, dtype=np.int32)
    return i[total <= distance], j[total <= distance]


def _joined(pieces: Iterator[Pairs], n: int) -> Pairs:
    keys = [rows * n + columns for rows, columns in pieces]
    rows, columns = np.divmod(np.unique(np.concatenate(keys)), n) if keys else NO_PAIRS
    return rows, columns


def _shortened_count(strings: Sequence[str], most: int) -> int:
    return sum(comb(len(string), k) for string in strings for k in range(most + 1))


def _among(hashes: np.ndarray, owners: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the hashes that may be among ``wanted``, by their first 26 bits: most others are gone at no cost."""
    table = np.zeros(1 << 26, dtype=bool)
    table[wanted >> np.uint64(38)] = True
    some = table[hashes >> np.uint64(38)]
    return hashes[some], owners[some]


def _meetings(hashes: np.ndarray) -> int:
    """How many pairs of positions have the same hash."""
    counts = np.unique(hashes, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _meeting(
    hashes: np.ndarray, owners: np.ndarray, other_hashes: np.ndarray, other_owners: np.ndarray
) -> Iterator[Pairs]:
    """Pairs (owner, other owner) that have a hash in common, ``CANDIDATES`` at a time, perhaps several times."""
    order = np.argsort(hashes)
    hashes, owners = hashes[order], owners[order]
    # the others stay in the order of their owners, so that a pair that has much in common is met at one time
    first = np.searchsorted(hashes, other_hashes, "left")
    counts = np.searchsorted(hashes, other_hashes, "right") - first
    ends = np.cumsum(counts)
    for low in range(0, int(ends[-1]) if len(ends) else 0, CANDIDATES):
        taken = np.arange(low, min(low + CANDIDATES, ends[-1]))
        run = np.searchsorted(ends, taken, "right")
        yield owners[first[run] + taken - (ends - counts)[run]], other_owners[run]


# A string's hash is the sum of its letters' codes times the powers of an odd base, modulo 2 ** 64: with a letter out,
# the rest moves one place to the left, which is a product with the inverse of the base. Equal hashes are only ever
# candidates, so that a collision costs a comparison and nothing else.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = np.uint64(pow(_BASE, -1, 2**64))
_LETTER_CODES = np.random.default_rng(0).integers(1, 2**63, 256, dtype=np.uint64)


def _shortened(strings: Sequence[str], most: int) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of each string with 0 to ``most`` (at most 2) letters taken out, each once, and its position."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for position, string in enumerate(strings):
        by_length[len(string)].append(position)
    hashes, owners = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    for length, positions in by_length.items():
        step = max(1, 2_000_000 // (1 + length * length))
        for start in range(0, len(positions), step):
            some = positions[start : start + step]
            letters = "".join(strings[position] for position in some).encode("latin-1", "replace")
            found = _without(_LETTER_CODES[np.frombuffer(letters, np.uint8).reshape(len(some), length)], most)
            found.sort(axis=1)
            first = np.ones(found.shape, dtype=bool)  # of SS either S may be out: once is enough
            first[:, 1:] = found[:, 1:] != found[:, :-1]
            hashes.append(found[first])
            owners.append(np.repeat(np.array(some, dtype=np.int64), first.sum(axis=1)))
    return np.concatenate(hashes), np.concatenate(owners)


def _without(codes: np.ndarray, most: int) -> np.ndarray:
    # codes (m, L) -> hashes (m, 1 + L + L (L - 1) / 2)
    length = codes.shape[1]
    powers = np.cumprod(np.full(length, _BASE, dtype=np.uint64), dtype=np.uint64)
    ends = np.zeros((len(codes), length + 1), dtype=np.uint64)
    np.cumsum(codes * powers, axis=1, out=ends[:, 1:])
    whole = ends[:, -1:]
    found = [whole]
    if most >= 1:
        found.append(ends[:, :-1] + _INVERSE * (whole - ends[:, 1:]))
    if most >= 2:
        i, j = np.triu_indices(length, 1)
        between, after = ends[:, j] - ends[:, i + 1], whole - ends[:, j + 1]
        found.append(ends[:, i] + _INVERSE * (between + _INVERSE * after))
    return np.concatenate(found, axis=1)
