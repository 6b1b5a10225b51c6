"""Classifiers by distance: density ratio, a stack of them, support vectors, neighbours; on loops or any vectors.

Four scikit-learn estimators over one pass of distance blocks, never an n x n table of a large set. ``metric`` says
what is compared: ``loops``, the loops and genes of a table of letters (``receptors.loops.LoopDistance``, whose
parameters are ``options``), or the rows of a matrix, by ``euclidean`` or ``cosine`` distance after scaling. A bandwidth
is a share of the usual distance between training receptors, so that 0.1 means about the same everywhere.

Labels are ``y`` of two classes, as scikit-learn has them, or Y, int (n, K) of K classes side by side: 1 positive, 0
negative, -1 unknown. ``predict_proba`` then gives P(positive) of each class, float64 (m, K); NaN for a class without
both labels. ``density_ratio_scores``, ``svc_scores`` and ``neighbor_scores`` give the same for a whole grid of
parameters, sharing the distances: what to tune with.

Letters: n training receptors, m others, K classes, G points of a grid, C columns of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from airrformer.classify.similarity import (
    Kernel,
    Metric,
    PartDistance,
    References,
    at_bandwidth,
    blocks_of,
    count_of,
    kernel_sums,
    least_squares,
    metric_of,
    near_fill,
    rows_of,
    scaled,
    scaling,
    spanning,
)
from airrformer.receptors.loops import AT_ONCE, Encoded, LoopDistance, chains_of, compared_columns, encode

_LEAST = 1e-30  # of a sum of kernels of which the largest is 1: nothing near


# ------------------------------------------------------------------------------------------------------- estimators


def _kernel(params: dict, references: References) -> Kernel:
    metric = metric_of(params["metric"], params["options"])
    return at_bandwidth(metric, params["bandwidth"], references, params["form"])


class ByDistance(ClassifierMixin, BaseEstimator):
    """What the three have in common: how X and labels are read and kept, and how scores become classes."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y):
        """Learn from X (n receptors) and y (n,) of two classes, or Y int8 (n, K) with 1, 0 and -1 for unknown."""
        y = _target(y)
        if metric_of(self.metric, self.options) != self.metric:
            columns = compared_columns(_checked_letters(X))
            self.references_ = {name: np.array(X[name].tolist(), dtype=str) for name in columns}
            self.n_features_in_ = X.shape[1]
            references = encode(self.references_)
        else:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=y.ndim == 2, ensure_min_samples=2
            )
            self.mean_, self.scale_ = scaling(X)
            references = self.references_ = self._scaled(X)
        self._learn(references, self._labels(y, X.shape[0]))
        return self

    def _labels(self, y: np.ndarray, n: int) -> np.ndarray:
        if len(y) != n:
            raise ValueError(f"X has {n} rows, but y {len(y)}")
        self.multi_ = y.ndim == 2
        if self.multi_:
            self.classes_ = np.array([0, 1])
            if not np.isin(y, (-1, 0, 1)).all():
                raise ValueError("Y holds 1 (positive), 0 (negative) and -1 (unknown) only")
            return y.astype(np.int8)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            # the sentence that scikit-learn's own checks look for
            raise ValueError(f"Only binary classification is supported. The target has {len(self.classes_)} classes.")
        if len(self.classes_) < 2:
            raise ValueError("This classifier needs samples of 2 classes; the data holds only one class.")
        return (y == self.classes_[1]).astype(np.int8)[:, None]

    def _scaled(self, X):
        return scaled(X, self.mean_, self.scale_)

    def _known(self) -> References:
        return encode(self.references_) if isinstance(self.references_, dict) else self.references_

    def _queries(self, X) -> References:
        check_is_fitted(self)
        if isinstance(self.references_, dict):
            return encode(_checked_letters(X))
        return self._scaled(validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64))

    def decision_function(self, X) -> np.ndarray:
        """Log odds, or signed distances: float64 (m,), or (m, K) after Y."""
        scores = self._scores(self._queries(X))
        return scores if self.multi_ else scores[:, 0]

    def predict_proba(self, X) -> np.ndarray:
        """P(positive) of each class, float64 (m, K); after y, of both classes, (m, 2)."""
        found = expit(self.decision_function(X))
        return found if self.multi_ else np.stack([1 - found, found], axis=1)

    def predict(self, X) -> np.ndarray:
        """The more probable class, or after Y whether each class is, int (m, K)."""
        positive = (self.decision_function(X) > 0).astype(int)
        return positive if self.multi_ else self.classes_[positive]


def _target(y) -> np.ndarray:
    """y (n,), or Y (n, K): a single column is Y where it is int8, else y that someone forgot to flatten."""
    if y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype != np.int8:
        return column_or_1d(y, warn=True)
    return y


def _checked_letters(X) -> pd.DataFrame:
    if not isinstance(X, pd.DataFrame) or not chains_of(X):
        raise ValueError(
            "metric 'loops' compares letters, a DataFrame with columns such as TRB_cdr3; "
            f"for a matrix (this is {type(X).__name__}) take metric 'euclidean' or 'cosine'"
        )
    return X


class KernelDensityRatio(ByDistance):
    """How much denser the positives lie around a receptor than the negatives: log mean kernel less log mean kernel.

    The log odds are this ratio plus the log of positives to negatives in training; ``bandwidth`` and ``form`` decide
    how far a training receptor reaches. Nothing is fitted, so a receptor of the training set is its own neighbour:
    judge by ``leave_one_out`` or on others.

    Args:
        bandwidth: h, as a share of the usual distance between training receptors.
        metric, options: see the module.
        form: ``exponential``, exp(-d / h), or ``gaussian``, exp(-(d / h)^2 / 2).
        background: how much the positives of other classes weigh among the negatives of a class for which they are
            unknown.
        controls: the same of receptors that are unknown for a class and positive for none.
    """

    def __init__(
        self, bandwidth=0.1, *, metric="loops", options=None, form="exponential", background=0.0, controls=0.0
    ):
        self.bandwidth = bandwidth
        self.metric = metric
        self.options = options
        self.form = form
        self.background = background
        self.controls = controls

    def _learn(self, references: References, Y: np.ndarray) -> None:
        self.Y_ = Y
        kernel = _kernel(self.get_params(), references)
        self.width_, self.fill_ = kernel.width, kernel.fill

    def _scores(self, queries: References, copies: np.ndarray | None = None) -> np.ndarray:
        kernel = Kernel(metric_of(self.metric, self.options), self.width_, self.form, self.fill_)
        weights = _label_weights(self.Y_)
        (sums,) = kernel_sums(queries, self._known(), [kernel], [weights], True, copies)
        return _log_odds(sums, weights, copies, self.background, self.controls)

    def leave_one_out(self, groups=None) -> np.ndarray:
        """Log odds of the training receptors themselves, each from the others that are no copies of it.

        groups: (n,), to leave out the whole group of each; None: receptors with the same letters or row.
        """
        check_is_fitted(self)
        references = self._known()
        scores = self._scores(references, _copies(references) if groups is None else _numbered(groups))
        return scores if self.multi_ else scores[:, 0]


def _numbered(groups) -> np.ndarray:
    return np.unique(np.asarray(groups), return_inverse=True)[1]


def _copies(references: References) -> np.ndarray:
    """The same number for receptors of which everything is the same, int (n,)."""
    if isinstance(references, Encoded):
        columns = np.stack([column.of for column in references.columns.values()], axis=1)
        return np.unique(columns, axis=0, return_inverse=True)[1].ravel()
    rows = references.toarray() if sparse.issparse(references) else references
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _label_weights(Y: np.ndarray) -> np.ndarray:
    """Columns to sum kernels by, float (n, 4 K): of each class positives, negatives, background and controls."""
    elsewhere = (Y == 1).any(axis=1, keepdims=True)
    return np.hstack([Y == 1, Y == 0, (Y == -1) & elsewhere, (Y == -1) & ~elsewhere]).astype(np.float64)


def _counts(weights: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """How much there is of each column, (C,); with ``copies`` for each receptor without its own copies, (n, C)."""
    total = weights.sum(axis=0)
    if copies is None:
        return total
    own = np.zeros((copies.max() + 1, weights.shape[1]))
    np.add.at(own, copies, weights)
    return total - own[copies]


def _log_odds(
    sums: np.ndarray, weights: np.ndarray, copies: np.ndarray | None, background: float, controls: float
) -> np.ndarray:
    """Log odds (m, K) from ``kernel @ weights``, the weights as ``_label_weights`` gives them."""
    n_positive, n_negative, *_ = np.split(weights.sum(axis=0), 4)
    counts = np.split(_counts(weights, copies), 4, axis=-1)
    positive, *others = np.split(sums, 4, axis=1)
    by = (1.0, background, controls)
    far = sum(weight * other for weight, other in zip(by, others))
    n_far = sum(weight * n for weight, n in zip(by, counts[1:]))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = _log_mean(positive, counts[0]) - _log_mean(far, n_far) + np.log(n_positive / n_negative)
    return np.where((n_positive > 0) & (n_negative > 0), scores, np.nan)


def _log_mean(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """0 where nothing is counted and summed."""
    return np.log(sums + _LEAST) - np.log(np.maximum(counts, _LEAST))


class DistanceSVC(ByDistance):
    """Support vector machines with the kernel of a distance, one a class.

    Beyond ``exact`` receptors it is a least-squares machine on ``landmarks`` of them, drawn by ``random_state``
    (Nystroem): as good, and much faster. ``predict_proba`` is the logistic function of the decision, to be calibrated
    by who needs probabilities.

    Args:
        C: how dear an error is; ``class_weight``: None or "balanced".
        background, controls: the weights of receptors that are unknown for a class, as its negatives, where they are
            positives of another class and where of none; 0 leaves them out.
        bandwidth, metric, options, form: as in ``KernelDensityRatio``.
    """

    def __init__(
        self,
        C=1.0,
        bandwidth=0.3,
        *,
        metric="loops",
        options=None,
        form="exponential",
        background=0.0,
        controls=0.0,
        class_weight=None,
        exact=6000,
        landmarks=2000,
        random_state=0,
    ):
        self.C = C
        self.bandwidth = bandwidth
        self.metric = metric
        self.options = options
        self.form = form
        self.background = background
        self.controls = controls
        self.class_weight = class_weight
        self.exact = exact
        self.landmarks = landmarks
        self.random_state = random_state

    def _learn(self, references: References, Y: np.ndarray) -> None:
        ((kernel, coefficients, intercepts),) = _fit_svcs([self.get_params()], references, Y)
        support = np.flatnonzero(coefficients.any(axis=1))
        if not len(support):
            support = np.array([0])
        if isinstance(self.references_, dict):
            self.references_ = {name: column[support] for name, column in self.references_.items()}
        else:
            self.references_ = self.references_[support]
        self.width_, self.fill_ = kernel.width, kernel.fill
        self.coef_, self.intercept_ = coefficients[support], intercepts

    def _scores(self, queries: References) -> np.ndarray:
        kernel = Kernel(metric_of(self.metric, self.options), self.width_, self.form, self.fill_)
        return kernel_sums(queries, self._known(), [kernel], [self.coef_], False)[0] + self.intercept_


def _fit_svcs(points: Sequence[dict], references: References, Y: np.ndarray) -> list:
    """For each point its kernel, coefficients (n, K) of the receptors and intercepts (K,).

    The distances of a class are computed once for all points of one metric.
    """
    kernels = [_kernel(point, references) for point in points]
    found = [(kernel, np.zeros(Y.shape), np.full(Y.shape[1], np.nan)) for kernel in kernels]
    elsewhere = (Y == 1).any(axis=1)
    every = range(len(points))
    groups = _alike(every, lambda i: (kernels[i].metric, points[i]["background"], points[i]["controls"]))
    for k, labels in enumerate(Y.T):
        if not (labels == 1).any() or not (labels == 0).any():
            continue
        for (metric, background, controls), these in groups:
            weights = np.where(labels >= 0, 1.0, np.where(elsewhere, background, controls))
            rows = np.flatnonzero(weights)
            y = (labels[rows] == 1).astype(int)
            _fit_class(these, points, found, references, rows, y, weights[rows], metric, k)
    return found


def _fit_class(these, points, found, references, rows, y, weights, metric, k) -> None:
    """One class under the points ``these``, all of one metric, into ``found``."""
    size_of = itemgetter("exact", "landmarks", "random_state")
    for size, same in _alike(these, lambda i: size_of(points[i])):
        chosen = spanning(len(rows), *size)
        some, near = rows_of(references, rows), rows_of(references, rows[chosen])
        pieces = [blocks[0] for _, blocks in blocks_of(some, near, [metric], AT_ONCE)]
        for _, of_kernel in _alike(same, lambda i: (found[i][0].width, found[i][0].form)):
            kernel = found[of_kernel[0]][0]
            table = np.concatenate([kernel.of(piece.distances(kernel.fill), None) for piece in pieces])
            for _, alike in _alike(of_kernel, lambda i: repr(points[i]["class_weight"])):
                balance = points[alike[0]]["class_weight"]
                Cs = [points[i]["C"] for i in alike]
                for i, (support, coefficients, intercept) in zip(
                    alike, _machines(table, chosen, y, weights, balance, Cs)
                ):
                    found[i][1][rows[support], k] = coefficients
                    found[i][2][k] = intercept


def _alike(points: Iterable[int], key: Callable[[int], Hashable]) -> list[tuple]:
    """Keys, and the points that share them, in the order of the first of each."""
    groups: dict[Hashable, list[int]] = {}
    for i in points:
        groups.setdefault(key(i), []).append(i)
    return list(groups.items())


def _machines(table, chosen, y, weights, balance, Cs) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """For each C the rows of the table that count, their coefficients, and the intercept."""
    if len(chosen) == len(table):
        for C in Cs:
            model = SVC(C=C, kernel="precomputed", class_weight=balance, cache_size=100)
            model.fit(table, y, sample_weight=weights)
            yield model.support_, model.dual_coef_[0], model.intercept_[0]
        return
    cost = weights * compute_sample_weight(balance, y)
    for coefficients, intercept in least_squares(table, chosen, 2.0 * y - 1, Cs, cost):
        yield chosen, coefficients, intercept


class DensityStack(ByDistance):
    """One logistic regression over log densities, shared by all classes: a stack of density ratios without folds.

    It sees of a receptor and a class the log odds of ``KernelDensityRatio`` in several views (all chains together at
    three bandwidths and by the nearer chain, each chain alone, each CDR3 alone, the genes alone; of vectors the same,
    with all but the CDR3 for the genes, or where nothing is said of their columns four bandwidths), of some views the
    densities behind them (positives, negatives, positives of other classes, controls),
    and how well the best other class claims the receptor. In training each receptor is seen from the others that are
    no copies of it, so that nothing is fitted to what it was made of. All classes share the coefficients, each
    weighing the same: small classes learn from large ones. With one class there is that class alone. Receptors that
    lack the same parts are centred by themselves: what a missing chain does to all densities tells no class.

    Trees in the place of the logistic regression look 0.007 AUROC better on folds that the densities were made of, and
    are no better in nested cross-validation (IMMREP22).

    Args:
        metric, options: as in ``KernelDensityRatio``; the views change ``smaller``, ``chains``, ``weights`` and genes.
        background, controls: as there, for the log odds.
        C: of the logistic regression, over standardised features.
        chains, loops: of vectors, how many chains stand side by side in X, and how many parts of one width each of
            them has, the last its CDR3 (pooling ``loops``: 3; a mean over the chain: 1).
    """

    def __init__(self, C=0.1, *, metric="loops", options=None, background=1.0, controls=0.3, chains=1, loops=1):
        self.C = C
        self.chains = chains
        self.loops = loops
        self.metric = metric
        self.options = options
        self.background = background
        self.controls = controls

    def _learn(self, references: References, Y: np.ndarray) -> None:
        self.Y_ = Y
        kernels = [at_bandwidth(metric, bandwidth, references) for metric, bandwidth, _ in self._views(references)]
        self.widths_, self.fills_ = [kernel.width for kernel in kernels], [kernel.fill for kernel in kernels]
        self.trained_ = np.flatnonzero((Y == 1).any(axis=0) & (Y == 0).any(axis=0))
        if not len(self.trained_):
            return
        labels = Y[:, self.trained_]
        rows, classes = np.nonzero(labels >= 0)
        features = self._features(references, references, _copies(references))[rows, classes]
        weights = 1 / np.bincount(classes)[classes]
        lacking = _lacking(references)
        self.shifts_ = _shifts(features, lacking, rows, weights)
        features -= _shift_of(self.shifts_, lacking[rows])
        self.stack_ = make_pipeline(StandardScaler(), LogisticRegression(C=self.C, max_iter=1000))
        self.stack_.fit(features, labels[rows, classes], logisticregression__sample_weight=weights / weights.mean())

    def _views(self, references: References) -> list[tuple[Metric, float, bool]]:
        """Metric, bandwidth, and whether its single densities are looked at, too."""
        base = metric_of(self.metric, self.options)
        if not isinstance(references, Encoded):
            if self.chains * self.loops > 1:
                return self._views_of_vectors(references.shape[1])
            return [(base, bandwidth, bandwidth == 0.2) for bandwidth in (0.05, 0.1, 0.2, 0.4)]
        chains = tuple(base.parts(references.columns))
        only_cdr3, only_genes = (0.0, 0.0, 1.0), (0.0, 0.0, 0.0)
        genes = dict(v_gene=1.0, j_gene=1.0)
        views = [(replace(base, chains=chains, smaller=0.65), bandwidth, b) for bandwidth, b in _BANDWIDTHS]
        if len(chains) > 1:
            views.append((replace(base, chains=chains, smaller=1.0), 0.08, False))
            views += [(replace(base, chains=(chain,), chain_weights=None), 0.1, True) for chain in chains]
        for chain in chains:
            views.append((replace(base, chains=(chain,), chain_weights=None, weights=only_cdr3), 0.12, False))
        views.append((replace(base, chains=chains, chain_weights=None, weights=only_genes, **genes), 0.4, True))
        return [view for view in views if _is_possible(view[0], references)]

    def _views_of_vectors(self, columns: int) -> list[tuple[Metric, float, bool]]:
        """The same of vectors: all, the nearer chain, each chain, each CDR3, and all but the CDR3s."""
        width = columns // self.chains
        part = width // self.loops
        starts = [chain * width for chain in range(self.chains)]
        whole = tuple((start, start + width) for start in starts)
        views = [(PartDistance(whole), bandwidth, single) for bandwidth, single in _BANDWIDTHS]
        if self.chains > 1:
            views += [(PartDistance(whole, 0.65), bandwidth, False) for bandwidth, _ in _BANDWIDTHS]
            views += [(PartDistance((chain,)), 0.1, True) for chain in whole]
        if self.loops > 1:
            last = (self.loops - 1) * part
            views += [(PartDistance(((start + last, start + last + part),)), 0.12, False) for start in starts]
            views.append((PartDistance(tuple((start, start + last) for start in starts)), 0.12, True))
        return views

    def _features(self, queries: References, references: References, copies: np.ndarray | None = None) -> np.ndarray:
        """What is stacked, float (m, K, D) of the K classes that are trained."""
        Y = self.Y_[:, self.trained_]
        weights = _label_weights(Y)
        views = self._views(references)
        kernels = [Kernel(v[0], width, "exponential", fill) for v, width, fill in zip(views, self.widths_, self.fills_)]
        counts = np.split(_counts(weights, copies), 4, axis=-1)
        features = []
        for (_, _, single), sums in zip(
            views, kernel_sums(queries, references, kernels, [weights] * len(views), True, copies)
        ):
            features.append(_log_odds(sums, weights, copies, self.background, self.controls))
            if single:
                everyone = _log_odds(sums, weights, copies, 1.0, 1.0)
                parts = [_log_mean(part, n) for part, n in zip(np.split(sums, 4, axis=1), counts)]
                features += [*parts, best_other(everyone)]
        return np.stack(features, axis=2)

    def _scores(self, queries: References) -> np.ndarray:
        m = count_of(queries)
        found = np.full((m, self.Y_.shape[1]), np.nan)
        if len(self.trained_):
            features = self._features(queries, self._known())
            features -= _shift_of(self.shifts_, _lacking(queries))[:, None]
            pairs = features.reshape(-1, features.shape[2])
            found[:, self.trained_] = self.stack_.decision_function(pairs).reshape(m, -1)
        return found


_BANDWIDTHS = ((0.04, False), (0.075, True), (0.13, False))
_FEW = 10.0  # receptors: the mean of fewer is mostly that of all


def _lacking(references: References) -> np.ndarray:
    """Which parts each receptor lacks, str (n,), a letter a column: x where it is missing; vectors lack none."""
    n = count_of(references)
    if not isinstance(references, Encoded) or not references.columns:
        return np.full(n, "", dtype=str)
    columns = [references.columns[name] for name in sorted(references.columns)]
    there = [np.array([bool(text) for text in column.texts])[column.of] for column in columns]
    return np.where(there, "-", "x").T.copy().view(f"U{len(there)}")[:, 0] if n else np.empty(0, dtype=str)


def _shifts(features: np.ndarray, lacking: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """How far the weighted mean features, (D,), of receptors that lack the same parts lie from those of all.

    ``features`` and ``weights`` are those of pairs of a receptor (``rows``) and a class.
    """
    everyone = np.average(features, axis=0, weights=weights)
    found = {}
    for parts in np.unique(lacking[rows]):
        same = lacking[rows] == parts
        n = len(np.unique(rows[same]))
        found[str(parts)] = (np.average(features[same], axis=0, weights=weights[same]) - everyone) * n / (n + _FEW)
    return found


def _shift_of(shifts: dict[str, np.ndarray], lacking: np.ndarray) -> np.ndarray:
    """That of each receptor, (m, D); nothing where training had none that lacks the same."""
    none = np.zeros_like(next(iter(shifts.values())))
    return np.stack([shifts.get(str(parts), none) for parts in lacking]) if len(lacking) else none[None][:0]


def _is_possible(metric: LoopDistance, references: Encoded) -> bool:
    try:
        return bool(metric.parts(references.columns))
    except ValueError:  # there are no genes
        return False


def best_other(scores: np.ndarray) -> np.ndarray:
    """The largest score among the other classes, (m, K); 0 where there is no other."""
    if scores.shape[1] == 1:
        return np.zeros_like(scores)
    order = np.argsort(scores, axis=1)
    best, second = (np.take_along_axis(scores, order[:, [-i]], axis=1) for i in (1, 2))
    return np.where(np.arange(scores.shape[1]) == order[:, [-1]], second, best)


class DistanceNeighbors(ByDistance):
    """The share of positives among the nearest training receptors of which the class is known, weighted by closeness.

    Weights are 1 / distance; where there are receptors at distance 0, they alone count.

    Args:
        n_neighbors: how many; all where there are fewer.
        metric, options: as in ``KernelDensityRatio``. ``{"cost": "edit", "weights": (0, 0, 1), "trim": False}`` is the
            edit distance of CDR3s, ``{}`` TCRdist's.
    """

    def __init__(self, n_neighbors=5, *, metric="loops", options=None):
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.options = options

    def _learn(self, references: References, Y: np.ndarray) -> None:
        self.Y_ = Y
        self.fill_ = near_fill(metric_of(self.metric, self.options), references)

    def predict_proba(self, X) -> np.ndarray:
        metric = metric_of(self.metric, self.options)
        queries = self._queries(X)
        points = [{"n_neighbors": self.n_neighbors}]
        found = _votes(queries, self._known(), self.Y_, metric, self.fill_, points)[0]
        return found if self.multi_ else np.hstack([1 - found, found])

    def decision_function(self, X) -> np.ndarray:
        """P(positive) - 1/2."""
        found = self.predict_proba(X) - 0.5
        return found if self.multi_ else found[:, 1]


def _votes(queries, references, Y: np.ndarray, metric: Metric, fill: dict, points: Sequence[dict]) -> np.ndarray:
    """Weighted shares, float64 (G, m, K): one look serves every number of neighbours."""
    most = max(point["n_neighbors"] for point in points)
    m = count_of(queries)
    found = np.full((len(points), m, Y.shape[1]), np.nan)
    # classes of which the same receptors are known have the same neighbours
    alike: dict[bytes, list[int]] = {}
    for k in np.flatnonzero((Y == 1).any(axis=0) & (Y == 0).any(axis=0)):
        alike.setdefault((Y[:, k] >= 0).tobytes(), []).append(k)
    for rows, (block,) in blocks_of(queries, references, [metric], AT_ONCE):
        distances = block.distances(fill)
        for classes in alike.values():
            known = np.flatnonzero(Y[:, classes[0]] >= 0)
            d = distances if len(known) == len(Y) else distances[:, known]
            nearest, closeness = closest(d, most)
            total = np.cumsum(closeness, axis=1)
            for k in classes:
                votes = np.cumsum(closeness * Y[known, k][nearest], axis=1)
                for g, point in enumerate(points):
                    last = min(point["n_neighbors"], nearest.shape[1]) - 1
                    found[g, rows, k] = votes[:, last] / total[:, last]
    return found


def closest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each row in order: their positions, int (m, k), and their weights, float64 (m, k)."""
    nearest = _nearest(distances, k)
    return nearest, _closeness(np.take_along_axis(distances, nearest, axis=1).astype(np.float64))


def _nearest(distances: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k nearest of each row in order, int (m, k); of equally near ones the first in the table."""
    m, n = distances.shape
    if k >= n:
        return np.argsort(distances, axis=1, kind="stable")
    bound = np.partition(distances, k - 1, axis=1)[:, k - 1]
    near = np.flatnonzero(distances <= bound[:, None])
    row, position = np.divmod(near, n)
    d = distances[row, position]
    # all that are nearer than the bound, then as many of those at it as are left, from the front
    at_bound = d == bound[row]
    room = k - np.bincount(row[~at_bound], minlength=m)
    so_far = np.cumsum(at_bound)
    first = np.searchsorted(row, np.arange(m))
    before = so_far[first] - at_bound[first]
    taken = ~at_bound | (so_far - before[row] <= room[row])
    positions = position[taken].reshape(m, k)
    order = np.argsort(d[taken].reshape(m, k), axis=1, kind="stable")
    return np.take_along_axis(positions, order, axis=1)


def _closeness(distances: np.ndarray) -> np.ndarray:
    """Weights 1 / distance of sorted neighbours; those at distance 0, where there are any, count alone."""
    same = distances == 0
    with np.errstate(divide="ignore"):
        return np.where(same.any(axis=1, keepdims=True), same, 1 / distances)


# ------------------------------------------------------------------------------------------------- a grid in one pass


def density_ratio_scores(X, Y: np.ndarray, X_test, points: Sequence[dict]) -> np.ndarray:
    """P(positive) of ``KernelDensityRatio(**point)`` for each point, float64 (G, m, K), from one pass of distances."""
    points, references, queries, Y = _read(KernelDensityRatio, X, Y, X_test, points)
    of = [_kernel_key(point) for point in points]
    kernels = {key: _kernel(points[of.index(key)], references) for key in dict.fromkeys(of)}
    weights = _label_weights(Y)
    sums = dict(zip(kernels, kernel_sums(queries, references, list(kernels.values()), [weights] * len(kernels), True)))
    found = [_log_odds(sums[key], weights, None, p["background"], p["controls"]) for key, p in zip(of, points)]
    return expit(np.stack(found))


def svc_scores(X, Y: np.ndarray, X_test, points: Sequence[dict]) -> np.ndarray:
    """P(positive) of ``DistanceSVC(**point)`` for each point, float64 (G, m, K)."""
    points, references, queries, Y = _read(DistanceSVC, X, Y, X_test, points)
    fitted = _fit_svcs(points, references, Y)
    kernels: dict[tuple, list[int]] = {}
    for i, point in enumerate(points):
        kernels.setdefault(_kernel_key(point), []).append(i)
    weights = [np.hstack([fitted[i][1] for i in same]) for same in kernels.values()]
    sums = kernel_sums(queries, references, [fitted[same[0]][0] for same in kernels.values()], weights, False)
    K = Y.shape[1]
    found = np.empty((len(points), len(sums[0]), K))
    for table, same in zip(sums, kernels.values()):
        for j, i in enumerate(same):
            found[i] = table[:, j * K : (j + 1) * K] + fitted[i][2]
    return expit(found)


def neighbor_scores(X, Y: np.ndarray, X_test, points: Sequence[dict]) -> np.ndarray:
    """P(positive) of ``DistanceNeighbors(**point)`` for each point, float64 (G, m, K)."""
    points, references, queries, Y = _read(DistanceNeighbors, X, Y, X_test, points)
    found: list[np.ndarray | None] = [None] * len(points)
    metrics = [metric_of(point["metric"], point["options"]) for point in points]
    for metric in dict.fromkeys(metrics):
        same = [i for i, other in enumerate(metrics) if other == metric]
        votes = _votes(queries, references, Y, metric, near_fill(metric, references), [points[i] for i in same])
        for i, scores in zip(same, votes):
            found[i] = scores
    return np.stack(found)


def _kernel_key(point: dict) -> tuple:
    return metric_of(point["metric"], point["options"]), point["bandwidth"], point["form"]


def _read(estimator: type[ByDistance], X, Y, X_test, points) -> tuple[list[dict], References, References, np.ndarray]:
    """Points with all parameters, and the data as ``fit`` and ``predict`` would read them."""
    points = [estimator(**point).get_params() for point in points]
    metrics = {point["metric"] for point in points}
    Y = np.asarray(Y).astype(np.int8)
    if metrics == {"loops"}:
        return points, encode(_without_sequences(X)), encode(_checked_letters(X_test)), Y
    if "loops" in metrics:
        raise ValueError("the points of a grid compare either loops or vectors")
    reader = estimator(metric="euclidean")
    X = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    X_test = sparse.csr_array(X_test) if sparse.issparse(X_test) else np.asarray(X_test, dtype=np.float64)
    reader.mean_, reader.scale_ = scaling(X)
    return points, reader._scaled(X), reader._scaled(X_test), Y


def _without_sequences(X: pd.DataFrame) -> pd.DataFrame:
    return _checked_letters(X)[compared_columns(X)]
