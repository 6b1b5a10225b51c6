"""Letters of receptors -> numbers, and a small convolutional network over them.

Letters are a table with one row a receptor and columns ``<chain>_cdr1`` .. ``<chain>_cdr3``,
``<chain>_v``, ``<chain>_j`` and ``<chain>_sequence``, all text, "" where a part is missing. A loop is laid into a
window as wide as the longest of training, its two halves at the two ends and the gap in the middle, so that both ends
line up over all lengths. Loops of one length, as in a deep mutational scan, are thereby compared position by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.networks import AveragedNetworks
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.errors import UserError
from airrformer.receptors.loops import LOOPS, chains_of, compared_columns

REGIONS = (*LOOPS, "sequence")
GENES = ("v", "j")
ENCODINGS = ("onehot", "pairs", "blosum", "physchem", "codes")
MISSING = ("drawn", "mean")  # what stands in for a missing part

# What a place of a window may hold: no residue, one of the twenty, or a letter that is none of them.
GAP, UNKNOWN = 0, 21
_LETTERS = "-" + AMINO_ACIDS
_CODE_OF = np.full(256, UNKNOWN, dtype=np.uint8)
for _code, _letter in enumerate(AMINO_ACIDS, start=1):
    _CODE_OF[[ord(_letter), ord(_letter.lower())]] = _code

# Hydropathy (Kyte and Doolittle 1982), volume in cubic angstrom (Zamyatnin 1972), charge at pH 7.4, aromatic ring.
PROPERTIES = ("hydropathy", "volume", "charge", "aromatic")
_PROPERTIES_OF = {
    "A": (1.8, 88.6, 0, 0), "C": (2.5, 108.5, 0, 0), "D": (-3.5, 111.1, -1, 0), "E": (-3.5, 138.4, -1, 0),
    "F": (2.8, 189.9, 0, 1), "G": (-0.4, 60.1, 0, 0), "H": (-3.2, 153.2, 0.1, 0), "I": (4.5, 166.7, 0, 0),
    "K": (-3.9, 168.6, 1, 0), "L": (3.8, 166.7, 0, 0), "M": (1.9, 162.9, 0, 0), "N": (-3.5, 114.1, 0, 0),
    "P": (-1.6, 112.7, 0, 0), "Q": (-3.5, 143.8, 0, 0), "R": (-4.5, 173.4, 1, 0), "S": (-0.8, 89.0, 0, 0),
    "T": (-0.7, 116.1, 0, 0), "V": (4.2, 140.0, 0, 0), "W": (-0.9, 227.8, 0, 1), "Y": (-1.3, 193.6, 0, 1),
}  # fmt: skip


def place(loops: Sequence[str], width: int) -> np.ndarray:
    """Codes of ``loops`` in windows: uint8 (n, width); 0 no residue, 1..20 ``AMINO_ACIDS``, 21 another letter.

    The first half of a loop (the larger one) begins at the left end, the second half stops at the right end. Of a loop
    longer than the window the middle is left out.

    >>> place(["CASF", "CF"], 6).tolist()
    [[2, 1, 0, 0, 16, 5], [2, 0, 0, 0, 0, 5]]
    """
    codes = np.zeros((len(loops), width), dtype=np.uint8)
    for row, loop in enumerate(loops):
        letters = _codes(loop)
        right = min(len(letters), width) // 2
        left = min(len(letters), width) - right
        codes[row, :left] = letters[:left]
        codes[row, width - right :] = letters[len(letters) - right :]
    return codes


def _chains(letters: pd.DataFrame, chosen: Sequence[str] | None = None) -> list[str]:
    """Those chosen, or all that a table of letters has. Raises ``UserError`` for anything else."""
    if not isinstance(letters, pd.DataFrame):
        raise UserError(f"a table of letters was expected, not {type(letters).__name__}; see receptor_letters")
    return chains_of(letters) if chosen is None else list(chosen)


def _regions_of(letters: pd.DataFrame) -> list[str]:
    return [region for region in REGIONS if any(str(name).endswith(f"_{region}") for name in letters)]


def _codes(loop: str) -> np.ndarray:
    return _CODE_OF[np.frombuffer(loop.encode("ascii", "replace"), dtype=np.uint8)]


def _columns(letters: pd.DataFrame, names: Sequence[str]) -> list[list[str]]:
    """The columns called ``names``, each a list of str. Raises ``UserError`` for one that is not there."""
    for name in names:
        if name not in letters.columns:
            raise UserError(f"the letters have no column {name}; they have {', '.join(map(str, letters.columns))}")
    return [letters[name].astype(str).tolist() for name in names]


def _check_choice(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    wrong = [name for name in given if name not in known]
    if wrong or not given:
        raise UserError(f"{what} {', '.join(map(repr, wrong)) or 'of no name'}: use some of {', '.join(known)}")


# --------------------------------------------------------------------------------------------------- what is missing

_MOST_DONORS = 1000
Donors = list[tuple[list[str], np.ndarray]]  # parts of one chain, and those of training receptors, str (n, parts)


def find_donors(letters: pd.DataFrame, chains: Sequence[str], parts: Sequence[str]) -> Donors:
    """Of whom ``fill_missing`` takes what others lack. ``parts``: names of columns, ``<chain>_<part>``.

    The parts of one chain come from one donor, so that they belong together, where some receptor has them all. What no
    receptor has stays missing. At most 1,000 donors a chain, the same whatever the order of the rows.
    """
    found: Donors = []
    for chain in chains:
        own = [part for part in parts if part.rsplit("_", 1)[0] == chain]
        known = [part for part, texts in zip(own, _columns(letters, own)) if any(texts)]
        for group in [known] if _whole_rows(letters, known) else [[part] for part in known]:
            rows = sorted(set(_whole_rows(letters, group)), key=_hash)[:_MOST_DONORS]
            found.append((group, np.array(rows, dtype=str)))
    return found


def _whole_rows(letters: pd.DataFrame, parts: list[str]) -> list[tuple[str, ...]]:
    return [row for row in zip(*_columns(letters, parts)) if all(row)]


def fill_missing(letters: pd.DataFrame, parts: Sequence[str], donors: Donors) -> pd.DataFrame:
    """The columns ``parts`` of ``letters``; what is missing there is a donor's, drawn by a hash of the own letters.

    A mean, or a row of zeros, tells a tree, a kernel or a network who lacks a chain, and with that the class that lacks
    it more often. Drawn parts look like any other's, are the same on every run, and do not hang on the rows beside.
    """
    columns = dict(zip(parts, _columns(letters, parts)))
    own = {row: texts for row, texts in enumerate(zip(*columns.values())) if not all(texts)}
    for group, drawn in donors:
        for row, texts in own.items():
            if not all(columns[part][row] for part in group):
                donor = drawn[int.from_bytes(_hash((group[0], *texts)), "big") % len(drawn)]
                for part, text in zip(group, donor):
                    columns[part][row] = columns[part][row] or str(text)
    return pd.DataFrame(columns, dtype=object)


def _hash(texts: Sequence[str]) -> bytes:
    return blake2b("\x1f".join(texts).encode(), digest_size=8).digest()


@cache
def _table(encoding: str) -> np.ndarray:
    """The numbers of each code, float64 (22, E)."""
    table = np.zeros((22, {"blosum": 20, "physchem": len(PROPERTIES), "codes": 1}[encoding]))
    if encoding == "codes":
        table[:, 0] = np.arange(22)
    elif encoding == "blosum":
        from Bio.Align import substitution_matrices

        matrix = substitution_matrices.load("BLOSUM62")
        table[1:21] = [[matrix[row][column] for column in AMINO_ACIDS] for row in AMINO_ACIDS]
    else:
        values = np.array([_PROPERTIES_OF[letter] for letter in AMINO_ACIDS])
        table[1:21] = (values - values.mean(axis=0)) / values.std(axis=0)
    return table


class _Letters(TransformerMixin, BaseEstimator):
    """What transformers of letters share: blocks of columns side by side, and what becomes of a missing part.

    A subclass gives ``_blocks(X)``: for each part of a receptor its numbers (sparse or dense), the rows that have
    the part, and the names of the columns. Only columns that vary in training are kept. What a receptor lacks says as
    little as it can: ``missing="drawn"`` takes it from a training receptor (``fill_missing``), ``missing="mean"`` takes
    the mean of training (of ``codes`` the most frequent), which is better for linear models, and for these alone: all
    others tell who has it.
    """

    def fit(self, X: pd.DataFrame, y=None):
        """Learn chains, widths, genes, and which columns vary. Raises ``UserError`` when none does."""
        self._learn(X)
        self.n_features_in_ = X.shape[1]
        _check_choice("missing", [self.missing], MISSING)
        self.donors_ = find_donors(X, self.chains_, self._needed()) if self.missing == "drawn" else []
        X = fill_missing(X, self._needed(), self.donors_)
        fills, kept = [], []
        for block, present, _ in self._blocks(X):
            values = block[present] if present.any() else block[:0]
            fills.append(self._typical(values))
            kept.append(_varies(values))
        self.fill_ = np.concatenate(fills)
        self.kept_ = np.flatnonzero(np.concatenate(kept))
        if len(self.kept_) == 0:
            raise UserError(
                f"no residue of {', '.join(self.chains_)} differs between the receptors: nothing to learn from"
            )
        return self

    def transform(self, X: pd.DataFrame):
        """float64 (n, D), sparse for ``onehot`` and ``pairs``. What training did not know (genes, letters) is 0."""
        check_is_fitted(self, "kept_")
        X = fill_missing(X, self._needed(), self.donors_)
        blocks, start = [], 0
        for block, present, _ in self._blocks(X):
            fill = self.fill_[start : start + block.shape[1]]
            start += block.shape[1]
            if sparse.issparse(block):
                lacking = sparse.csr_array(~present[:, None] * 1.0)
                blocks.append(block + lacking @ sparse.csr_array(fill[None, :]))
            else:
                blocks.append(np.where(present[:, None], block, fill))
        if any(sparse.issparse(block) for block in blocks):
            matrix = sparse.csr_array(sparse.hstack(blocks, format="csr")[:, self.kept_])
            matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
            return matrix
        return np.hstack(blocks)[:, self.kept_]

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the columns, such as ``heavy_cdr3_4=W`` (place 4 of the window, from 1) or ``heavy_v=IGHV1-2``."""
        check_is_fitted(self, "kept_")
        empty = pd.DataFrame(columns=self._needed(), dtype=str)
        names = [name for _, _, columns in self._blocks(empty) for name in columns]
        return np.array(names, dtype=object)[self.kept_]

    def _learn(self, X: pd.DataFrame) -> None:
        self.chains_ = _chains(X, self.chains)
        _check_choice("regions", list(self.regions), REGIONS)
        if not self.chains_:
            raise UserError("the letters have no chain: columns such as TRB_cdr3 were expected")

    def _parts(self) -> list[str]:
        return [f"{chain}_{region}" for chain in self.chains_ for region in self.regions]

    def _needed(self) -> list[str]:
        return self._parts()

    def _typical(self, values) -> np.ndarray:
        """(E,) of the rows that have a part; zeros where none has."""
        return np.asarray(values.mean(axis=0)).ravel() if values.shape[0] else np.zeros(values.shape[1])


def _varies(values) -> np.ndarray:
    """bool (E,): whether a column holds more than one value."""
    if values.shape[0] == 0:
        return np.zeros(values.shape[1], dtype=bool)
    if sparse.issparse(values):  # of ones
        count = np.bincount(values.indices, minlength=values.shape[1])
        return (count > 0) & (count < values.shape[0])
    return values.min(axis=0) < values.max(axis=0)


class LettersOneHot(_Letters):
    """Residues, place by place, as numbers.

    Parameters
    ----------
    chains: names of the chains, by default all of the table that it is fitted on.
    regions: some of cdr1, cdr2, cdr3, sequence (the V domain).
    encoding: ``onehot`` (sparse; a letter or no letter at a place), ``pairs`` (the same and all pairs of neighbours),
        ``blosum`` (the residue's row of BLOSUM62), ``physchem`` (four properties, standardised), ``codes`` (one column
        a place, 0 to 21, for models that take categories).
    genes: whether V and J genes are features too, one-hot (not with ``codes``).
    missing: ``drawn`` or, for linear models, ``mean``: what stands in for a part that a receptor lacks.

    ``fit`` takes letters; ``transform`` returns float64 (n, D), ``scipy.sparse.csr_array`` for the sparse encodings.
    Loops longer than any of training lose their middle; unknown genes and letters are zeros. Raises ``UserError`` for
    a column that is not there and for letters that do not differ at all.

    >>> letters = pd.DataFrame({"TRB_cdr3": ["ASSF", "ASF", "ATSF"], "TRB_v": ["TRBV19", "TRBV19", "TRBV7-9"]})
    >>> encoder = LettersOneHot(regions=["cdr3"]).fit(letters)
    >>> encoder.get_feature_names_out().tolist()
    ['TRB_cdr3_2=S', 'TRB_cdr3_2=T', 'TRB_cdr3_3=-', 'TRB_cdr3_3=S']
    >>> encoder.transform(letters).toarray().tolist()
    [[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
    """

    def __init__(self, chains=None, regions=LOOPS, encoding="onehot", genes=False, missing="drawn"):
        self.chains = chains
        self.regions = regions
        self.encoding = encoding
        self.genes = genes
        self.missing = missing

    def _learn(self, X: pd.DataFrame) -> None:
        super()._learn(X)
        _check_choice("encoding", [self.encoding], ENCODINGS)
        if self.genes and self.encoding == "codes":
            raise UserError("encoding codes has no numbers for genes; use genes: false, or encoding onehot")
        self.widths_ = [max(map(len, loops), default=0) for loops in _columns(X, self._parts())]
        self.genes_ = [sorted(set(names) - {""}) for names in _columns(X, self._gene_columns())]

    def _gene_columns(self) -> list[str]:
        return [f"{chain}_{gene}" for chain in self.chains_ for gene in GENES] if self.genes else []

    def _needed(self) -> list[str]:
        return self._parts() + self._gene_columns()

    def _blocks(self, X: pd.DataFrame):
        for part, width, loops in zip(self._parts(), self.widths_, _columns(X, self._parts())):
            present = np.array([loop != "" for loop in loops], dtype=bool)
            codes = place(loops, width)
            codes[~present] = UNKNOWN
            yield self._encode(codes), present, self._names(part, width)
        for part, known, names in zip(self._gene_columns(), self.genes_, _columns(X, self._gene_columns())):
            present = np.array([name != "" for name in names], dtype=bool)
            column_of = {name: column for column, name in enumerate(known)}
            columns = np.array([column_of.get(name, -1) for name in names], dtype=int)
            block = _indicators(columns[:, None], len(known))
            dense = self.encoding not in ("onehot", "pairs")
            yield block.toarray() if dense else block, present, [f"{part}={name}" for name in known]

    def _encode(self, codes: np.ndarray):
        """Codes (n, W) -> (n, W * E), place by place."""
        n, width = codes.shape
        if self.encoding in ("onehot", "pairs"):
            columns = np.where(codes == UNKNOWN, -1, np.arange(width) * 21 + codes)
            if self.encoding == "onehot":
                return _indicators(columns, width * 21)
            left, right = codes[:, :-1].astype(int), codes[:, 1:].astype(int)
            known = (left % UNKNOWN > 0) & (right % UNKNOWN > 0)
            pairs = np.where(known, np.arange(max(width - 1, 0)) * 400 + (left - 1) * 20 + right - 1, -1)
            pairs[known] += width * 21
            return _indicators(np.hstack([columns, pairs]), width * 21 + max(width - 1, 0) * 400)
        table = _table(self.encoding)
        return table[codes].reshape(n, width * table.shape[1])

    def _names(self, part: str, width: int) -> list[str]:
        places = range(1, width + 1)
        if self.encoding == "codes":
            return [f"{part}_{i}" for i in places]
        if self.encoding in ("blosum", "physchem"):
            columns = PROPERTIES if self.encoding == "physchem" else AMINO_ACIDS
            return [f"{part}_{i}_{column}" for i in places for column in columns]
        names = [f"{part}_{i}={letter}" for i in places for letter in _LETTERS]
        if self.encoding == "pairs":
            names += [f"{part}_{i}={a}{b}" for i in places[:-1] for a in AMINO_ACIDS for b in AMINO_ACIDS]
        return names

    def _typical(self, values) -> np.ndarray:
        if self.encoding != "codes" or values.shape[0] == 0:
            return super()._typical(values)
        return np.array([np.bincount(column, minlength=22).argmax() for column in values.T.astype(int)], dtype=float)


def _indicators(columns: np.ndarray, width: int) -> sparse.csr_array:
    """Ones at ``columns`` (n, k), of which -1 is none: float64 (n, width)."""
    there = columns >= 0
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return sparse.csr_array((np.ones(ends[-1]), columns[there], ends), shape=(len(columns), width))


class PhysChem(_Letters):
    """What a loop is made of, whatever the order: the physico-chemical baseline.

    For each chain and region: length, net charge, number of aromatic residues, mean hydropathy, mean volume, the
    highest mean hydropathy and charge of any five residues in a row, and the count of each of the twenty. For the whole
    receptor: the first four over all loops, the square of their charge, and the charge of all V domains and the product
    of their charges, which are what solubility and self-association hang on (Sharma et al. 2014, PNAS 111:18601).
    float64 (n, D); only columns that vary in training. ``missing`` as in ``LettersOneHot``.
    """

    def __init__(self, chains=None, regions=LOOPS, missing="drawn"):
        self.chains = chains
        self.regions = regions
        self.missing = missing

    def _blocks(self, X: pd.DataFrame):
        found = {}
        for part, loops in zip(self._parts(), _columns(X, self._parts())):
            present = np.array([loop != "" for loop in loops], dtype=bool)
            distinct, where = np.unique(np.array(loops, dtype=object).astype(str), return_inverse=True)
            values = np.array([_composition(loop) for loop in distinct]).reshape(-1, len(_COMPOSITION))[where]
            found[part] = values, present
            yield values, present, [f"{part}_{name}" for name in _COMPOSITION]
        if loops := [value for part, value in found.items() if not part.endswith("_sequence")]:
            present = np.all([there for _, there in loops], axis=0)
            length, charge, aromatic = np.sum([values[:, :3] for values, _ in loops], axis=0).T
            hydropathy = np.mean([values[:, 3] for values, _ in loops], axis=0)
            names = ("length", "charge", "aromatic", "mean_hydropathy", "charge_squared")
            block = np.stack([length, charge, aromatic, hydropathy, charge**2], axis=1)
            yield block, present, [f"loops_{name}" for name in names]
        if domains := [value for part, value in found.items() if part.endswith("_sequence")]:
            present = np.all([there for _, there in domains], axis=0)
            charges = np.stack([values[:, 1] for values, _ in domains], axis=1)
            block = np.stack([charges.sum(axis=1), charges.prod(axis=1)], axis=1)
            yield block, present, ["domains_charge", "domains_charge_product"]


_COMPOSITION = (
    "length", "charge", "aromatic", "mean_hydropathy", "mean_volume", "hydropathy_peak", "charge_peak", *AMINO_ACIDS,
)  # fmt: skip


def _composition(loop: str) -> np.ndarray:
    """The numbers of ``_COMPOSITION`` of one loop; letters other than the twenty count for its length alone."""
    codes = _codes(loop)
    known = codes[codes < UNKNOWN]
    counts = np.bincount(known, minlength=UNKNOWN)[1:UNKNOWN]
    values = np.array([_PROPERTIES_OF[AMINO_ACIDS[code - 1]] for code in known]).reshape(-1, len(PROPERTIES))
    total, size = values.sum(axis=0), max(len(known), 1)
    window = min(5, size)
    runs = np.cumsum(np.vstack([np.zeros(len(PROPERTIES)), values]), axis=0)
    peaks = (runs[window:] - runs[:-window]).max(axis=0) / window if len(known) else np.zeros(len(PROPERTIES))
    return np.concatenate(
        [[len(loop), total[2], total[3], total[0] / size, total[1] / size, peaks[0], peaks[2]], counts]
    )


# ------------------------------------------------------------------------------------------------ the network


class LettersOf(TransformerMixin, BaseEstimator):
    """Of a table of letters the columns of some regions, as text: what a model that reads residues itself may see."""

    def __init__(self, regions=LOOPS):
        self.regions = regions

    def fit(self, X: pd.DataFrame, y=None) -> LettersOf:
        """Learn which columns these are. Raises ``UserError`` for a region that is not there."""
        _check_choice("regions", list(self.regions), REGIONS)
        self.columns_ = [f"{chain}_{region}" for chain in _chains(X) for region in self.regions]
        _columns(X, self.columns_)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        check_is_fitted(self, "columns_")
        return pd.DataFrame(dict(zip(self.columns_, _columns(X, self.columns_))), dtype=object)


class Completed(TransformerMixin, BaseEstimator):
    """Letters in which what a receptor lacks is taken from a training receptor (``fill_missing``).

    For kernels of distances: between receptors that lack the same chain all distances would be made of fewer parts.
    """

    def fit(self, X: pd.DataFrame, y=None) -> Completed:
        self.columns_ = compared_columns(X)
        self.donors_ = find_donors(X, _chains(X), self.columns_)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        check_is_fitted(self, "columns_")
        return fill_missing(X, self.columns_, self.donors_)


class ResidueCNN(AveragedNetworks):
    """Convolutions over the residues of the loops, laid side by side, then one hidden layer; averaged over networks.

    Parameters
    ----------
    chains, regions: what is read, as in ``LettersOneHot`` (regions ``None``: all that the letters have). What a
        receptor lacks is drawn from training.
    channels, kernel, layers: of the convolutions; with ``layers=0`` the hidden layer sees every residue at its place.
    hidden: width of the layer after them. dropout: after each. input_dropout: share of the residues that a network
        does not see in a step of its training.
    learning_rate, weight_decay, batch_size: of AdamW; the rate falls to a tenth along a cosine over ``max_epochs``.
    max_epochs, patience: training stops when the log loss on the rows held out has not improved for ``patience``
        epochs; the weights of the best epoch are kept.
    validation: share of the rows (of the groups, if ``fit`` is told groups) that each network holds out.
    n_models: networks, each with its own first weights and its own rows held out; their log-odds are averaged.

    ``fit(X, Y, groups=None)``: letters and either Y int8 (n, K) of 1, 0 and -1 (unknown: left out of the loss), or y
    (n,) of two labels. ``predict_proba``: float64 (m, K), or (m, 2). The same on every run with one ``random_state``.
    """

    def __init__(
        self,
        chains=None,
        regions=LOOPS,
        channels=64,
        kernel=3,
        layers=2,
        hidden=64,
        dropout=0.3,
        input_dropout=0.0,
        learning_rate=2e-3,
        weight_decay=1e-2,
        batch_size=128,
        max_epochs=40,
        patience=6,
        validation=0.1,
        n_models=1,
        random_state=0,
    ):
        self.chains = chains
        self.regions = regions
        self.channels = channels
        self.kernel = kernel
        self.layers = layers
        self.hidden = hidden
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation = validation
        self.n_models = n_models
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, Y, groups=None) -> ResidueCNN:
        """Train on all rows but those held out for stopping. Raises ``UserError`` for a class with one label."""
        self.chains_ = _chains(X, self.chains)
        self.regions_ = _regions_of(X) if self.regions is None else list(self.regions)
        _check_choice("regions", self.regions_, REGIONS)
        Y = self._learn_labels(Y, len(X), groups)
        self.widths_ = [max(map(len, loops), default=0) for loops in _columns(X, self._parts())]
        self.n_features_in_ = X.shape[1]
        self.donors_ = find_donors(X, self.chains_, self._parts())
        codes = self._codes(X)
        groups = np.arange(len(X)) if groups is None else groups
        return self._fit_networks(groups, lambda held, seed: _train(self, codes, Y, held, seed))

    def _logits(self, X: pd.DataFrame) -> np.ndarray:
        check_is_fitted(self, "weights_")
        codes = self._codes(X)
        return np.mean([_predict(self, weights, codes) for weights in self.weights_], axis=0)

    def _parts(self) -> list[str]:
        return [f"{chain}_{region}" for chain in self.chains_ for region in self.regions_]

    def _codes(self, X: pd.DataFrame) -> np.ndarray:
        """All windows side by side, uint8 (n, L), with room between them so that no filter sees two loops."""
        between = np.zeros((len(X), self.kernel - 1 if self.layers else 0), dtype=np.uint8)
        windows = []
        filled = fill_missing(X, self._parts(), self.donors_)
        for loops, width in zip(_columns(filled, self._parts()), self.widths_):
            codes = place(loops, width)
            codes[np.array([loop == "" for loop in loops], dtype=bool)] = UNKNOWN
            windows += [codes, between]
        return np.hstack(windows)


def _network(settings: ResidueCNN, length: int, outputs: int):
    from torch import nn

    blocks, width = [nn.Dropout(settings.input_dropout)], UNKNOWN
    for _ in range(settings.layers):
        blocks += [nn.Conv1d(width, settings.channels, settings.kernel, padding="same"), nn.ReLU()]
        blocks += [nn.Dropout(settings.dropout)]
        width = settings.channels
    head = [nn.Linear(width * length, settings.hidden), nn.ReLU(), nn.Dropout(settings.dropout)]
    return nn.Sequential(*blocks, nn.Flatten(), *head, nn.Linear(settings.hidden, outputs))


def _one_hot(codes):
    """uint8 (B, L) -> float32 (B, 21, L); letters that are no residue are zeros."""
    import torch

    return torch.cat([torch.eye(UNKNOWN), torch.zeros(1, UNKNOWN)])[codes.long()].transpose(1, 2)


def _train(settings: ResidueCNN, codes: np.ndarray, Y: np.ndarray, held: np.ndarray, seed: int):
    """Weights of the best epoch (name -> float32 array) and its number."""
    import torch

    from airrformer.classify.training import train

    inputs = torch.from_numpy(codes)
    network, epoch = train(
        lambda: _network(settings, codes.shape[1], Y.shape[1]),
        lambda network: [{"params": list(network.parameters()), "lr": settings.learning_rate}],
        lambda rows: _one_hot(inputs[rows]),
        Y,
        held,
        batch_size=settings.batch_size,
        weight_decay=settings.weight_decay,
        max_epochs=settings.max_epochs,
        patience=settings.patience,
        seed=seed,
    )
    return {name: value.numpy() for name, value in network.state_dict().items()}, epoch


def _predict(settings: ResidueCNN, weights: dict[str, np.ndarray], codes: np.ndarray) -> np.ndarray:
    """Log-odds of one network, float64 (m, K)."""
    import torch

    outputs = [value for name, value in weights.items() if name.endswith("bias")][-1].shape[0]
    network = _network(settings, codes.shape[1], outputs)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    network.eval()
    with torch.inference_mode():
        parts = [network(_one_hot(rows)) for rows in torch.from_numpy(codes).split(4096)]
        return torch.cat(parts).numpy().astype(np.float64) if parts else np.empty((0, outputs))
