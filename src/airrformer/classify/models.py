"""The classifiers: scikit-learn pipelines, one binary problem a class, tuned within what they are given.

A kind is a row of ``FAMILIES``. ``fit`` sees a training fold and nothing else: the grid point and the thresholds come
from its inner folds, the scaler and the model from all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_distances
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from airrformer.classify.logistic import logistic_path
from airrformer.classify.metrics import auroc_by_column, best_threshold, mean_defined
from airrformer.config import Classifier, LogisticRegressionClassifier, NearestNeighborsClassifier

INNER_FOLDS = 3
_AT_ONCE = 5_000_000  # distances held at a time


@dataclass(frozen=True)
class Family:
    """A kind of classifier.

    grid: the settings to choose from, the most cautious first, which wins when several are equally good.
    estimator: an unfitted pipeline for one of them, to be fitted on X.
    grid_scores: probabilities (G, m, K) of m receptors for each grid point, learnt from X (n, D) and Y (n, K).
    """

    grid: Callable[[Classifier], list[dict]]
    estimator: Callable[..., Pipeline]
    grid_scores: Callable[..., np.ndarray]


@dataclass(frozen=True)
class Fitted:
    """A tuned and fitted classifier. ``trained``: bool (K,), the classes of which both labels were there."""

    estimator: Pipeline | None
    trained: np.ndarray
    thresholds: np.ndarray
    chosen: dict

    def scores(self, X) -> np.ndarray:
        """Probability of each class, float64 (m, K); NaN for classes that could not be trained."""
        scores = np.full((X.shape[0], len(self.trained)), np.nan)
        if self.estimator is not None:
            scores[:, self.trained] = probabilities(self.estimator, X, int(self.trained.sum()))
        return scores

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Whether each score reaches its class's threshold, bool (m, K); never where it is NaN."""
        return scores >= self.thresholds


def fit(settings: Classifier, X, Y: np.ndarray, inner_folds: np.ndarray) -> Fitted:
    """Choose the grid point and the thresholds by the inner folds, then fit on all of X (n, D), Y (n, K).

    ``inner_folds``: int (n,). The grid point with the best AUROC, averaged over inner folds and classes, serves all
    classes; each class has the threshold with the best MCC over its inner out-of-fold scores.
    """
    family = FAMILIES[settings.kind]
    grid = family.grid(settings)
    scores = np.full((len(grid), *Y.shape), np.nan)
    aurocs = []
    for fold in np.unique(inner_folds):
        held = inner_folds == fold
        trained = both_labels(Y[~held])
        if trained.any():
            # numpy puts the axis of `held` and `trained` together wherever a mask is; ix_ says it plainly
            scores[np.ix_(range(len(grid)), held, trained)] = family.grid_scores(
                settings, grid, X[~held], Y[~held][:, trained], X[held]
            )
        aurocs.append([auroc_by_column(Y[held], point) for point in scores[:, held]])
    quality = mean_defined(np.array(aurocs).transpose(0, 2, 1).reshape(-1, len(grid)))
    best = 0 if np.isnan(quality).all() else int(np.nanargmax(np.round(quality, 9)))

    trained = both_labels(Y)
    thresholds = np.array([best_threshold(Y[:, k], scores[best, :, k]) for k in range(Y.shape[1])])
    estimator = None
    if trained.any():
        estimator = family.estimator(settings, grid[best], X)
        estimator.fit(X, as_target(Y[:, trained]))
    return Fitted(estimator, trained, thresholds, grid[best])


def both_labels(Y: np.ndarray) -> np.ndarray:
    """The columns of Y that hold both labels, bool (K,)."""
    return Y.any(axis=0) & ~Y.all(axis=0)


def as_target(Y: np.ndarray) -> np.ndarray:
    """Y as scikit-learn takes it: int (n, K), or (n,) for one class."""
    return Y[:, 0].astype(int) if Y.shape[1] == 1 else Y.astype(int)


def probabilities(estimator: Pipeline, X, classes: int) -> np.ndarray:
    """P(positive) of each class, float64 (m, K), from any of scikit-learn's forms of ``predict_proba``."""
    found = estimator.predict_proba(X)
    if isinstance(found, list):  # one (m, 2) array a class
        return np.stack([column[:, 1] for column in found], axis=1)
    return found[:, 1:] if classes == 1 else found


def _scaler(X) -> StandardScaler | MaxAbsScaler:
    # centring would fill a sparse matrix
    return MaxAbsScaler() if sparse.issparse(X) else StandardScaler()


# ------------------------------------------------------------------------------------------------ logistic regression


def _logistic_grid(settings: LogisticRegressionClassifier) -> list[dict]:
    return [{"C": C} for C in sorted(set(settings.grid.C))]


def _logistic(settings: LogisticRegressionClassifier, point: dict, X) -> Pipeline:
    model = LogisticRegression(C=point["C"], class_weight=settings.class_weight, tol=1e-4, max_iter=1000)
    return Pipeline([("scale", _scaler(X)), ("classify", OneVsRestClassifier(model))])


def _logistic_scores(settings: LogisticRegressionClassifier, grid: list[dict], X, Y, X_test) -> np.ndarray:
    scaler = _scaler(X).fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    if sparse.issparse(X):  # k-mers that do not occur keep a coefficient of 0
        used = np.unique(X.indices)
        X, X_test = X[:, used], X_test[:, used]
    path = logistic_path(X, Y, [point["C"] for point in grid], balanced=settings.class_weight == "balanced")
    return np.stack([expit(X_test @ coefficients + intercepts) for coefficients, intercepts in path])


# ------------------------------------------------------------------------------------------------- nearest neighbours


def _neighbors_grid(settings: NearestNeighborsClassifier) -> list[dict]:
    return [{"n_neighbors": k} for k in sorted(set(settings.grid.n_neighbors), reverse=True)]


def _neighbors(settings: NearestNeighborsClassifier, point: dict, X) -> Pipeline:
    k = min(point["n_neighbors"], X.shape[0])
    model = KNeighborsClassifier(n_neighbors=k, metric="cosine", weights="distance", algorithm="brute")
    return Pipeline([("scale", _scaler(X)), ("classify", model)])


def _neighbors_scores(settings: NearestNeighborsClassifier, grid: list[dict], X, Y, X_test) -> np.ndarray:
    scaler = _scaler(X).fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    step = max(1, _AT_ONCE // X.shape[0])
    return np.concatenate(
        [_votes(grid, X, Y, X_test[start : start + step]) for start in range(0, X_test.shape[0], step)], axis=1
    )


def _votes(grid: list[dict], X, Y, X_test) -> np.ndarray:
    """The share of each class among the nearest, weighted by closeness (G, m, K); one look serves every k and class."""
    distances = cosine_distances(X_test, X)  # (m, n)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(point["n_neighbors"] for point in grid)]
    closeness = _closeness(np.take_along_axis(distances, nearest, axis=1))
    votes = np.cumsum(closeness[:, :, None] * Y[nearest], axis=1)  # (m, k, K)
    total = np.cumsum(closeness, axis=1)
    last = [min(point["n_neighbors"], nearest.shape[1]) - 1 for point in grid]
    return np.stack([votes[:, k] / total[:, k, None] for k in last])


def _closeness(distances: np.ndarray) -> np.ndarray:
    """Weights 1 / distance of sorted neighbours; those at distance 0, where there are any, count alone."""
    same = distances == 0
    with np.errstate(divide="ignore"):
        return np.where(same.any(axis=1, keepdims=True), same, 1 / distances)


FAMILIES: dict[str, Family] = {
    "logistic_regression": Family(_logistic_grid, _logistic, _logistic_scores),
    "k_nearest_neighbors": Family(_neighbors_grid, _neighbors, _neighbors_scores),
}
