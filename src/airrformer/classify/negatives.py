"""Who counts as not of a class: said so, taken from the other classes, or from receptors of which nothing is known.

A receptor that is known to be of a class is never drawn as its negative, nor is one with the same chains: a receptor
that binds two peptides is a positive of both, however its rows are spread. Which negatives are drawn hangs on ids and
never on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pandas as pd

from airrformer.config import Negatives
from airrformer.parse.labels import NEGATIVE_CLASSES
from airrformer.receptors.splits import class_lists

METHODS = ("", "given", "swapped", "background")  # how a negative came to be one; the first is no negative
GIVEN, SWAPPED, BACKGROUND = 1, 2, 3
EXCLUDED = 255  # not drawn, and unknown: a receptor with the same chains is of the class


def label_matrix(
    receptors: pd.DataFrame,
    classes: Sequence[str],
    settings: Negatives,
    folds: np.ndarray,
    seed: int,
    same: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Who is of which class: Y int8 (n, K), 1 or 0, -1 where unknown; and by which of ``METHODS``, uint8 (n, K).

    given: the receptor's ``not_label`` names the class, or, with one class, its label is 0 or -1. Such a negative
    stays one even if a receptor with the same chains is of the class: the rows contradict each other, which
    ``leakage.shortcut_leaks`` warns of. swapped: it is of another class. background: it has no label at all.
    Without ``settings.methods`` negatives are those given, if any receptor is said not to be of something, else
    swapped. With ``settings.ratio`` so many swapped and so many background negatives a positive are drawn, for each
    class within each of ``folds``; the others are unknown. Where there are fewer, all are taken.

    Args:
        receptors: n rows: ``receptor_id``, ``label`` and, where there is one, ``not_label`` (lists of classes).
        folds: int (n,), in which a receptor is tested; those of -1 are drawn from among themselves.
        same: int (n,), equal for receptors with the same chains; None: there are no such.
    """
    n, K = len(receptors), len(classes)
    labels, not_labels = class_lists(receptors), class_lists(receptors, "not_label")
    is_one, said_not = _named(labels, classes), _named(not_labels, classes)
    lack = _lack_of(classes, labels)
    if lack:
        said_not |= np.array([[bool(lack & set(names))] for names in labels])
    methods = settings.methods or (["given"] if lack or any(not_labels) else ["swapped"])

    Y, method = np.full((n, K), -1, dtype=np.int8), np.zeros((n, K), dtype=np.uint8)
    if "given" in methods:
        Y[said_not], method[said_not] = 0, GIVEN
    Y[is_one], method[is_one] = 1, 0

    same = np.arange(n) if same is None else np.asarray(same)
    binds = np.zeros((same.max(initial=-1) + 1, K), dtype=bool)
    np.logical_or.at(binds, same, is_one)
    of_some = np.array([any(name not in lack for name in names) for names in labels], dtype=bool)
    unlabelled = np.array([not (names or others) for names, others in zip(labels, not_labels)], dtype=bool)
    for code, candidates in ((SWAPPED, of_some), (BACKGROUND, unlabelled)):
        if METHODS[code] not in methods:
            continue
        free = candidates[:, None] & (Y == -1)
        method[free & binds[same]] = EXCLUDED
        free &= ~binds[same]
        if settings.ratio is not None:
            free = _drawn(free, is_one, settings.ratio, receptors["receptor_id"].tolist(), classes, folds, seed)
        Y[free], method[free] = 0, code
    return Y, method


def summary(Y: np.ndarray, method: np.ndarray, classes: Sequence[str], settings: Negatives, seed: int) -> dict:
    """What metrics.json says of the negatives of one cross-validation.

    ``excluded``: receptors that were not drawn because one with the same chains is of the class.
    """
    used = [name for code, name in enumerate(METHODS) if code and (method == code).any()]
    counts = {}
    for name, y, how in zip(classes, Y.T, method.T):
        counts[name] = {"positives": int((y == 1).sum())}
        counts[name] |= {kind: int((how == METHODS.index(kind)).sum()) for kind in used}
        counts[name] |= {"unknown": int((y == -1).sum()), "excluded": int((how == EXCLUDED).sum())}
    return {
        "methods": list(settings.methods) if settings.methods else used,
        "ratio": settings.ratio,
        "seed": seed,
        "excluded": int((method == EXCLUDED).sum()),
        "classes": counts,
    }


def shortfalls(found: dict, folds: int) -> list[str]:
    """A sentence for each class and kind of negatives of which there are fewer than ``ratio`` asks; of ``summary``."""
    if found["ratio"] is None:
        return []
    notes = []
    for name, counts in found["classes"].items():
        for kind in ("swapped", "background"):
            wanted = found["ratio"] * counts["positives"]
            if kind in found["methods"] and counts.get(kind, 0) < wanted - folds:  # each fold rounds
                notes.append(
                    f"{name}: {counts.get(kind, 0)} {kind} negatives, where a ratio of {found['ratio']:g} asks for "
                    f"{wanted:.0f}: there are no more."
                )
    return notes


def _named(lists: list[list[str]], classes: Sequence[str]) -> np.ndarray:
    """bool (n, K)"""
    return np.array([[name in names for name in classes] for names in lists], dtype=bool).reshape(
        len(lists), len(classes)
    )


def _lack_of(classes: Sequence[str], labels: list[list[str]]) -> set[str]:
    """The labels 0 and -1 where they stand for the lack of the one class that there is."""
    negative = set(NEGATIVE_CLASSES)
    present = {name for names in labels for name in names}
    return present & negative if len(classes) == 1 and not present - negative - set(classes) else set()


def _drawn(
    free: np.ndarray,
    is_one: np.ndarray,
    ratio: float,
    ids: list[str],
    classes: Sequence[str],
    folds: np.ndarray,
    seed: int,
) -> np.ndarray:
    """``ratio`` of the free ones for each positive of a class in a fold: bool (n, K)."""
    drawn = np.zeros_like(free)
    for fold in np.unique(folds):
        here = folds == fold
        for k, name in enumerate(classes):
            wanted = int(ratio * (here & is_one[:, k]).sum() + 0.5)
            lot = sorted(np.flatnonzero(here & free[:, k]), key=lambda i: _hash(seed, fold, name, ids[i]))
            drawn[lot[:wanted], k] = True
    return drawn


def _hash(*what) -> bytes:
    return blake2b("\x1f".join(map(str, what)).encode(), digest_size=16).digest()
