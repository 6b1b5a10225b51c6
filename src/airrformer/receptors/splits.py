"""Who is tested in which fold, and from whom the fold's models learn: keyed by hashes of ids, groups and values.

The same receptors with the same seed fall into the same folds however their rows are shuffled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rapidfuzz.distance import Hamming, Levenshtein

from airrformer.errors import UserError
from airrformer.receptors.clusters import similarity_clusters
from airrformer.receptors.distances import cdr3_or_chain, chain_names, chain_strings, whole_chain

if TYPE_CHECKING:  # for the signatures alone: the config reads receptors, not the other way round
    from airrformer.config import Dataset, Evaluation

TRAIN = "train"  # of a given split, in any case: the value that is only learned from
VALUE_BINS = 10  # of a regression, spread over the folds as classes are


class CannotSplit(UserError):
    """The split cannot be made from these receptors; the message says why."""


@dataclass(frozen=True)
class Split:
    """One cross-validation of n receptors in F folds.

    Attributes:
        folds: int (n,), the fold in which a receptor is tested; -1: never.
        train: bool (F, n), what the models of a fold learn from; never a receptor that the fold tests.
        groups: of each receptor, what must stay together with it within the training part as well.
        judged: bool (n, K), the classes that a receptor is judged for where it is tested; None: all.
        held: bool (F, K), the classes that a fold's models never see; only of the split by class.
        notes: sentences on how it was made, for the report.
    """

    name: str
    folds: np.ndarray
    train: np.ndarray
    groups: list[str]
    judged: np.ndarray | None = None
    held: np.ndarray | None = None
    notes: tuple[str, ...] = ()


def make_split(
    split: str,
    receptors: pd.DataFrame,
    chains: pd.DataFrame,
    dataset: Dataset,
    evaluation: Evaluation,
    seed: int,
    Y: np.ndarray,
) -> Split:
    """The cross-validation named ``split`` of receptors that are all to be used (``used_receptors``).

    ``random``: each receptor by itself, but those with the same chains together. ``cluster``: similar receptors
    together (``similarity_clusters``). ``group``: all of one group together (``evaluation.group``, else the dataset's
    first); a receptor without a value is a group of its own. In these three every class, or tenth of the values, is
    spread over the folds as evenly as the groups allow.

    ``class``: leave classes out. The classes are dealt to the folds; the models of a fold never see a receptor of the
    fold's classes. A receptor is tested in its random fold. It is judged as a positive for those of its classes that
    the fold's models know, and as a negative for all classes that they know if all of its own are kept from them. The
    score so says whether a model takes receptors of a class that it has never seen for those of the classes that it
    knows: whether 'binds A' is more than 'is one of the others'. It does not say that receptors of an unseen class are
    found, for which a model that reads the antigen would be needed.

    ``parent``: by the distance from ``dataset.parent``: the folds are stretches of it of about equal size, and each is
    tested by models that learned from all other distances. The distance is that of the whole chains, in substitutions
    where the lengths are equal, else in edits, summed over the chains of the parent; the seed changes nothing.
    ``given``: the folds are the values of the group ``evaluation.given`` (or of the only one); the value ``train`` is
    never tested, nor are receptors without a value; the models of a fold learn from all receptors outside it.

    Args:
        receptors: n rows of receptors.parquet. chains: a chains table, which may hold other receptors, too.
        Y: int8 (n, K), or float (n, 1) in regression; only the split by class reads it, and of it the positives.

    Raises:
        CannotSplit: there are fewer groups than folds, fewer than three classes, no parent, no column, or nothing to
            learn from.
    """
    if split == "parent":
        return _by_parent(receptors, chains, dataset, evaluation)
    if split == "given":
        return _given(receptors, dataset, evaluation)
    groups = split_groups("random" if split == "class" else split, receptors, chains, dataset, evaluation)
    spread = membership(receptors)
    if split in ("cluster", "group"):
        folds = deal(groups, spread, evaluation.folds, seed, split)
        return Split(split, folds, _all_others(folds, evaluation.folds), groups)
    ids = receptors["receptor_id"].tolist()
    folds, notes = _random_folds(ids, groups, spread, evaluation.folds, seed, split)
    if split == "class":
        return _by_class(ids, folds, evaluation.folds, groups, Y, seed, notes)
    return Split(split, folds, _all_others(folds, evaluation.folds), groups, notes=notes)


def assign_folds(
    split: str,
    receptors: pd.DataFrame,
    chains: pd.DataFrame,
    dataset: Dataset,
    evaluation: Evaluation,
    seed: int,
) -> np.ndarray:
    """The fold, int (n,), in which each row of a whole receptors table is tested; -1: in none, as ``make_split``."""
    used = used_receptors(receptors, dataset)
    folds = np.full(len(receptors), -1, dtype=np.int64)
    if used.any():
        # who is tested where hangs on no class: random folds are those of the split by class
        name = "random" if split == "class" else split
        none = np.zeros((int(used.sum()), 0), dtype=np.int8)
        folds[used] = make_split(name, receptors[used], chains, dataset, evaluation, seed, none).folds
    return folds


def used_receptors(receptors: pd.DataFrame, dataset: Dataset) -> np.ndarray:
    """Who takes part, bool (n,): receptors with a value, or with a class that they are of or not of.

    All, where receptors without any label are the background.
    """
    if pd.api.types.is_float_dtype(receptors["label"]):
        return receptors["label"].notna().to_numpy(dtype=bool)
    if "background" in (dataset.negatives.methods or []):
        return np.ones(len(receptors), dtype=bool)
    is_one, is_none = class_lists(receptors), class_lists(receptors, "not_label")
    return np.array([bool(names or others) for names, others in zip(is_one, is_none)], dtype=bool)


def membership(receptors: pd.DataFrame) -> np.ndarray:
    """What is to be spread over the folds, bool (n, columns): who is of a class, who is not, or tenths of values."""
    if pd.api.types.is_float_dtype(receptors["label"]):
        return value_bins(receptors["label"].to_numpy(dtype=np.float64))
    columns = []
    for column in ("label", "not_label"):
        lists = class_lists(receptors, column)
        classes = sorted({name for names in lists for name in names})
        columns.append(np.array([[name in names for name in classes] for names in lists], dtype=bool))
    return np.concatenate([part.reshape(len(receptors), -1) for part in columns], axis=1)


def value_bins(values: np.ndarray, bins: int = VALUE_BINS) -> np.ndarray:
    """Which stretch of the sorted values each is in, bool (n, bins); equal values are in the same one."""
    ranks = (pd.Series(np.asarray(values, dtype=np.float64)).rank(method="average") - 0.5).to_numpy()
    return (ranks * bins // max(1, len(ranks))).astype(np.int64)[:, None] == np.arange(bins)


def class_lists(receptors: pd.DataFrame, column: str = "label") -> list[list[str]]:
    """The classes of each receptor; empty where it has none, or where there is no such column."""
    if column not in receptors.columns:
        return [[] for _ in range(len(receptors))]
    return [[] if names is None or isinstance(names, float) else list(names) for names in receptors[column]]


def group_name(dataset: Dataset, evaluation: Evaluation) -> str | None:
    """The group that the group split keeps together, or None where the dataset has none."""
    return evaluation.group or next(iter(dataset.groups), None)


def split_groups(
    split: str, receptors: pd.DataFrame, chains: pd.DataFrame, dataset: Dataset, evaluation: Evaluation
) -> list[str]:
    """What must stay together: a key a receptor. Keys come from ids and values, not from the order of the rows."""
    ids = receptors["receptor_id"].tolist()
    if split == "random":
        return twin_groups(ids, chains)
    if split == "cluster":
        clusters = similarity_clusters(receptors, chains, dataset.receptor, evaluation.cluster)
        return pd.Series(ids).groupby(clusters).transform("min").tolist()
    name = group_name(dataset, evaluation)
    if name is None:
        raise CannotSplit("no group split: the dataset names no groups; add groups: {NAME: COLUMN} to it in the config")
    if name not in receptors.columns:
        raise CannotSplit(f"no group split: the receptors have no column {name}; run `airrformer parse` again")
    missing = missing_groups(receptors[name])
    return [f"receptor {i}" if gone else f"group {value}" for i, value, gone in zip(ids, receptors[name], missing)]


def twin_groups(ids: Sequence[str], chains: pd.DataFrame) -> list[str]:
    """A key for each receptor: its id, or where several have the same chains a hash of these, the same for all."""
    names = chain_names(chains)
    keys = [
        "chains " + _hash("", "\x1f".join(f"{name}={string}" for name, string in zip(names, strings) if string)).hex()
        for strings in chain_strings(ids, chains, names, whole_chain)
    ]
    counts = Counter(keys)
    return [key if counts[key] > 1 else i for key, i in zip(keys, ids)]


def missing_groups(values: pd.Series) -> np.ndarray:
    """Where a group column has no value, bool (n,): null or blank."""
    return (values.isna() | (values.astype("string").str.strip() == "").fillna(True)).to_numpy(dtype=bool)


# ------------------------------------------------------------------------------------------------ the other splits


def _all_others(folds: np.ndarray, count: int) -> np.ndarray:
    return folds != np.arange(count)[:, None]


def _random_folds(
    ids: list[str], groups: list[str], spread: np.ndarray, count: int, seed: int, split: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Each receptor as if it were alone, then those with the same chains together; and a note of how many these are."""
    folds = deal(ids, spread, count, seed, split)
    twins = np.array([i != group for i, group in zip(ids, groups)], dtype=bool)
    if not twins.any():
        return folds, ()
    # who has no twin stays where it was, however many twins the others have
    folds = deal(groups, spread, count, seed, split, placed=np.where(twins, -1, folds))
    sets = len({group for group, twin in zip(groups, twins) if twin})
    return folds, (f"{int(twins.sum()):,} receptors are of {sets:,} sets with the same chains; a set shares a fold.",)


def _by_class(
    ids: list[str],
    folds: np.ndarray,
    count: int,
    groups: list[str],
    Y: np.ndarray,
    seed: int,
    notes: tuple[str, ...],
) -> Split:
    K = Y.shape[1]
    if np.issubdtype(Y.dtype, np.floating):
        raise CannotSplit("no class split: the labels are numbers, not classes")
    if K < 3:
        raise CannotSplit(f"no class split: it needs 3 classes or more, of which one is kept back, and there are {K}")
    positive = Y == 1
    # a class is known by its receptors: their order and the column's place change nothing
    keys = ["\x1f".join(sorted(i for i, is_one in zip(ids, column) if is_one)) for column in positive.T]
    held = np.zeros((count, K), dtype=bool)
    for place, k in enumerate(sorted(range(K), key=lambda k: (_hash(seed, keys[k]), keys[k]))):
        if held[place % count].sum() < K - 2:  # two classes at least are learned, each with the other as its negatives
            held[place % count, k] = True

    of_held = positive @ held.T  # (n, F) whether a receptor is of a class that the fold keeps back
    here = held[folds]  # (n, K)
    unseen = (positive & here).any(axis=1) & ~(positive & ~here).any(axis=1)
    judged = ~here & (positive | unseen[:, None]) & here.any(axis=1, keepdims=True)
    more = [
        f"{held.sum(axis=1).max()} of {K} classes at most are kept from the models of a fold; the other classes are "
        "judged by their own receptors against those of the classes kept back."
    ]
    if empty := int((~held.any(axis=1)).sum()):
        more.append(f"{empty} of {count} folds keep no class back and judge nothing: there are but {K} classes.")
    return Split("class", folds, _all_others(folds, count) & ~of_held.T, groups, judged, held, (*more, *notes))


def _by_parent(receptors: pd.DataFrame, chains: pd.DataFrame, dataset: Dataset, evaluation: Evaluation) -> Split:
    if not dataset.parent:
        raise CannotSplit(
            "no parent split: the dataset names no parent; add parent: {CHAIN: RESIDUES}, the variant that the scan "
            "started from, to it in the config"
        )
    distances, otherwise = parent_distances(receptors["receptor_id"].tolist(), chains, dataset.parent)
    known = distances >= 0
    values, counts = np.unique(distances[known], return_counts=True)
    if len(values) < 2:
        raise CannotSplit(
            f"no parent split: {int(known.sum())} receptors have the chains of the parent, and all are "
            f"{values[0] if len(values) else 'no'} edits from it"
        )
    # A fold ends after the distance at which the receptors so far are nearest to its share of all.
    ends = counts.cumsum()[:-1]
    shares = known.sum() * np.arange(1, evaluation.folds) / evaluation.folds
    cuts = np.unique(np.abs(ends[:, None] - shares).argmin(axis=0))
    count = len(cuts) + 1
    folds = np.where(known, np.searchsorted(values[cuts], distances), -1)
    notes = [
        f"fold {fold}: {int((folds == fold).sum()):,} receptors, {distances[folds == fold].min()} to "
        f"{distances[folds == fold].max()} edits from the parent."
        for fold in range(count)
    ]
    if count < evaluation.folds:
        notes.append(f"{count} folds, not {evaluation.folds}: the distances make no more stretches of about one size.")
    if otherwise:
        notes.append(
            f"{otherwise:,} receptors have a chain of another length than the parent's: their distance is in edits. Is "
            "the parent given from the same residue to the same residue?"
        )
    if not known.all():
        notes.append(f"{int((~known).sum()):,} receptors lack a chain of the parent: they are only learned from.")
    ids = receptors["receptor_id"]
    groups = [f"distance {d}" if d >= 0 else f"receptor {i}" for i, d in zip(ids, distances.tolist())]
    return Split("parent", folds, _all_others(folds, count), groups, notes=tuple(notes))


def parent_distances(ids: Sequence[str], chains: pd.DataFrame, parent: dict[str, str]) -> tuple[np.ndarray, int]:
    """Substitutions (edits, where the lengths differ) from the parent, summed over its chains, int64 (n,).

    The parent is a whole chain or a CDR3, whichever has its length in more receptors. -1: the receptor lacks one of the
    chains. And of how many receptors the length differs.
    """
    names = list(parent)
    readings = [list(zip(*chain_strings(ids, chains, names, what))) for what in (whole_chain, cdr3_or_chain)]
    columns = [
        max(ways, key=lambda texts: sum(len(text) == len(parent[name]) for text in texts))
        for name, *ways in zip(names, *readings)
    ]
    found, otherwise = [], 0
    for strings in zip(*columns):
        steps = [
            (Hamming if len(string) == len(parent[name]) else Levenshtein).distance(string, parent[name])
            for name, string in zip(names, strings)
        ]
        found.append(sum(steps) if all(strings) else -1)
        otherwise += all(strings) and any(len(string) != len(parent[name]) for name, string in zip(names, strings))
    return np.array(found, dtype=np.int64), otherwise


def _given(receptors: pd.DataFrame, dataset: Dataset, evaluation: Evaluation) -> Split:
    name = evaluation.given or (next(iter(dataset.groups)) if len(dataset.groups) == 1 else None)
    if name is None:
        has = f"has {', '.join(dataset.groups)}" if dataset.groups else "names no groups"
        raise CannotSplit(f"no given split: the dataset {has}; say with evaluation.given which group holds the folds")
    if name not in receptors.columns:
        raise CannotSplit(f"no given split: the dataset has no group {name}; add groups: {{{name}: COLUMN}} to it")
    missing = missing_groups(receptors[name])
    texts = ["" if gone else str(value).strip() for value, gone in zip(receptors[name], missing)]
    values = sorted({text for text in texts if text and text.lower() != TRAIN}, key=_number_first)
    fold_of = {value: fold for fold, value in enumerate(values)}
    folds = np.array([fold_of.get(text, -1) for text in texts], dtype=np.int64)
    if not values or not (folds != folds.max()).any():
        has = f"only {values[0]}" if values else f"none but {TRAIN}"
        raise CannotSplit(f"no given split: of the values of {name} there is {has}, so nothing is tested by the rest")
    notes = [f"fold {fold}: {int((folds == fold).sum()):,} receptors of {name} {v}." for v, fold in fold_of.items()]
    if (never := int((folds < 0).sum())) > 0:
        notes.append(f"{never:,} receptors, of {name} {TRAIN} or without a value, are learned from and never tested.")
    ids = receptors["receptor_id"]
    groups = [f"receptor {i}" if fold < 0 else f"group {text}" for i, text, fold in zip(ids, texts, folds)]
    return Split("given", folds, _all_others(folds, len(values)), groups, notes=tuple(notes))


def _number_first(text: str) -> tuple[bool, float, str]:
    """2 before 10 before a."""
    number = pd.to_numeric(text, errors="coerce")
    return (bool(np.isnan(number)), 0.0 if np.isnan(number) else float(number), text)


# --------------------------------------------------------------------------------------------------------- dealing


def deal(
    groups: Sequence[str],
    membership: np.ndarray,
    folds: int,
    seed: int | str,
    split: str = "random",
    placed: np.ndarray | None = None,
) -> np.ndarray:
    """Whole groups to folds, int (n,): the largest first, each to the fold that has least of the group's classes.

    ``membership`` is bool (n, classes). A class counts by its share, so that rare classes are spread as well as
    common ones; among equals the order is that of a hash of seed and group. ``placed``: int (n,), the fold in which
    a receptor is already, with all of its group; -1: to be dealt.
    """
    keys, inverse = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    if len(keys) < folds:
        things = {
            "random": "different receptors",
            "class": "different receptors",
            "cluster": "clusters of similar receptors",
        }.get(split, "groups")
        raise CannotSplit(f"no {split} split: {folds} folds need as many {things}, and there are {len(keys)}")
    counts = np.zeros((len(keys), membership.shape[1]))
    np.add.at(counts, inverse, membership)
    sizes = np.bincount(inverse, minlength=len(keys))
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    order = sorted(
        range(len(keys)), key=lambda g: (-round(float(shares[g].sum()), 12), -sizes[g], _hash(seed, keys[g]), keys[g])
    )
    fold_of = np.full(len(keys), -1, dtype=np.int64)
    taken, rows = np.zeros((folds, membership.shape[1])), np.zeros(folds)
    if placed is not None:
        fold_of[inverse] = placed
        there = fold_of >= 0
        np.add.at(taken, fold_of[there], shares[there])
        np.add.at(rows, fold_of[there], sizes[there])
        order = [g for g in order if not there[g]]
    for g in order:
        crowding = np.round(taken @ shares[g], 12)
        fold = min(range(folds), key=lambda f: (crowding[f], rows[f], f))
        fold_of[g] = fold
        taken[fold] += shares[g]
        rows[fold] += sizes[g]
    return fold_of[inverse]


def _hash(seed: int | str, key: str) -> bytes:
    return blake2b(f"{seed}\x1f{key}".encode(), digest_size=16).digest()
