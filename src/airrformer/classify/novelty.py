"""How like the training receptors a new one is: its nearest of them, and a warning where it is unlike them all.

A classifier answers anything. Its scores were measured on receptors like those it learned from; of others nothing is
known. Nearness is counted in edits over CDR1 to CDR3 of all chains, as far as both receptors have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from airrformer.parse.chains import TAKEN_FOR_GRANTED
from airrformer.receptors.loops import LOOPS, LoopDistance, chains_of, compared_columns, encode, loop_blocks

NEAREST = 3  # training receptors named beside each prediction
USUAL = 0.99  # of the training receptors have another one within this distance, or a CDR3 of this range of lengths
_MOSTLY = 0.5  # a part that more training receptors have is missed where it is not known
_RARE = 0.01  # of the training receptors are of a species or a locus: it is one of theirs
_SAMPLE = 2000  # training receptors looked at to know what is usual
_EDITS = LoopDistance(cost="edit", weights=(1.0, 1.0, 1.0), trim=False)


@dataclass(frozen=True)
class Kinds:
    """Of which kinds receptors are: ``species``, and the ``loci`` of each chain; empty where it is not known.

    granted: chains of which nothing says what they are more often than not.
    """

    species: list[str] = field(default_factory=list)
    loci: dict[str, list[str]] = field(default_factory=dict)
    granted: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, chains: pd.DataFrame, species: Mapping[str, int]) -> Kinds:
        """Those of which there are not just a few: of a table of chains, and how many of them are of a species."""
        loci = {name: rows["locus"].value_counts() for name, rows in chains.groupby("chain", sort=True)}
        known = {name: _frequent(counts) for name, counts in loci.items() if len(counts)}
        granted = taken_for_granted(chains).groupby(chains["chain"]).mean()
        return cls(_frequent(species), known, sorted(granted.index[granted > _MOSTLY]))


def taken_for_granted(chains: pd.DataFrame) -> pd.Series:
    """Which chains of a table are what they are said to be only because the dataset has no other kind."""
    notes = chains["note"].astype("string").fillna("")
    return notes.str.contains(TAKEN_FOR_GRANTED, regex=False).astype(bool)


def _frequent(counts: Mapping[str, int] | pd.Series) -> list[str]:
    total = sum(dict(counts).values())
    return sorted(name for name, count in dict(counts).items() if count >= _RARE * total)


@dataclass(frozen=True)
class Training:
    """What is kept of the training receptors: ids, labels as text, letters, and how near they are to one another."""

    ids: list[str]
    labels: list[str]
    letters: pd.DataFrame
    usual: float
    kinds: Kinds = field(default_factory=Kinds)

    @classmethod
    def of(cls, ids: list[str], labels: list[str], letters: pd.DataFrame, kinds: Kinds | None = None) -> Training:
        letters = letters[compared_columns(letters)].reset_index(drop=True)
        rows = np.linspace(0, len(ids) - 1, min(_SAMPLE, len(ids))).astype(int)
        distances = [far[0] for far in _nearest(letters.iloc[rows], letters, 1, rows)[1] if len(far)]
        usual = float(np.quantile(distances, USUAL)) if distances else 0.0
        return cls(ids, labels, letters, usual, kinds or Kinds())

    def table(self) -> pd.DataFrame:
        """As it is saved, and read by ``from_table``."""
        return pd.DataFrame({"receptor_id": self.ids, "labels": self.labels}).join(self.letters)

    @classmethod
    def from_table(cls, table: pd.DataFrame, usual: float, kinds: Kinds) -> Training:
        letters = table.drop(columns=["receptor_id", "labels"])
        return cls(table["receptor_id"].tolist(), table["labels"].tolist(), letters, usual, kinds)


def nearest_training(
    receptor_ids: list[str], letters: pd.DataFrame, training: Training, chains: pd.DataFrame | None = None
) -> pd.DataFrame:
    """A row for each new receptor and each of its nearest training receptors, nearest first.

    Columns: receptor_id, rank (from 1), training_receptor, labels, edits (over the CDRs that both have), compared
    (which those are, such as ``TRA CDR1,2,3 TRB CDR3``), warning (why the receptor is unlike the training ones, ""
    where it is not). A receptor without any CDR has one row, without a neighbour. In the order of the ranks a CDR that
    one of the two lacks counts as many edits as it usually has.

    Args:
        chains: of the new receptors, a row each: receptor_id, chain, locus, species (None: nothing tells), conflict
            (what contradicts the locus, or None) and granted (bool, as ``taken_for_granted``).
    """
    warnings = _warnings(letters, training)
    if chains is not None:
        told = _kind_warnings(chains, training.kinds)
        warnings = [[*told.get(receptor, []), *more] for receptor, more in zip(receptor_ids, warnings)]
    positions, distances = _nearest(letters, training.letters, NEAREST)
    compared = _loops_of(training.letters)
    there, known = ((table[compared] != "").to_numpy() for table in (letters, training.letters))
    rows = []
    for row, (receptor, near, far, warning) in enumerate(zip(receptor_ids, positions, distances, warnings)):
        if len(far) and far[0] > training.usual:
            usual = f"{USUAL:.0%} of the training receptors have one within {training.usual:g}"
            warning = [f"the nearest training receptor is {far[0]:g} edits away; {usual}", *warning]
        for rank, (position, edits) in enumerate(zip(near, far), start=1):
            both = there[row] & known[position]
            found = training.ids[position], training.labels[position], edits, _compared(both, compared)
            rows.append((receptor, rank, *found, "; ".join(warning)))
        if not len(near):
            nothing = "; ".join(["no CDR is known: it is not compared", *warning])
            rows.append((receptor, None, None, None, None, "", nothing))
    columns = ["receptor_id", "rank", "training_receptor", "labels", "edits", "compared", "warning"]
    return pd.DataFrame(rows, columns=columns).astype({"rank": "Int64", "edits": "Float64"})


def _nearest(letters: pd.DataFrame, known: pd.DataFrame, k: int, own: np.ndarray | None = None):
    """Positions in ``known`` and edits of the k nearest of each row; ``own``: the row's own position, left out.

    The edits are those over the loops that both have; who is nearest is told with what a missing loop usually costs.
    """
    queries, references = encode(letters[known.columns]), encode(known)
    blank = (letters[_loops_of(known)] == "").all(axis=1).to_numpy()
    fill, k = _EDITS.fill(references), min(k, references.n - (own is not None))
    nothing = {chain: np.zeros_like(costs) for chain, costs in fill.items()}
    positions: list[np.ndarray] = []
    edits: list[np.ndarray] = []
    for rows, (block,) in loop_blocks(queries, references, [_EDITS]):
        table, shared = np.array(block.distances(fill)), block.distances(nothing)
        if own is not None:
            table[np.arange(len(table)), own[rows]] = np.inf
        order = np.argsort(table, axis=1, kind="stable")[:, :k]
        for row, near in enumerate(order):
            lacking = blank[rows.start + row]
            positions.append(near[:0] if lacking else near)
            edits.append(shared[row, positions[-1]].astype(np.float64))
    return positions, edits


def _loops_of(letters: pd.DataFrame) -> list[str]:
    return [name for name in letters if name.rsplit("_", 1)[1] in LOOPS]


def _compared(both: np.ndarray, loops: list[str]) -> str:
    """The loops that are in ``both``, bool (loops,), chain by chain."""
    found: dict[str, list[str]] = {}
    for name in np.array(loops)[both]:
        chain, loop = name.rsplit("_", 1)
        found.setdefault(chain, []).append(loop[-1])
    return " ".join(f"{chain} CDR{','.join(numbers)}" for chain, numbers in found.items())


def _warnings(letters: pd.DataFrame, training: Training) -> list[list[str]]:
    """Of each receptor: parts that are missing here and were known in training, genes and lengths new to it."""
    found: list[list[str]] = [[] for _ in range(len(letters))]
    for chain in chains_of(training.letters):
        parts = [name for name in training.letters if name.rsplit("_", 1)[0] == chain]
        lacks, known = (table[parts] == "" for table in (letters, training.letters))
        gone = lacks.all(axis=1).to_numpy()
        _missing(found, f"the {chain} chain", gone, 1 - float(known.all(axis=1).mean()))
        for name in parts:
            part = name.rsplit("_", 1)[1]
            what = f"{part.upper()} gene" if part in ("v", "j") else part.upper()
            _missing(found, f"the {chain} {what}", lacks[name].to_numpy() & ~gone, 1 - float(known[name].mean()))
        for part in ("v", "j"):
            known = set(training.letters[f"{chain}_{part}"]) - {""}
            for row, gene in enumerate(letters[f"{chain}_{part}"] if known else []):
                if gene and gene not in known:
                    found[row].append(f"{gene} is the {part.upper()} gene of no training receptor")
        lengths = training.letters[f"{chain}_cdr3"].map(len)
        lengths = lengths[lengths > 0]
        if len(lengths):
            low, high = lengths.min(), lengths.max()
            for row, cdr3 in enumerate(letters[f"{chain}_cdr3"]):
                if cdr3 and not low <= len(cdr3) <= high:
                    found[row].append(f"the {chain} CDR3 has {len(cdr3)} residues; in training {low} to {high}")
    return found


def _missing(found: list[list[str]], what: str, lacks: np.ndarray, share: float) -> None:
    """Warn those who lack what ``share`` of the training receptors have, if most do."""
    if share > _MOSTLY:
        for row in np.flatnonzero(lacks):
            found[row].append(f"{what} is not known; in training it was for {share:.0%}")


def _kind_warnings(chains: pd.DataFrame, training: Kinds) -> dict[str, list[str]]:
    """Of receptors that are of another species than those of training, or have a chain of another locus."""
    found: dict[str, list[str]] = {}
    columns = (chains[name].tolist() for name in ("receptor_id", "chain", "locus", "species", "conflict", "granted"))
    for receptor, chain, locus, species, conflict, granted in zip(*columns):
        told = found.setdefault(receptor, [])
        if species and training.species and species not in training.species:
            told.append(f"it is of {species}; the training receptors are of {' and '.join(training.species)}")
        loci = training.loci.get(chain, [])
        if conflict:
            told.append(f"the {chain} chain is {conflict}")
        elif locus and loci and locus not in loci:
            told.append(f"the {chain} chain is of {locus}; those of training are of {' and '.join(loci)}")
        if granted and loci and chain not in training.granted:
            told.append(f"nothing says that its chain is {chain}; of those of training something does")
    return {receptor: list(dict.fromkeys(told)) for receptor, told in found.items() if told}
