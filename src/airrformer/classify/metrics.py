"""AUROC, AUPRC, AUC0.1 and MCC with bootstrap intervals, for all resamples at once.

A resample is a column of weights: how often each receptor was drawn. One sort of the scores then serves every
resample, and the metrics are sums of weights along it; column 0 is the data as they are. What is undefined (only one
label among the receptors) is NaN, never 0, 0.5 or 1.

Letters: n receptors of a data set, m receptors of one test fold, R columns of weights.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.stats import rankdata

METRICS: tuple[str, ...] = ("auroc", "auprc", "auc01", "mcc")
MAX_FPR = 0.1
_AT_ONCE = 1_000_000  # weights worked on at a time


def bootstrap_weights(n: int, resamples: int, seed: int) -> np.ndarray:
    """How often each of n receptors is drawn: uint8 (n, 1 + resamples); column 0 is all ones, the data themselves."""
    draws = np.random.default_rng(seed).integers(0, n, size=(resamples, n), dtype=np.int32)
    weights = np.ones((n, 1 + resamples), dtype=np.uint8)
    for column, drawn in enumerate(draws, start=1):
        weights[:, column] = np.bincount(drawn, minlength=n)
    return weights


def weighted_metrics(
    labels: np.ndarray, scores: np.ndarray, decisions: np.ndarray, weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Each metric under each column of weights: float64 (R,), NaN where it is undefined.

    labels, decisions: bool (m,); scores: float (m,), higher is more positive; weights: counts (m, R).
    Equal to scikit-learn's roc_auc_score, average_precision_score, roc_auc_score(max_fpr=0.1) (McClish 1989) and
    matthews_corrcoef with these sample weights. MCC is 0 when all decisions agree, as there.
    """
    step = max(1, _AT_ONCE // max(1, len(labels)))
    parts = [
        _weighted_metrics(labels, scores, decisions, weights[:, start : start + step])
        for start in range(0, weights.shape[1], step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in METRICS}


def _weighted_metrics(labels, scores, decisions, weights) -> dict[str, np.ndarray]:
    order = np.argsort(-scores, kind="stable")
    labels, scores, decisions, weights = labels[order], scores[order], decisions[order], weights[order]
    # A run is a stretch of equal scores. Each metric is a sum over the runs that hold positives (r of them), of how
    # many positives such a run adds and how many receptors were called before and with it.
    starts = np.flatnonzero(np.append(True, np.diff(scores) != 0))
    run_of = np.searchsorted(starts, np.flatnonzero(labels), side="right") - 1
    runs, first = np.unique(run_of, return_index=True)
    starts, ends = starts[runs], np.append(starts, len(labels))[runs + 1]
    rise = np.add.reduceat(weights[labels], first, axis=0, dtype=np.float64)  # (r, R)
    edges = np.unique(np.concatenate([[0], starts, ends[ends < len(labels)]]))
    called = np.cumsum(np.add.reduceat(weights, edges, axis=0, dtype=np.float64), axis=0)
    called = np.vstack([np.zeros_like(called[:1]), called])  # before each edge, and in all
    edges = np.append(edges, len(labels))
    before, after = called[np.searchsorted(edges, starts)], called[np.searchsorted(edges, ends)]

    tp_after = np.cumsum(rise, axis=0)
    fp_before, fp_after = before - (tp_after - rise), after - tp_after
    p = rise.sum(axis=0)
    n = called[-1] - p
    with np.errstate(divide="ignore", invalid="ignore"):
        auroc = (rise * (n - (fp_before + fp_after) / 2)).sum(axis=0) / (p * n)
        auprc = (rise * (tp_after / np.maximum(after, 1))).sum(axis=0) / p
        # area left of MAX_FPR: what a run adds counts from where it was added, ties along a slope
        width, left = fp_after - fp_before, np.maximum(MAX_FPR * n - fp_before, 0)
        area = (rise * np.where(left < width, left**2 / (2 * width), left - width / 2)).sum(axis=0) / (p * n)
        least, most = MAX_FPR**2 / 2, MAX_FPR
        auc01 = (1 + (area - least) / (most - least)) / 2

        hit = weights[labels & decisions].sum(axis=0, dtype=np.float64)
        false = weights[~labels & decisions].sum(axis=0, dtype=np.float64)
        norm = np.sqrt((hit + false) * p * (n - false + p - hit) * n)
        mcc = np.where(norm > 0, (hit * n - false * p) / norm, 0.0)
    defined = (p > 0) & (n > 0)
    values = dict(auroc=auroc, auprc=auprc, auc01=auc01, mcc=mcc)
    return {name: np.where(defined, value, np.nan) for name, value in values.items()}


def mean_defined(values: np.ndarray) -> np.ndarray:
    """Mean over axis 0 of what is defined; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=0)


def interval(values: np.ndarray) -> dict[str, float | None]:
    """``{"value", "low", "high"}`` of one metric: column 0, and the 2.5 % and 97.5 % points of the other columns.

    All null where the metric is undefined on the data themselves.
    """
    if np.isnan(values[0]):
        return {"value": None, "low": None, "high": None}
    resampled = values[1:][~np.isnan(values[1:])]
    low, high = np.quantile(resampled, [0.025, 0.975]) if len(resampled) else (values[0], values[0])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def auroc_by_column(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """AUROC of each column: float (columns,) from bool and float (m, columns); NaN with one label or a NaN score."""
    positives = labels.sum(axis=0)
    negatives = len(labels) - positives
    known = ~np.isnan(scores).any(axis=0)
    ranks = rankdata(np.where(known, scores, 0), axis=0)
    wins = (ranks * labels).sum(axis=0) - positives * (positives + 1) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(known & (positives > 0) & (negatives > 0), wins / (positives * negatives), np.nan)


def best_threshold(labels: np.ndarray, scores: np.ndarray) -> float:
    """The threshold with the largest MCC: score >= threshold is positive. It lies midway between two scores.

    0.5 where it cannot be chosen: one label only, or all scores the same. Scores that are NaN are left out.
    """
    known = ~np.isnan(scores)
    labels, scores = labels[known], scores[known]
    order = np.argsort(-scores, kind="stable")
    labels, scores = labels[order], scores[order]
    cuts = np.flatnonzero(np.diff(scores) != 0)  # positive up to and including this one
    positives, negatives = labels.sum(), (~labels).sum()
    if not len(cuts) or not positives or not negatives:
        return 0.5
    tp, fp = np.cumsum(labels)[cuts], np.cumsum(~labels)[cuts]
    called = tp + fp
    mcc = (tp * negatives - fp * positives) / np.sqrt(
        1.0 * called * (len(labels) - called) * positives * negatives
    )  # tp*tn - fp*fn is the same as tp*N - fp*P
    cut = cuts[int(np.argmax(np.round(mcc, 12)))]
    return float((scores[cut] + scores[cut + 1]) / 2)
