"""Who is tested in which fold: keyed by hashes of ids and groups, never by the order of the rows.

The same receptors with the same seed fall into the same folds however their rows are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from airrformer.errors import UserError
from airrformer.receptors.clusters import similarity_clusters

if TYPE_CHECKING:  # for the signatures alone: the config reads receptors, not the other way round
    from airrformer.config import Dataset, Evaluation


class CannotSplit(UserError):
    """The split cannot be made from these receptors; the message says why."""


def assign_folds(
    split: str,
    receptors: pd.DataFrame,
    chains: pd.DataFrame,
    dataset: Dataset,
    evaluation: Evaluation,
    seed: int,
) -> np.ndarray:
    """The fold, int (n,), in which each row of ``receptors`` is tested; -1 for receptors without a label.

    ``random``: each receptor by itself. ``cluster``: similar receptors together (``similarity_clusters``).
    ``group``: all of one group together (``evaluation.group``, else the dataset's first); a receptor without a value
    is a group of its own. In each split every class is spread over the folds as evenly as its groups allow.
    Raises ``CannotSplit`` when there are no groups or fewer than folds.
    """
    labelled = np.array([bool(names) for names in class_lists(receptors)], dtype=bool)
    folds = np.full(len(receptors), -1, dtype=np.int64)
    if labelled.any():
        chosen = receptors[labelled]
        groups = split_groups(split, chosen, chains, dataset, evaluation)
        folds[labelled] = folds_of_groups(split, groups, chosen, evaluation.folds, seed)
    return folds


def folds_of_groups(split: str, groups: Sequence[str], receptors: pd.DataFrame, folds: int, seed: int) -> np.ndarray:
    """As ``assign_folds``, for labelled receptors whose ``split_groups`` are at hand."""
    labels = class_lists(receptors)
    classes = sorted({name for names in labels for name in names})
    membership = np.array([[name in names for name in classes] for names in labels])
    return deal(groups, membership, folds, seed, split)


def class_lists(receptors: pd.DataFrame) -> list[list[str]]:
    """The classes of each receptor; empty where it has none."""
    return [[] if names is None or isinstance(names, float) else list(names) for names in receptors["label"]]


def group_name(dataset: Dataset, evaluation: Evaluation) -> str | None:
    """The group that the group split keeps together, or None where the dataset has none."""
    return evaluation.group or next(iter(dataset.groups), None)


def split_groups(
    split: str, receptors: pd.DataFrame, chains: pd.DataFrame, dataset: Dataset, evaluation: Evaluation
) -> list[str]:
    """What must stay together: a key a receptor. Keys come from ids and values, not from the order of the rows."""
    ids = receptors["receptor_id"].tolist()
    if split == "random":
        return ids
    if split == "cluster":
        clusters = similarity_clusters(receptors, chains, dataset.receptor, evaluation.cluster)
        return pd.Series(ids).groupby(clusters).transform("min").tolist()
    name = group_name(dataset, evaluation)
    if name is None:
        raise CannotSplit("no group split: the dataset names no groups; add groups: {NAME: COLUMN} to it in the config")
    missing = missing_groups(receptors[name])
    return [f"receptor {i}" if gone else f"group {value}" for i, value, gone in zip(ids, receptors[name], missing)]


def missing_groups(values: pd.Series) -> np.ndarray:
    """Where a group column has no value, bool (n,): null or blank."""
    return (values.isna() | (values.astype("string").str.strip() == "").fillna(True)).to_numpy(dtype=bool)


def deal(
    groups: Sequence[str], membership: np.ndarray, folds: int, seed: int | str, split: str = "random"
) -> np.ndarray:
    """Whole groups to folds, int (n,): the largest first, each to the fold that has least of the group's classes.

    ``membership`` is bool (n, classes). A class counts by its share, so that rare classes are spread as well as
    common ones; among equals the order is that of a hash of seed and group.
    """
    keys, inverse = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    if len(keys) < folds:
        things = {"random": "receptors", "cluster": "clusters of similar receptors"}.get(split, "groups")
        raise CannotSplit(f"no {split} split: {len(keys)} {things} are fewer than the {folds} folds")
    counts = np.zeros((len(keys), membership.shape[1]))
    np.add.at(counts, inverse, membership)
    sizes = np.bincount(inverse, minlength=len(keys))
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    order = sorted(
        range(len(keys)), key=lambda g: (-round(float(shares[g].sum()), 12), -sizes[g], _hash(seed, keys[g]), keys[g])
    )
    fold_of = np.empty(len(keys), dtype=np.int64)
    taken, rows = np.zeros((folds, membership.shape[1])), np.zeros(folds)
    for g in order:
        crowding = np.round(taken @ shares[g], 12)
        fold = min(range(folds), key=lambda f: (crowding[f], rows[f], f))
        fold_of[g] = fold
        taken[fold] += shares[g]
        rows[fold] += sizes[g]
    return fold_of[inverse]


def _hash(seed: int | str, key: str) -> bytes:
    return blake2b(f"{seed}\x1f{key}".encode(), digest_size=16).digest()
