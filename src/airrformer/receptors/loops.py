"""The loops and genes of receptors as text, and distances over CDR1 to CDR3 as matrix products.

A loop is laid on a grid by its length alone: its first residues from the left, its last ones from the right, the gap
between them. Two loops then differ in length by one gap, and their distance is a sum over the places of the grid of
what the one residue costs against the other: a product of one loop's rows of the cost matrix with the other's one-hot
code. Repeated loops (the CDR1s and CDR2s of a TCR are those of some fifty genes) are compared once.

What is missing is no signal. A part of a chain (loop or gene) that either receptor lacks costs what that part costs on
average between training receptors, to everyone alike: ``LoopDistance.fill``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

LOOPS: tuple[str, ...] = ("cdr1", "cdr2", "cdr3")
LETTERS: tuple[str, ...] = (*LOOPS, "v", "j", "sequence")
COSTS: tuple[str, ...] = ("tcrdist", "blosum", "hamming", "edit")
PLACES: tuple[str, ...] = ("tcrdist", "centre")
AT_ONCE = 3_000_000  # distances held at a time, in each of a few float32 arrays

_RESIDUES = "ARNDCQEGHILKMFPSTWYV"
_UNKNOWN, _GAP = 20, 21
_CODES = np.full(256, _UNKNOWN, dtype=np.uint8)
_CODES[np.frombuffer(_RESIDUES.encode(), dtype=np.uint8)] = np.arange(20)
_CODES[ord("-")] = _GAP
_LONGEST = 60  # residues; of a longer loop the middle is not looked at
_SAMPLE = 120  # receptors, compared with one another to know what is usual
_COLUMNS = 4096  # loops made one-hot at once


def receptor_letters(receptor_ids: Sequence[str], chains: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """What classifiers that read sequences get: one row a receptor in the order of ``receptor_ids``, all columns str.

    For each chain of ``names``: ``<chain>_cdr1``, ``_cdr2`` and ``_cdr3`` (without anchors; by its bounds, or from the
    junction), ``_v`` and ``_j`` (genes without allele; those of a tie joined by commas) and ``_sequence`` (FWR1 to
    FWR4, or the whole chain where they are not known). ``""`` is missing.

    Args:
        chains: a table with ``tables.CHAIN_SCHEMA``; of several rows of one receptor and chain the last counts.
    """
    ids = pd.Index(chains["receptor_id"].astype(object))
    chain_of = chains["chain"].to_numpy(dtype=object)
    columns: dict[str, np.ndarray] = {}
    for name in names:
        rows = np.flatnonzero(chain_of == name)
        place = pd.Series(rows, index=ids[rows])
        place = place[~place.index.duplicated(keep="last")].reindex(list(receptor_ids)).to_numpy(dtype=float)
        there = ~np.isnan(place)
        found = _letters_of_rows(chains.iloc[place[there].astype(np.int64)])
        for kind in LETTERS:
            column = np.full(len(receptor_ids), "", dtype=object)
            column[there] = found[kind]
            columns[f"{name}_{kind}"] = column
    return pd.DataFrame(columns, index=pd.RangeIndex(len(receptor_ids)), dtype=object)


def _letters_of_rows(rows: pd.DataFrame) -> dict[str, list[str]]:
    sequences = _texts(rows["sequence_aa"])
    found = {loop: _slices(sequences, rows[f"{loop}_start"], rows[f"{loop}_end"]) for loop in LOOPS}
    inside = [junction[1:-1] for junction in _texts(rows["junction_aa"])]
    found["cdr3"] = [loop or other for loop, other in zip(found["cdr3"], inside)]
    domains = _slices(sequences, rows["fwr1_start"], rows["fwr4_end"])
    found["sequence"] = [domain or sequence for domain, sequence in zip(domains, sequences)]
    found["v"] = [_gene(call) for call in _texts(rows["v_call"])]
    found["j"] = [_gene(call) for call in _texts(rows["j_call"])]
    return found


def _texts(column: pd.Series) -> list[str]:
    return [text if isinstance(text, str) else "" for text in column.astype(object)]


def _slices(sequences: list[str], starts: pd.Series, ends: pd.Series) -> list[str]:
    bounds = (column.to_numpy(dtype=float, na_value=np.nan) for column in (starts, ends))
    starts, ends = (np.nan_to_num(bound, nan=0).astype(int).tolist() for bound in bounds)  # unknown: nothing
    return [sequence[start:end] if end else "" for sequence, start, end in zip(sequences, starts, ends)]


@lru_cache(maxsize=100_000)
def _gene(call: str) -> str:
    """``TRBV6-2*01,TRBV6-2*02`` -> ``TRBV6-2``."""
    return ",".join(dict.fromkeys(re.sub(r"\*.*", "", one.strip()) for one in call.split(",")))


def chains_of(letters: pd.DataFrame | Mapping[str, np.ndarray]) -> list[str]:
    """The chains that the columns of ``letters`` speak of, in their order."""
    names = [str(name).rsplit("_", 1) for name in letters]
    return list(dict.fromkeys(name[0] for name in names if name[-1] in LETTERS and len(name) == 2))


def compared_columns(letters: pd.DataFrame | Mapping[str, np.ndarray]) -> list[str]:
    """The columns of ``letters`` that distances compare: loops and genes, not whole sequences."""
    return [str(name) for name in letters if not str(name).endswith("_sequence")]


# ------------------------------------------------------------------------------------------------------ the distance


@dataclass(frozen=True)
class Column:
    """A column of letters: its distinct texts, which one each receptor has, int (n,), and which of them is missing."""

    texts: list[str]
    of: np.ndarray

    def rows(self, rows) -> Column:
        used, of = np.unique(self.of[rows], return_inverse=True)
        return Column([self.texts[i] for i in used], of)


@dataclass(frozen=True)
class Encoded:
    """Letters made ready to be compared: n receptors."""

    n: int
    columns: dict[str, Column]

    def rows(self, rows) -> Encoded:
        """Some of the receptors: a slice, positions or a mask."""
        columns = {name: column.rows(rows) for name, column in self.columns.items()}
        return Encoded(len(np.arange(self.n)[rows]), columns)


def encode(letters: pd.DataFrame | Mapping[str, np.ndarray]) -> Encoded:
    """Distinct texts of each column of ``letters``; whole sequences are left out."""
    columns = {}
    for name in compared_columns(letters):
        of, texts = pd.factorize(np.asarray(letters[name], dtype=object))
        columns[name] = Column([str(text) for text in texts], of)
    n = len(next(iter(columns.values())).of) if columns else 0
    return Encoded(n, columns)


Fill = dict[str, np.ndarray]  # chain -> what each pattern of missing parts costs, float (2 ** parts,)


@dataclass(frozen=True)
class LoopDistance:
    """A distance between receptors over their loops and genes.

    cost: what residues cost one another. ``tcrdist``: 4 - BLOSUM62, at most 4, nothing for the same one (Dash et al.
        2017, doi:10.1038/nature22383). ``blosum``: (S(a,a) + S(b,b)) / 2 - S(a,b). ``hamming``: 1. ``edit``:
        Levenshtein's edits, each 1, wherever the gaps then lie.
    weights: of CDR1, CDR2, CDR3; a loop of weight 0 is left out.
    gaps: a residue against a gap in CDR1, CDR2, CDR3, which the weights do not multiply; None: 4, 4, 8 for ``tcrdist``
        and ``blosum``, for ``hamming`` the weights. ``edit`` has none.
    trim: whether the first three and the last two residues of the junction (its anchors among them, which are not in
        the letters) cost nothing, as in TCRdist.
    place: where the gap of a CDR3 lies: ``tcrdist``, after six residues of the junction or sooner (as TCRdist with a
        fixed gap), or in the ``centre``, as in CDR1 and CDR2.
    smaller: how much the smaller of two chains' distances weighs, the larger weighing the rest: 0.5 is their sum, 1
        twice the smaller alone ('one chain suffices').
    v_gene, j_gene: what another V or J gene costs, a chain.
    chains: which to compare; None: all that the letters have.
    chain_weights: a factor for each chain, in order of the columns (or of ``chains``); None: 1.

    Without trimming, ``edit`` and ``hamming`` of equal lengths count differences as they are.

    >>> letters = pd.DataFrame({"TRB_cdr3": ["ASSIRSSYEQY", "ASSIRSAYEQY", "ASSIRSYEQY"]})
    >>> LoopDistance().matrix(letters, letters)[0].tolist()
    [0.0, 9.0, 8.0]
    """

    cost: str = "tcrdist"
    weights: tuple[float, float, float] = (1.0, 1.0, 3.0)
    gaps: tuple[float, float, float] | None = None
    trim: bool = True
    place: str = "tcrdist"
    smaller: float = 0.5
    v_gene: float = 0.0
    j_gene: float = 0.0
    chains: tuple[str, ...] | None = None
    chain_weights: tuple[float, ...] | None = None

    def __post_init__(self):
        # lists, as a config has them, are taken as tuples: a distance is a key
        for name in ("weights", "gaps", "chains", "chain_weights"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.cost not in COSTS or self.place not in PLACES:
            raise ValueError(f"cost is one of {COSTS} and place one of {PLACES}, not {self.cost!r}, {self.place!r}")
        if len(self.weights) != 3 or (self.gaps is not None and len(self.gaps) != 3):
            raise ValueError("weights and gaps are those of CDR1, CDR2 and CDR3: three numbers")
        if not 0 <= self.smaller <= 1:
            raise ValueError(f"smaller is a share from 0 to 1, not {self.smaller!r}")

    def matrix(self, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
        """All distances, float32 (m, n); what is missing is filled by what is usual in ``right``. For small sets."""
        queries, references = encode(left), encode(right)
        fill = self.fill(references)
        blocks = [block.distances(fill) for _, (block,) in loop_blocks(queries, references, [self])]
        return np.concatenate(blocks) if blocks else np.empty((0, references.n), dtype=np.float32)

    def usual(self, references: Encoded) -> float:
        """The mean distance between receptors, of at most 7,140 pairs; 1 where all are the same."""
        rows = np.linspace(0, references.n - 1, min(_SAMPLE, references.n)).astype(int)
        sample = references.rows(rows)
        ((_, (block,)),) = loop_blocks(sample, sample, [self])
        pairs = np.triu_indices(len(rows), 1)
        distances = block.distances(self.fill(references))[pairs]
        return float(distances.mean(dtype=np.float64)) or 1.0 if len(distances) else 1.0

    def parts(self, columns: Mapping[str, object]) -> dict[str, list[_Part]]:
        """What is compared of each chain. Raises ``ValueError`` where there is nothing, or not the chain named."""
        present = chains_of(columns)
        chains = present if self.chains is None else list(self.chains)
        if lacking := [name for name in chains if name not in present]:
            raise ValueError(f"chain {lacking[0]} is not among those of the receptors: {', '.join(present) or 'none'}")
        factors = self.chain_weights or (1.0,) * len(chains)
        if len(factors) != len(chains):
            raise ValueError(f"chain_weights are {len(factors)}, but the chains are {', '.join(chains)}")
        found = {}
        for chain, factor in zip(chains, factors):
            loops = [self._loop(chain, i, factor) for i in range(3) if self.weights[i]]
            genes = [_Part(f"{chain}_{g}", "gene", factor * cost) for g, cost in zip("vj", (self.v_gene, self.j_gene))]
            found[chain] = [part for part in loops + genes if part.weight and part.column in columns]
        found = {chain: parts for chain, parts in found.items() if parts}
        if not found:
            raise ValueError(f"the receptors have nothing that {self} compares")
        return found

    def _loop(self, chain: str, i: int, factor: float) -> _Part:
        weight = factor * self.weights[i]
        gaps = self.gaps or ((4.0, 4.0, 8.0) if self.cost in ("tcrdist", "blosum") else self.weights)
        third = i == 2
        place = self.place if third else "centre"
        return _Part(f"{chain}_{LOOPS[i]}", self.cost, weight, factor * gaps[i], self.trim and third, place)

    def fill(self, references: Encoded, bandwidth: float | None = None) -> Fill:
        """What missing parts of a chain cost, by the pattern of what is missing (bit i: part i of ``parts``).

        The mean distance of different references that have all parts (of those that any has). With ``bandwidth`` the
        distance that stands for the density that a receptor usually has around it, the mean over receptors of -h log
        mean exp(-d / h): then a chain that one class lacks more often than another shifts nobody's ratio of densities.
        """
        found = {}
        for chain, parts in self.parts(references.columns).items():
            patterns = _patterns(parts, references)
            known = np.flatnonzero(patterns == np.bitwise_and.reduce(patterns))  # a part that all lack is not missed
            table = np.zeros(2 ** len(parts))
            if len(known) > 1:
                sample = references.rows(known[np.linspace(0, len(known) - 1, min(_SAMPLE, len(known))).astype(int)])
                costs = [_distances(part, sample, sample, {}, {}).astype(np.float64) for part in parts]
                for pattern in range(1, len(table)):
                    d = sum(cost for i, cost in enumerate(costs) if pattern >> i & 1)
                    table[pattern] = _usual(d, bandwidth)
            found[chain] = table
        return found


def _usual(distances: np.ndarray, bandwidth: float | None) -> float:
    """The mean distance (n, n) of a receptor from the others; with ``bandwidth`` that of its mean kernel."""
    n = len(distances)
    others = distances[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    if not bandwidth:
        return float(others.mean())
    least = others.min(axis=1, keepdims=True)
    return float((least[:, 0] - bandwidth * np.log(np.exp((least - others) / bandwidth).mean(axis=1))).mean())


@dataclass(frozen=True)
class _Part:
    """A loop or gene of a chain and what differences in it cost."""

    column: str
    cost: str
    weight: float
    gap: float = 0.0
    trim: bool = False
    place: str = "centre"


@dataclass
class LoopBlock:
    """Distances of some queries to all references: of each chain, float32 (m, n), over the parts that both have."""

    chains: dict[str, np.ndarray]
    missing: dict[str, tuple[np.ndarray, np.ndarray]]  # of chains of which anything is missing: patterns (m,), (n,)
    smaller: float
    _whole: np.ndarray | None = field(default=None, repr=False)

    def distances(self, fill: Fill) -> np.ndarray:
        """float32 (m, n), not to be written to; ``fill`` as ``LoopDistance.fill`` says."""
        if self._whole is not None:
            return self._whole
        found = []
        for chain, known in self.chains.items():
            if chain in self.missing:
                left, right = self.missing[chain]
                known = known + fill[chain].astype(np.float32)[left[:, None] | right]
            found.append(known)
        whole = found[0] if len(found) == 1 else _joined(found, self.smaller)
        if not self.missing:
            self._whole = whole
        return whole


def _joined(distances: list[np.ndarray], smaller: float) -> np.ndarray:
    total = np.add(distances[0], distances[1])
    for more in distances[2:]:
        total += more
    if smaller == 0.5:
        return total
    least = np.minimum.reduce(distances)
    least *= 4 * smaller - 2
    total *= 2 - 2 * smaller
    return np.add(total, least, out=total)  # 2 (s min + (1 - s) (total - min))


def loop_blocks(
    queries: Encoded, references: Encoded, metrics: Sequence[LoopDistance], at_once: int = AT_ONCE
) -> Iterator[tuple[slice, list[LoopBlock]]]:
    """Rows of queries and their block of each metric, ``at_once`` distances at a time; what metrics share is made once.

    Raises ``ValueError`` where the queries lack columns that the references have.
    """
    if lacking := [name for name in references.columns if name not in queries.columns]:
        raise ValueError(f"the letters lack the column {lacking[0]}")
    parts_of = [metric.parts(references.columns) for metric in metrics]
    step = max(1, at_once // max(1, references.n))
    right: dict = {}  # what is made of the references, for all blocks
    for start in range(0, queries.n, step):
        rows = slice(start, min(start + step, queries.n))
        some = queries.rows(rows)
        left: dict = {}  # and of these queries, for all metrics
        yield rows, [_block(metric, parts, some, references, left, right) for metric, parts in zip(metrics, parts_of)]


def _block(metric, parts_of: dict[str, list[_Part]], queries, references, left: dict, right: dict) -> LoopBlock:
    chains, missing = {}, {}
    for chain, parts in parts_of.items():
        key = tuple(parts)
        if key not in left:
            left[key] = _summed([_distances(part, queries, references, left, right) for part in parts])
        if key not in right:
            right[key] = _patterns(parts, references)
        patterns = _patterns(parts, queries), right[key]
        if any(pattern.any() for pattern in patterns):
            missing[chain] = patterns
        chains[chain] = left[key]
    return LoopBlock(chains, missing, metric.smaller)


def _summed(tables: list[np.ndarray]) -> np.ndarray:
    total = tables[0] if len(tables) == 1 else tables[0] + tables[1]
    for table in tables[2:]:
        total += table
    return total


def _patterns(parts: list[_Part], encoded: Encoded) -> np.ndarray:
    """Which parts each receptor lacks, int (n,): bit i for part i."""
    found = np.zeros(encoded.n, dtype=np.int64)
    for i, part in enumerate(parts):
        column = encoded.columns[part.column]
        found |= np.array([not text for text in column.texts], dtype=np.int64)[column.of] << i
    return found


def _distances(part: _Part, queries: Encoded, references: Encoded, left: dict, right: dict) -> np.ndarray:
    """Of one part, float32 (m, n), not to be written to; 0 where either lacks it."""
    if part not in left:
        q, r = queries.columns[part.column], references.columns[part.column]
        if part.cost == "gene":
            table = part.weight * (np.array(q.texts)[:, None] != np.array(r.texts)).astype(np.float32)
        elif part.cost == "edit":
            table = np.float32(part.weight) * cdist(q.texts, r.texts, scorer=Levenshtein.distance, dtype=np.int32)
            table = table.astype(np.float32)
        else:
            if part not in right:
                right[part] = _grid_of(part, r.texts)
            table = right[part].distances(q.texts)
        table[[not text for text in q.texts]] = 0
        table[:, [not text for text in r.texts]] = 0
        left[part] = _take(_take(table, r.of, 1), q.of, 0)
    return left[part]


def _take(table: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    n = table.shape[axis]
    same = len(positions) == n and np.array_equal(positions, np.arange(n))
    return table if same else table.take(positions, axis=axis)


@dataclass(frozen=True)
class _Grid:
    """Loops on a grid of P places, ready to be multiplied: C one-hot columns, and at each place a residue without one.

    The codes of a place add up to 1, so its most frequent residue needs no column: the others cost more or less.
    """

    part: _Part
    codes: np.ndarray  # uint8 (n, P)
    costs: np.ndarray  # float32 (P, 22, 22)
    usual: np.ndarray  # (P,) the residue without a column
    places: np.ndarray  # (C,) of each column
    residues: np.ndarray  # (C,)

    def distances(self, texts: list[str]) -> np.ndarray:
        """float32 (m, n) from each of m ``texts``."""
        codes = _placed(texts, self.part.place)
        everywhere = np.arange(codes.shape[1])
        usual = self.costs[everywhere, codes, self.usual]  # (m, P)
        table = np.empty((len(texts), len(self.codes)), dtype=np.float32)
        table[:] = usual.sum(axis=1)[:, None]
        more = self.costs[self.places, codes[:, self.places], self.residues] - usual[:, self.places]  # (m, C)
        for start in range(0, len(self.codes), _COLUMNS):
            some = slice(start, start + _COLUMNS)
            one_hot = (self.codes[some, self.places] == self.residues).astype(np.float32)  # (columns, C)
            table[:, some] += more @ one_hot.T
        return table


def _grid_of(part: _Part, texts: list[str]) -> _Grid:
    codes = _placed(texts, part.place)
    counts = np.stack([np.bincount(place, minlength=22) for place in codes.T])  # (P, 22)
    usual = counts.argmax(axis=1)
    counts[np.arange(len(usual)), usual] = 0
    places, residues = np.nonzero(counts)
    costs = np.repeat(_costs(part.cost, part.weight, part.gap)[None], len(usual), axis=0)
    if part.trim:
        # CAS.......F of the junction, of which the letters have neither C nor F; gaps are counted all the same
        costs[[0, 1, -1], :_GAP, :_GAP] = 0
    return _Grid(part, codes, costs, usual, places, residues.astype(np.uint8))


def _placed(texts: list[str], place: str) -> np.ndarray:
    """Codes of loops on the grid, uint8 (n, P)."""
    rows = []
    for text in texts:
        if len(text) > _LONGEST:
            text = text[: _LONGEST // 2] + text[-_LONGEST // 2 :]
        n = len(text)
        left = (n + 1) // 2
        if place == "tcrdist":  # of a junction of L residues the first min(6, 3 + (L - 5) // 2)
            left = max(0, min(n, 5, 2 + (n - 3) // 2))
        rows.append(text[:left] + "-" * (_LONGEST - n) + text[left:])
    letters = np.frombuffer("".join(rows).encode("ascii", "replace"), dtype=np.uint8)
    return _CODES[letters].reshape(len(texts), _LONGEST)


def _costs(cost: str, weight: float, gap: float) -> np.ndarray:
    """What residues, X and a gap cost each other, float32 (22, 22). X costs what two residues do on average."""
    scores = _blosum62()
    substitutions = {
        "hamming": np.ones((20, 20)),
        "tcrdist": np.minimum(4, 4 - scores),
        "blosum": (np.diag(scores)[:, None] + np.diag(scores)) / 2 - scores,
    }[cost]
    np.fill_diagonal(substitutions, 0)
    table = np.full((22, 22), weight * substitutions.sum() / 380)
    table[:20, :20] = weight * substitutions
    table[_GAP], table[:, _GAP] = gap, gap
    table[_GAP, _GAP] = 0
    return table.astype(np.float32)


@lru_cache(maxsize=1)
def _blosum62() -> np.ndarray:
    from Bio.Align import substitution_matrices

    matrix = substitution_matrices.load("BLOSUM62")
    return np.array([[matrix[a, b] for b in _RESIDUES] for a in _RESIDUES], dtype=np.float64)
