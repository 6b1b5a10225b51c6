"""How good predictions are, with bootstrap intervals, for all resamples at once.

A resample is a column of weights: how often each receptor was drawn. One sort of the scores then serves every
resample, and the metrics are sums of weights along it; column 0 is the data as they are. What is undefined (only one
label among the receptors) is NaN, never 0, 0.5 or 1. Receptors without a known label are left out by the caller, from
labels, scores and weights alike.

Ranking and decisions: ``weighted_metrics``, ``precision_at_k``, ``top_k_accuracy``. Probabilities: ``brier``, ``ece``.
Regression: ``regression_metrics``. Over classes: ``macro_interval``, and ``pooled_auroc``, which misleads.

Letters: n receptors of a data set, m receptors of one test fold, K classes, R columns of weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata

METRICS: tuple[str, ...] = ("auroc", "auprc", "auc01", "mcc")
REGRESSION_METRICS: tuple[str, ...] = ("spearman", "pearson", "rmse")
MAX_FPR = 0.1
ECE_BINS = 10
POOLED_IS_MISLEADING = (
    "The pooled AUROC is misleading: it ranks the (receptor, class) pairs of all classes against one another, but the "
    "scores of different classes are not on one scale and the classes differ in prevalence, so that it rewards knowing "
    "which class is common and can be high where no class is told from its negatives; read the macro average."
)
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
    measured = _in_parts(lambda part: _weighted_metrics(labels, scores, decisions, part), weights)
    return dict(zip(METRICS, measured))


def _in_parts(measure: Callable[[np.ndarray], np.ndarray], weights: np.ndarray) -> np.ndarray:
    """``measure(weights)``, float64 (..., R), some columns at a time, so that memory stays bounded."""
    step = max(1, _AT_ONCE // max(1, len(weights)))
    return np.concatenate(
        [measure(weights[:, start : start + step]) for start in range(0, weights.shape[1], step)], axis=-1
    )


def _weighted_metrics(labels, scores, decisions, weights) -> np.ndarray:
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
    return np.where(defined, [auroc, auprc, auc01, mcc], np.nan)


def weighted_auroc(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """AUROC of many models on the same receptors under the same resamples: float64 (M, R), NaN with one label.

    labels: bool (m,); scores: float (m, M), no NaN; weights: counts (m, R). The numbers of ``weighted_metrics``, for
    when nothing else is asked for: only the weights between two positives are summed, by a sparse product.
    """
    if labels.all() or not labels.any():
        return np.full((scores.shape[1], weights.shape[1]), np.nan)
    rankings = [_ranking(column[labels], column[~labels]) for column in scores.T]

    def measure(weights):
        positive, negative = weights[labels].astype(np.float32), weights[~labels].astype(np.float32)  # exact to 2**24
        wins = np.empty((len(rankings), weights.shape[1]))
        for row, (between, below, to) in zip(wins, rankings):
            beaten = np.cumsum(between @ negative, axis=0)
            row[:] = np.einsum("pr,pr->r", positive, beaten[below] + beaten[to], dtype=np.float64) / 2
        pairs = positive.sum(axis=0, dtype=np.float64) * negative.sum(axis=0, dtype=np.float64)
        return np.where(pairs > 0, wins / np.maximum(pairs, 1), np.nan)

    return _in_parts(measure, weights)


def _ranking(positives: np.ndarray, negatives: np.ndarray) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Which negatives lie between two edges, 0/1 (edges, negatives), and for each positive two edges.

    All negatives up to its first edge score lower than the positive, all up to its second lower or the same.
    """
    order = np.argsort(negatives, kind="stable")
    below, to = (np.searchsorted(negatives[order], positives, side=side) for side in ("left", "right"))
    ends, edges = np.unique(np.concatenate([below, to]), return_inverse=True)
    used = order[: ends[-1]]
    between = csr_array(
        (np.ones(len(used), dtype=np.float32), used, np.append(0, ends)), shape=(len(ends), len(negatives))
    )
    return between, edges[: len(positives)], edges[len(positives) :]


def precision_at_k(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray, k: int) -> np.ndarray:
    """Share of positives among the k highest scores: float64 (R,).

    labels: bool (m,); scores: float (m,); weights: counts (m, R). Receptors that tie for the last places share them:
    the value is the mean over all orders of the tied. NaN with fewer than k receptors or with one label.
    """
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(scores[order]) != 0))[: len(order)]
    ends = np.append(starts, len(order))[1:]

    def measure(weights):
        total = weights.sum(axis=0, dtype=np.float64)
        positives = weights[labels].sum(axis=0, dtype=np.float64)
        defined = (positives > 0) & (positives < total) & (total >= k)
        if not defined.any():
            return np.full(len(total), np.nan)
        runs = 0  # of equal scores from the top, as many as hold k receptors in every resample that has them
        held = np.zeros(len(total))
        while (held < k)[defined].any():
            more = min(len(ends), 2 * runs + 2 * k)
            held += weights[order[ends[runs - 1] if runs else 0 : ends[more - 1]]].sum(axis=0)
            runs = more
        top = order[: ends[runs - 1]]
        called = np.add.reduceat(weights[top], starts[:runs], axis=0, dtype=np.float64)  # (runs, R)
        hits = np.add.reduceat(weights[top] * labels[top, None], starts[:runs], axis=0, dtype=np.float64)
        before = np.cumsum(called, axis=0) - called
        taken = np.clip(k - before, 0, called) / np.maximum(called, 1)
        return np.where(defined, (hits * taken).sum(axis=0) / k, np.nan)

    return _in_parts(measure, weights)


def top_k_accuracy(Y: np.ndarray, scores: np.ndarray, weights: np.ndarray, k: int) -> np.ndarray:
    """Share of receptors whose class is among their k best scored classes: float64 (R,).

    Y: 1 where a receptor has a class, (n, K); scores: float (n, K); weights: counts (n, R). Classes that tie for the
    last places share them. Receptors with no class, with several, or with a class without a score are left out. NaN
    where it says nothing: fewer than 3 classes, k not below their number, no receptor left. Scores of one-against-rest
    classifiers are compared across classes here: calibrate them first.
    """
    one = Y == 1
    judged = (one.sum(axis=1) == 1) & ~np.isnan(scores).any(axis=1)
    if Y.shape[1] < 3 or k >= Y.shape[1] or not judged.any():
        return np.full(weights.shape[1], np.nan)
    one, scores, weights = one[judged], scores[judged], weights[judged]
    own = scores[one][:, None]
    above, tied = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    hits = np.clip((k - above) / tied, 0, 1)
    hits, total = _in_parts(lambda part: np.stack([hits, np.ones(len(hits))]) @ part.astype(np.float64), weights)
    return np.where(total > 0, hits / np.maximum(total, 1), np.nan)


def brier(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean squared distance between probability and label (Brier 1950), lower is better: float64 (R,).

    labels: bool (m,); probabilities: float in [0, 1] (m,); weights: counts (m, R). NaN with one label.
    """
    terms = np.stack([(probabilities - labels) ** 2, labels, np.ones(len(labels))])
    loss, positives, total = _in_parts(lambda part: terms @ part.astype(np.float64), weights)
    return np.where((positives > 0) & (positives < total), loss / np.maximum(total, 1), np.nan)


def ece(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray, bins: int = ECE_BINS) -> np.ndarray:
    """Expected calibration error, lower is better: float64 (R,).

    The receptors are cut by their probability into bins of equal number; the error is the mean over the receptors of
    how far the mean probability of their bin lies from its share of positives. Equal number and not equal width: with
    a few per cent of positives nearly all probabilities lie in the lowest tenth, where bins of equal width see one
    value, and the rest hold too few receptors to speak of (Nixon et al. 2019; less biased too, Roelofs et al. 2022).
    Equal probabilities stay in one bin, the one of their middle rank, so that no order of rows decides.

    labels: bool (m,); probabilities: float (m,); weights: counts (m, R). NaN with one label. Chance alone makes it
    larger than 0, by up to a third of sqrt(bins / m), and resampling adds to that: compare on the same receptors only.
    """
    m = len(labels)
    if labels.all() or not labels.any():
        return np.full(weights.shape[1], np.nan)
    order = np.argsort(probabilities, kind="stable")
    excess = (probabilities - labels)[order].astype(np.float64)
    edges = np.append(np.flatnonzero(np.append(True, np.diff(probabilities[order]) != 0)), m)  # of equal probabilities

    def measure(weights):
        R = weights.shape[1]
        positives, total = weights[labels].sum(axis=0, dtype=np.int64), weights.sum(axis=0, dtype=np.int64)
        drawn = np.ascontiguousarray(weights[order].T, dtype=np.int32)  # (R, m)
        upto = np.zeros((R, m + 1), dtype=np.int32)
        np.cumsum(drawn, axis=1, out=upto[:, 1:])
        # Twice the middle ranks, from 0 to 2 * total, and where the bins end: whole numbers, so that no rounding
        # decides. Each resample is moved beyond the one before, and one search serves all.
        beyond = np.arange(R)[:, None] * (2 * total.max() + 1)
        middle = upto[:, edges[:-1]] + upto[:, edges[1:]] + beyond
        limits = beyond - 2 * total[:, None] * np.arange(bins) // -bins
        begins = edges[np.searchsorted(middle.ravel(), limits) - np.arange(R)[:, None] * middle.shape[1]]  # (R, bins)
        sums = np.append(drawn * excess, 0.0)
        sums = np.add.reduceat(sums, (begins + np.arange(R)[:, None] * m).ravel()).reshape(R, bins)
        filled = np.diff(begins, axis=1, append=m) > 0  # of an empty bin reduceat gives what comes next
        error = np.abs(sums * filled).sum(axis=1)
        return np.where((positives > 0) & (positives < total), error / np.maximum(total, 1), np.nan)

    return _in_parts(measure, weights)


def regression_metrics(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """``{"spearman", "pearson", "rmse"}`` of a regression, each float64 (R,).

    y, predicted: float (m,), no NaN; weights: counts (m, R). Equal to scipy's spearmanr and pearsonr on rows repeated
    by their weights; both are NaN where y or the predictions are constant. RMSE is in the unit of y.
    """
    measured = _in_parts(lambda part: _regression_metrics(y, predicted, part), weights)
    return dict(zip(REGRESSION_METRICS, measured))


def spearman(y: np.ndarray, predicted: np.ndarray) -> float:
    """Rank correlation of two float (m,), ties at their middle rank; NaN where one is constant, is NaN or m < 2."""
    if not len(y) or np.isnan(y).any() or np.isnan(predicted).any():
        return np.nan
    return float(regression_metrics(y, predicted, np.ones((len(y), 1), dtype=np.uint8))["spearman"][0])


def _regression_metrics(y, predicted, weights) -> np.ndarray:
    total = weights.sum(axis=0, dtype=np.float64)
    (a, varied_a), (b, varied_b) = (_centred_ranks(values, weights) for values in (y, predicted))
    varied = varied_a & varied_b
    weighted_a, weighted_b = weights * a, weights * b
    square_a, square_b = (weighted_a * a).sum(axis=0), (weighted_b * b).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spearman = (weighted_a * b).sum(axis=0) / np.sqrt(square_a * square_b)
        # moments about the mean of the data, in units of their spread: nothing cancels
        x, z = _standardised(y), _standardised(predicted)
        mean_x, mean_z, xx, zz, xz = (np.stack([x, z, x * x, z * z, x * z]) @ weights.astype(np.float64)) / total
        pearson = (xz - mean_x * mean_z) / np.sqrt((xx - mean_x**2) * (zz - mean_z**2))
        rmse = np.sqrt((y - predicted) ** 2 @ weights / total)
    correlations = np.where(varied, np.clip([spearman, pearson], -1, 1), np.nan)
    return np.vstack([correlations, rmse])


def _centred_ranks(values, weights) -> tuple[np.ndarray, np.ndarray]:
    """Ranks in each resample less their mean, float64 (m, R), ties at their middle; and whether values vary, (R,)."""
    if not len(values):
        return np.empty(weights.shape), np.zeros(weights.shape[1], dtype=bool)
    distinct, run_of = np.unique(values, return_inverse=True)
    order = np.argsort(run_of, kind="stable")
    starts = np.searchsorted(run_of[order], np.arange(len(distinct)))
    run = np.add.reduceat(weights[order], starts, axis=0, dtype=np.float64)  # (distinct values, R)
    ranks = np.cumsum(run, axis=0) - (run + run.sum(axis=0)) / 2
    return ranks[run_of], (run > 0).sum(axis=0) > 1


def _standardised(values) -> np.ndarray:
    spread = values.std() if len(values) else 0
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))


def mean_defined(values: np.ndarray) -> np.ndarray:
    """Mean over axis 0 of what is defined; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=0)


def interval(values: np.ndarray) -> dict[str, float | None]:
    """``{"value", "low", "high"}`` of one metric: column 0, and the 2.5 % and 97.5 % points of the other columns.

    All null where the metric is undefined on the data themselves. The interval always holds the value: where
    resampling by itself makes a metric larger, as it does ``ece``, it is widened to it.
    """
    if np.isnan(values[0]):
        return {"value": None, "low": None, "high": None}
    resampled = values[1:][~np.isnan(values[1:])]
    low, high = np.quantile(resampled, [0.025, 0.975]) if len(resampled) else (values[0], values[0])
    return {"value": float(values[0]), "low": float(min(low, values[0])), "high": float(max(high, values[0]))}


def macro_interval(by_class: np.ndarray, seed: int) -> dict[str, float | None]:
    """``{"value", "low", "high"}`` of the mean over classes, receptors AND classes resampled.

    by_class: float (K, R), one metric of each class; column 0 the data, the others resamples of the receptors, the same
    draw for all classes. In each resample K classes are drawn with replacement as well. Classes that are undefined on
    the data are left out. With one class it is ``interval``.

    The interval speaks of the mean over other receptors of other classes that were chosen as these were: it asks
    whether the macro average would hold for new epitopes, not only for new receptors of these. (For these classes
    alone, receptors drawn anew: ``interval(mean_defined(by_class))``, which is narrower.) Drawing both ways counts the
    receptors' chance about twice, so it errs on the wide side (Owen 2007); of fewer than about 5 classes no resampling
    tells much. Models and folds are held fixed.
    """
    by_class = by_class[~np.isnan(by_class[:, 0])]
    K, R = by_class.shape
    if not K:
        return {"value": None, "low": None, "high": None}
    drawn = np.random.default_rng(seed).integers(0, K, size=(K, R))
    drawn[:, 0] = np.arange(K)
    return interval(mean_defined(np.take_along_axis(by_class, drawn, axis=0)))


def pooled_auroc(labels: np.ndarray, scores: np.ndarray, known: np.ndarray) -> float:
    """AUROC over all (receptor, class) pairs at once; NaN with one label. It misleads: show it with that sentence.

    labels: 1 or True where positive, (n, K); scores: float (n, K); known: bool (n, K), the pairs with a known label;
    pairs without a score are left out. Why it misleads: the scores of different classes come from different
    classifiers and are not on one scale, and their prevalence differs, so a score that only says how common a class is
    ranks most pairs rightly although each class by itself is at 0.5. ``POOLED_IS_MISLEADING`` says so to the reader.
    """
    known = known & ~np.isnan(scores)
    return float(auroc_by_column(labels[known][:, None] == 1, scores[known][:, None])[0])


def auroc_by_column(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """AUROC of each column: float (columns,) from labels and float scores (m, columns).

    labels: 1 or True positive, 0 or False negative, anything else unknown, which is left out. NaN with one label or a
    NaN score of a known label.
    """
    positive, negative = labels == 1, labels == 0
    positives, negatives = positive.sum(axis=0), negative.sum(axis=0)
    unscored = (np.isnan(scores) & (positive | negative)).any(axis=0)
    # at the top, what does not count changes no other rank
    ranks = rankdata(np.where((positive | negative) & ~unscored, scores, np.inf), axis=0)
    wins = (ranks * positive).sum(axis=0) - positives * (positives + 1) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(~unscored & (positives > 0) & (negatives > 0), wins / (positives * negatives), np.nan)


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
