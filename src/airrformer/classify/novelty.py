"""How like the training receptors a new one is: its nearest of them, and a warning where it is unlike them all.

A classifier answers anything. Its scores were measured on receptors like those it learned from; of others nothing is
known. Nearness is counted in edits over CDR1 to CDR3 of all chains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from airrformer.receptors.loops import LOOPS, LoopDistance, chains_of, encode, loop_blocks

NEAREST = 3  # training receptors named beside each prediction
USUAL = 0.99  # of the training receptors have another one within this distance, or a CDR3 of this range of lengths
_MOSTLY = 0.5  # a part that more training receptors have is missed where it is not known
_SAMPLE = 2000  # training receptors looked at to know what is usual
_EDITS = LoopDistance(cost="edit", weights=(1.0, 1.0, 1.0), trim=False)


@dataclass(frozen=True)
class Training:
    """What is kept of the training receptors: ids, labels as text, letters, and how near they are to one another."""

    ids: list[str]
    labels: list[str]
    letters: pd.DataFrame
    usual: float

    @classmethod
    def of(cls, ids: list[str], labels: list[str], letters: pd.DataFrame) -> Training:
        letters = letters[[name for name in letters if not name.endswith("_sequence")]].reset_index(drop=True)
        rows = np.linspace(0, len(ids) - 1, min(_SAMPLE, len(ids))).astype(int)
        distances = [far[0] for far in _nearest(letters.iloc[rows], letters, 1, rows)[1] if len(far)]
        return cls(ids, labels, letters, float(np.quantile(distances, USUAL)) if distances else 0.0)

    def table(self) -> pd.DataFrame:
        """As it is saved, and read by ``from_table``."""
        return pd.DataFrame({"receptor_id": self.ids, "labels": self.labels}).join(self.letters)

    @classmethod
    def from_table(cls, table: pd.DataFrame, usual: float) -> Training:
        letters = table.drop(columns=["receptor_id", "labels"])
        return cls(table["receptor_id"].tolist(), table["labels"].tolist(), letters, usual)


def nearest_training(receptor_ids: list[str], letters: pd.DataFrame, training: Training) -> pd.DataFrame:
    """A row for each new receptor and each of its nearest training receptors, nearest first.

    Columns: receptor_id, rank (from 1), training_receptor, labels, edits (over all CDRs), warning (why the receptor is
    unlike the training ones, "" where it is not). A receptor without any CDR has one row, without a neighbour.
    """
    warnings = _warnings(letters, training)
    positions, distances = _nearest(letters, training.letters, NEAREST)
    rows = []
    for receptor, near, far, warning in zip(receptor_ids, positions, distances, warnings):
        if len(far) and far[0] > training.usual:
            usual = f"{USUAL:.0%} of the training receptors have one within {training.usual:g}"
            warning = [f"the nearest training receptor is {far[0]:g} edits away; {usual}", *warning]
        for rank, (position, edits) in enumerate(zip(near, far), start=1):
            rows.append((receptor, rank, training.ids[position], training.labels[position], edits, "; ".join(warning)))
        if not len(near):
            rows.append(
                (receptor, None, None, None, None, "; ".join(["no CDR is known: it is not compared", *warning]))
            )
    columns = ["receptor_id", "rank", "training_receptor", "labels", "edits", "warning"]
    return pd.DataFrame(rows, columns=columns).astype({"rank": "Int64", "edits": "Float64"})


def _nearest(letters: pd.DataFrame, known: pd.DataFrame, k: int, own: np.ndarray | None = None):
    """Positions in ``known`` and edits of the k nearest of each row; ``own``: the row's own position, left out."""
    queries, references = encode(letters[known.columns]), encode(known)
    compared = [name for name in known if name.rsplit("_", 1)[1] in LOOPS]
    blank = (letters[compared] == "").all(axis=1).to_numpy()
    fill, k = _EDITS.fill(references), min(k, references.n - (own is not None))
    positions: list[np.ndarray] = []
    edits: list[np.ndarray] = []
    for rows, (block,) in loop_blocks(queries, references, [_EDITS]):
        table = np.array(block.distances(fill))
        if own is not None:
            table[np.arange(len(table)), own[rows]] = np.inf
        order = np.argsort(table, axis=1, kind="stable")[:, :k]
        for row, near in enumerate(order):
            lacking = blank[rows.start + row]
            positions.append(near[:0] if lacking else near)
            edits.append(np.round(table[row, positions[-1]].astype(np.float64), 2))
    return positions, edits


def _warnings(letters: pd.DataFrame, training: Training) -> list[list[str]]:
    """Of each receptor: parts that are missing here and were known in training, genes and lengths new to it."""
    found: list[list[str]] = [[] for _ in range(len(letters))]
    for name in training.letters:
        share = float((training.letters[name] != "").mean())
        if share > _MOSTLY:
            chain, part = name.rsplit("_", 1)
            what = f"{part.upper()} gene" if part in ("v", "j") else part.upper()
            for row, text in enumerate(letters[name]):
                if not text:
                    found[row].append(f"the {chain} {what} is not known; in training it was for {share:.0%}")
    for chain in chains_of(training.letters):
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
