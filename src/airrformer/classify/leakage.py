"""What makes a score too good: test receptors that the training part holds, and labels that can be told from elsewhere.

Leakage compares receptors: ``exact``, the same chains; ``distance_1`` and ``distance_2``, CDR3s that are at most one or
two edits apart, summed over the chains (a chain without a known CDR3 is compared whole). Shortcut leaks predict the
label from what has nothing to do with binding, one thing at a time and without a model; a fair set leaves them at an
AUROC of 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import rankdata

from airrformer.parse.labels import NEGATIVE_CLASSES
from airrformer.receptors.distances import (
    Pairs,
    cdr3_or_chain,
    chain_names,
    chain_strings,
    nearest,
    neighbours,
    unique,
    whole_chain,
)
from airrformer.receptors.splits import Split, class_lists, deal, missing_groups

BOUND = (
    0.6  # a macro AUROC from which a shortcut is a warning; a class's must also be beyond chance (``_beyond_chance``)
)
MOST_CONTRADICTED = 0.01  # of the receptors known for a class: more with both labels on their chains is a warning
RATE_FOLDS = 5

_PAIRS_KEPT = 20_000_000  # neighbours held in memory, 16 bytes each; denser sets are gone through again each time
_NO_GROUPS = {"receptor_id", "label", "not_label", "occurrences", "chain_status"}


# -------------------------------------------------------------------------------------------- receptors in both parts


def leakage_table(receptors: pd.DataFrame, chains: pd.DataFrame, splits: Sequence[Split]) -> dict[str, int]:
    """How many tests, over all ``splits``, are of a receptor whose like their own fold's models learned from.

    ``exact``, ``distance_1`` and ``distance_2``, each with those before it, ``of`` so many tests. Receptors that are
    judged for no class are not counted, nor are those in other folds that the models do not learn from.
    """
    ids = receptors["receptor_id"].tolist()
    names = chain_names(chains[chains["receptor_id"].isin(set(ids))])
    tested = [_tested(split) for split in splits]
    found = {"of": sum(int(rows.sum()) for rows in tested)}
    for name, string_of, distance in (
        ("exact", whole_chain, 0),
        ("distance_1", cdr3_or_chain, 1),
        ("distance_2", cdr3_or_chain, 2),
    ):
        items, item_of = unique(chain_strings(ids, chains, names, string_of))
        learned = np.zeros((len(items), sum(len(split.train) for split in splits)), dtype=bool)
        for column, train in enumerate(row for split in splits for row in split.train):
            learned[item_of[train], column] = True
        reached = _reached(tuple(items), distance, learned)
        first = np.cumsum([0, *(len(split.train) for split in splits)])
        found[name] = sum(
            int(reached[item_of[rows], start + split.folds[rows]].sum())
            for split, rows, start in zip(splits, tested, first)
        )
    return {name: found[name] for name in ("exact", "distance_1", "distance_2", "of")}


def _tested(split: Split) -> np.ndarray:
    return (split.folds >= 0) & (True if split.judged is None else split.judged.any(axis=1))


def _reached(items: tuple, distance: int, learned: np.ndarray) -> np.ndarray:
    """Of each item and part of the data, bool (items, parts): whether the part has the item or a neighbour of it."""
    reached, n = learned.copy(), len(items)
    kept = _kept_pairs(items, distance)
    counts = learned.astype(np.float32)
    for i, j in neighbours(items, distance) if kept is None else [kept]:
        for here, there in ((i, j), (j, i)):
            ones = np.ones(len(here), dtype=np.float32)
            reached |= csr_array((ones, (here, there)), shape=(n, n)) @ counts > 0
    return reached


@lru_cache(maxsize=4)  # every split and model of a data set asks for the same
def _kept_pairs(items: tuple, distance: int) -> Pairs | None:
    """All neighbours, or None where they are too many to be held."""
    pieces, total = [], 0
    for piece in neighbours(items, distance):
        pieces.append(piece)
        total += len(piece[0])
        if total > _PAIRS_KEPT:
            return None
    i, j = (np.concatenate([np.empty(0, dtype=np.int64), *column]) for column in zip(*pieces or [((), ())]))
    return i, j


def corpus_leakage(
    receptors: pd.DataFrame, chains: pd.DataFrame, corpus: pd.DataFrame, splits: Sequence[Split]
) -> dict[str, int | list[dict[str, int]]]:
    """How many test receptors have a chain that an encoder has read: ``corpus``, a chains table of any size.

    ``exact``: the whole chain; ``distance_1``, ``distance_2``: a chain of the same kind whose CDR3 is at most one or
    two edits away, each with those before it; ``of`` so many tests. ``folds``: the same for each test fold, with the
    number of its cross-validation (``trial``, from 0) and its own. CDR3s that are not known are compared to none.
    """
    level = corpus_distances(receptors, chains, corpus)
    folds = []
    for trial, split in enumerate(splits):
        tested = _tested(split)
        for fold in range(len(split.train)):
            folds.append({"trial": trial, "fold": fold} | _by_level(level[tested & (split.folds == fold)]))
    names = ("exact", "distance_1", "distance_2", "of")
    return {name: sum(fold[name] for fold in folds) for name in names} | {"folds": folds}


def _by_level(level: np.ndarray) -> dict[str, int]:
    exact, one, two = (int((level <= most).sum()) for most in (0, 1, 2))
    return {"exact": exact, "distance_1": one, "distance_2": two, "of": len(level)}


def corpus_distances(receptors: pd.DataFrame, chains: pd.DataFrame, corpus: pd.DataFrame) -> np.ndarray:
    """How near to the corpus that chain of a receptor is which is nearest, int8 (n,).

    0: the whole chain is in it; 1 or 2: its CDR3 is at most so many edits from that of one; 3: neither.
    """
    ids = receptors["receptor_id"].tolist()
    level = np.full(len(ids), 3, dtype=np.int8)
    for name in chain_names(chains[chains["receptor_id"].isin(set(ids))]):
        read = corpus[corpus["chain"] == name]
        whole = [string for (string,) in chain_strings(ids, chains, [name], whole_chain)]
        known = set(read["sequence_aa"])
        cdr3s = [string for (string,) in chain_strings(ids, chains, [name], _cdr3)]
        places = [i for i, cdr3 in enumerate(cdr3s) if cdr3]
        edits = _nearest(tuple(cdr3s[i] for i in places), tuple(_cdr3s(read)))
        level[places] = np.minimum(level[places], np.maximum(edits, 1))
        level[[string in known for string in whole]] = 0
    return level


_nearest = lru_cache(maxsize=8)(nearest)


def _cdr3s(chains: pd.DataFrame) -> Iterable[str]:
    columns = ["sequence_aa", "junction_aa", "cdr3_start", "cdr3_end"]
    return dict.fromkeys(cdr3 for row in chains[columns].itertuples(index=False) if (cdr3 := _cdr3(row)))


def _cdr3(row) -> str:
    """As ``cdr3_or_chain``, but nothing where it is not known."""
    known = pd.notna(row.cdr3_end) or (isinstance(row.junction_aa, str) and len(row.junction_aa) > 2)
    return cdr3_or_chain(row) if known else ""


# ------------------------------------------------------------------------------------------ labels told from elsewhere


def shortcut_leaks(
    receptors: pd.DataFrame, chains: pd.DataFrame, Y: np.ndarray, classes: Sequence[str]
) -> list[dict[str, object]]:
    """What tells the label without looking at what binds, an entry a check that can be made.

    An entry has ``check``; ``level``, ``bad`` (a warning) or ``fine``; ``title``; ``sentence`` with the numbers;
    ``auroc``, the mean over the classes of ``classes``, which has it by class (None: not defined). Where the direction
    of a shortcut is not known beforehand, an AUROC below 0.5 counts as 1 minus it.

    labelled_elsewhere: of how many other classes a receptor, or one with the same chains, is known to be, and then, of
        how many not to be. Of the negatives only those that are given, because swapped ones are of another class by
        construction.
    occurrences: how often the receptor stands in the input.
    missing: a chain, a gene call or a region that is not known; of each class the one that tells most.
    groups: the rate of positives in the receptor's donor, paper, ...; of the other folds of a random split.
    both_labels: the chains of a positive are those of a negative; the AUROC is the most that a model of the chains
        can reach.

    A warning: the AUROC is ``BOUND`` or more, and in one class beyond chance as well; for ``both_labels``, more than
    ``MOST_CONTRADICTED`` of the receptors of a class are contradicted.

    Args:
        receptors: n rows of receptors.parquet. Y: int8 (n, K), 1, 0 or -1.
    """
    ids = receptors["receptor_id"].tolist()
    names = chain_names(chains[chains["receptor_id"].isin(set(ids))])
    same = unique(chain_strings(ids, chains, names, whole_chain))[1]
    found = [
        _labelled_elsewhere(receptors, same, Y, classes),
        _occurrences(receptors, Y, classes),
        _missing(ids, chains, names, Y, classes),
        *(_group(receptors, column, Y, classes) for column in receptors.columns if column not in _NO_GROUPS),
        _both_labels(same, Y, classes),
    ]
    return [entry for entry in found if entry is not None]


def _labelled_elsewhere(receptors, same: np.ndarray, Y: np.ndarray, classes: Sequence[str]) -> dict | None:
    labels, not_labels = class_lists(receptors), class_lists(receptors, "not_label")
    if not any(not_labels):
        return None
    every = sorted({name for names in labels + not_labels for name in names if name not in NEGATIVE_CLASSES})
    every += [name for name in classes if name not in every]
    is_one, is_none = (_by_chains(lists, same, every) for lists in (labels, not_labels))
    columns = [every.index(name) for name in classes]
    yes = is_one.sum(axis=1, keepdims=True) - is_one[:, columns]
    no = is_none.sum(axis=1, keepdims=True) - is_none[:, columns]
    said = np.array([[name in names for name in classes] for names in not_labels])
    judged = np.where((Y == 1) | said, Y, -1)
    of_negatives, of_positives = (
        f"{(yes[judged == label] > 0).mean():.0%} of another class, {(no[judged == label] > 0).mean():.0%} not of one"
        if (judged == label).any()
        else "none"
        for label in (0, 1)
    )
    return _entry(
        "labelled_elsewhere",
        "Whether a receptor is labelled elsewhere tells its label",
        f"of the negatives that are given, {of_negatives}; of the positives, {of_positives}; what is known of a "
        "receptor for other classes must not be learned from in the fold that tests it",
        # who is of another class is rarely of this one as well; who is said not to be of others was chosen as theirs
        no - (len(every) + 1) * yes, judged, classes, either_way=True,
    )  # fmt: skip


def _by_chains(lists: list[list[str]], same: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Which classes stand in the lists of a receptor or of one with the same chains, int (n, classes)."""
    together = np.zeros((same.max() + 1, len(classes)), dtype=np.int64)
    np.maximum.at(together, same, np.array([[name in names for name in classes] for names in lists], dtype=np.int64))
    return together[same]


def _occurrences(receptors, Y: np.ndarray, classes: Sequence[str]) -> dict | None:
    if "occurrences" not in receptors.columns:
        return None
    times = pd.to_numeric(receptors["occurrences"]).fillna(1).to_numpy(dtype=np.float64)
    yes, no = (np.concatenate([times[y == label] for y in Y.T] or [[]]) for label in (1, 0))
    if not len(yes) or not len(no):
        return None
    return _entry(
        "occurrences",
        "How often a receptor stands in the input tells its label",
        f"positives stand there {yes.mean():.2f} times on average, negatives {no.mean():.2f} times",
        np.repeat(times[:, None], Y.shape[1], axis=1), Y, classes, either_way=True,
    )  # fmt: skip


def _missing(ids, chains: pd.DataFrame, names: Sequence[str], Y: np.ndarray, classes: Sequence[str]) -> dict | None:
    gaps = dict(_gaps(ids, chains, names))
    if not gaps or not Y.shape[1]:
        return None
    every = {what: _aurocs(np.repeat(gone[:, None], Y.shape[1], axis=1), Y, True) for what, gone in gaps.items()}
    table = np.array([[np.nan if a is None else a for a in aurocs] for aurocs in every.values()])  # (gaps, K)
    best = np.where(np.isnan(table), -1, table).argmax(axis=0)
    telling = np.stack([gaps[list(gaps)[row]] for row in best], axis=1)
    k = int(np.where(np.isnan(table), -1, table).max(axis=0).argmax())
    what, gone, y = list(gaps)[best[k]], telling[:, k], Y[:, k]
    shares = [float(gone[y == label].mean()) if (y == label).any() else 0.0 for label in (1, 0)]
    return _entry(
        "missing",
        "What is missing tells the label",
        f"{what} is missing in {shares[0]:.0%} of the positives of {classes[k]} and {shares[1]:.0%} of the negatives",
        telling, Y, classes, either_way=True,
    )  # fmt: skip


def _gaps(ids: Sequence[str], chains: pd.DataFrame, names: Sequence[str]) -> Iterable[tuple[str, np.ndarray]]:
    """What some receptors lack and others have: its name, and who lacks it, bool (n,)."""
    for name in names:
        rows = chains[chains["chain"] == name].drop_duplicates("receptor_id").set_index("receptor_id")
        there = pd.Index(ids).isin(rows.index)
        lacks = {f"the chain {name}": ~there}
        for column, what in (
            ("v_call", "V gene"),
            ("j_call", "J gene"),
            ("cdr1_start", "CDR1"),
            ("cdr3_start", "CDR3"),
        ):
            values = rows[column].reindex(ids)
            blank = values.astype("string").str.strip().eq("").fillna(True).to_numpy(dtype=bool)
            lacks[f"the {what} of {name}"] = blank | ~there
        yield from ((what, gone) for what, gone in lacks.items() if 0 < gone.sum() < len(ids))


def _group(receptors, column: str, Y: np.ndarray, classes: Sequence[str]) -> dict | None:
    missing = missing_groups(receptors[column])
    values = pd.Series(np.where(missing, "", receptors[column].astype("string").fillna(""))).astype(str).str.strip()
    codes = pd.factorize(values, sort=True)[0]
    if len(codes) < RATE_FOLDS or codes.max() < 1 or len(set(codes)) == len(codes):
        return None
    folds = deal(receptors["receptor_id"].tolist(), Y == 1, RATE_FOLDS, f"leak/{column}")
    rates = np.full(Y.shape, np.nan)
    for fold in range(RATE_FOLDS):
        test, known = folds == fold, Y >= 0
        learned = known & ~test[:, None]
        for k in range(Y.shape[1]):
            rows = learned[:, k]
            overall = Y[rows, k].mean() if rows.any() else 0.5
            n = np.bincount(codes[rows], minlength=codes.max() + 1)
            yes = np.bincount(codes[rows], weights=Y[rows, k], minlength=codes.max() + 1)
            rates[test, k] = ((yes + overall) / (n + 1))[codes[test]]  # as if one more receptor were like all
    aurocs = []
    for k in range(Y.shape[1]):
        of_folds = [_auroc(rates[rows, k], Y[rows, k]) for fold in range(RATE_FOLDS) for rows in [folds == fold]]
        defined = [auroc for auroc in of_folds if auroc is not None]
        aurocs.append(float(np.mean(defined)) if defined else None)
    sizes = np.bincount(codes)
    entry = _judged(
        f"group {column}",
        f"The {column} of a receptor tells its label",
        f"the rate of positives among other receptors of the same {column} ({len(sizes):,} values, the largest of "
        f"{sizes.max():,} receptors)",
        aurocs, Y, classes,
    )  # fmt: skip
    entry["sentence"] += f" Judge by a split that keeps each {column} together."
    return entry


def _both_labels(same: np.ndarray, Y: np.ndarray, classes: Sequence[str]) -> dict | None:
    best, contradicted, worst = np.full(Y.shape, np.nan), 0, ("", 0.0)
    for k, name in enumerate(classes):
        yes, no = (np.bincount(same[Y[:, k] == label], minlength=same.max() + 1) for label in (1, 0))
        both = (yes > 0) & (no > 0)
        share = (yes + no)[both].sum() / max(1, (yes + no).sum())
        contradicted += int(both.sum())
        worst = max(worst, (name, float(share)), key=lambda entry: entry[1])
        best[:, k] = (yes / np.maximum(1, yes + no))[same]
    entry = _entry(
        "both_labels",
        "The same chains have both labels",
        f"{contradicted:,} times the chains of a positive are those of a negative of the same class"
        + (f", most in {worst[0]}: {worst[1]:.1%} of its receptors" if contradicted else ""),
        best, Y, classes,
    )  # fmt: skip
    entry["level"] = "bad" if worst[1] > MOST_CONTRADICTED else "fine"
    if not contradicted:
        entry["sentence"] = "no chains are those of a positive and of a negative of the same class."
    elif entry["auroc"] is not None:
        what = entry["sentence"].partition(": an AUROC")[0]
        entry["sentence"] = f"{what}; no model of the chains can reach more than an AUROC of {entry['auroc']:.3f} here."
    return entry


def _entry(
    check: str, title: str, what: str, scores: np.ndarray, Y: np.ndarray, classes: Sequence[str], either_way=False
) -> dict | None:
    return _judged(check, title, what, _aurocs(scores, Y, either_way), Y, classes)


def _judged(check, title: str, what: str, aurocs: list[float | None], Y: np.ndarray, classes: Sequence[str]) -> dict:
    defined = [auroc for auroc in aurocs if auroc is not None]
    macro = float(np.mean(defined)) if defined else None
    beyond = any(a is not None and a >= max(BOUND, _beyond_chance(y)) for a, y in zip(aurocs, Y.T))
    return {
        "check": check,
        "level": "bad" if beyond and macro >= BOUND else "fine",
        "title": title,
        "sentence": what + (": not defined." if macro is None else f": an AUROC of {macro:.2f} by itself."),
        "auroc": macro,
        "classes": dict(zip(classes, aurocs)),
    }


def _beyond_chance(y: np.ndarray) -> float:
    """The AUROC three standard errors above chance (of the Mann-Whitney statistic without ties)."""
    yes, no = int((y == 1).sum()), int((y == 0).sum())
    return 0.5 + 3 * np.sqrt((yes + no + 1) / (12 * yes * no)) if yes and no else 1.0


def _aurocs(scores: np.ndarray, Y: np.ndarray, either_way: bool) -> list[float | None]:
    found = [_auroc(score, y) for score, y in zip(scores.T, Y.T)]
    return [max(auroc, 1 - auroc) if either_way and auroc is not None else auroc for auroc in found]


def _auroc(scores: np.ndarray, y: np.ndarray) -> float | None:
    """Of the receptors known for a class; None where they have one label only."""
    known = y >= 0
    ranks, is_one = rankdata(scores[known]), y[known] == 1
    yes, no = int(is_one.sum()), int((~is_one).sum())
    return float((ranks[is_one].sum() - yes * (yes + 1) / 2) / (yes * no)) if yes and no else None
