"""Binary classifiers of vectors beyond logistic regression and nearest neighbours.

A kind is a row of ``KINDS``: how an unfitted estimator is built. All are
scikit-learn estimators with ``predict_proba``; probabilities of the support vector machines are a sigmoid of the margin
and of no meaning until they are calibrated outside. X is float64 (n, D), dense or ``csr_array``; where it should be
scaled (``scaled``), that is the caller's, within the fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

DENSE_COLUMNS = 2000  # of a sparse matrix, for models that need it dense
_AT_ONCE = 20_000_000  # kernel values held at a time


class _Margins(ClassifierMixin):
    """Two classes told apart by the sign of ``decision_function``."""

    def predict_proba(self, X) -> np.ndarray:
        positive = expit(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X) -> np.ndarray:
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def _two_classes(self, y) -> np.ndarray:
        """y as 0 and 1; learns ``classes_``."""
        check_classification_targets(y)
        if type_of_target(y, input_name="y", raise_unknown=True) != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {type_of_target(y)}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        return codes


class LinearSVM(_Margins, BaseEstimator):
    """Linear support vector machine (squared hinge loss), for dense and sparse X."""

    def __init__(self, C=1.0, class_weight=None):
        self.C = C
        self.class_weight = class_weight

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        codes = self._two_classes(y)
        # in the dual when there are more columns than rows; the order of its steps is drawn
        model = LinearSVC(C=self.C, class_weight=self.class_weight, dual="auto", max_iter=5000, random_state=0)
        model.fit(X, codes)
        self.coef_, self.intercept_ = model.coef_[0], float(model.intercept_[0])
        return self

    def decision_function(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return X @ self.coef_ + self.intercept_


class RBFSVM(_Margins, BaseEstimator):
    """Support vector machine with a Gaussian kernel, for any number of rows.

    Parameters
    ----------
    C: how much an error costs.
    gamma: the kernel's width as a multiple of 1 / (D * variance of X), scikit-learn's ``scale``.
    max_rows: up to so many rows of training the machine is exact (n x n kernel values are held, 288 MB for 6,000);
        beyond, a linear one on the Nystroem approximation with ``landmarks`` rows drawn by ``random_state``.

    Either way what is kept is ``vectors_``, ``weights_`` and ``intercept_``: margin = kernel(x, vectors) @ weights + b.
    """

    def __init__(self, C=1.0, gamma=1.0, class_weight=None, max_rows=6000, landmarks=1000, random_state=0):
        self.C = C
        self.gamma = gamma
        self.class_weight = class_weight
        self.max_rows = max_rows
        self.landmarks = landmarks
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        codes = self._two_classes(y)
        variance = (X.multiply(X).mean() - X.mean() ** 2) if sparse.issparse(X) else X.var()
        self.gamma_ = float(self.gamma / (X.shape[1] * variance)) if variance > 0 else 1.0
        if X.shape[0] <= self.max_rows:
            model = SVC(C=self.C, kernel="precomputed", class_weight=self.class_weight, cache_size=500)
            model.fit(rbf_kernel(X, gamma=self.gamma_), codes)
            self.vectors_, self.weights_ = X[model.support_], model.dual_coef_[0]
            self.intercept_ = float(model.intercept_[0])
            return self
        drawn = np.random.default_rng(self.random_state).choice(X.shape[0], self.landmarks, replace=False)
        self.vectors_ = X[np.sort(drawn)]
        values, axes = np.linalg.eigh(rbf_kernel(self.vectors_, gamma=self.gamma_))
        whiten = axes / np.sqrt(np.maximum(values, 1e-12))
        model = LinearSVC(C=self.C, class_weight=self.class_weight, dual=False, max_iter=5000)
        model.fit(self._kernel_times(X, whiten), codes)
        self.weights_, self.intercept_ = whiten @ model.coef_[0], float(model.intercept_[0])
        return self

    def decision_function(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._kernel_times(X, self.weights_) + self.intercept_

    def _kernel_times(self, X, weights: np.ndarray) -> np.ndarray:
        """kernel(X, vectors) @ weights, a block of rows at a time."""
        step = max(1, _AT_ONCE // max(1, self.vectors_.shape[0]))
        blocks = [X[start : start + step] for start in range(0, X.shape[0], step)]
        return np.concatenate([rbf_kernel(block, self.vectors_, gamma=self.gamma_) @ weights for block in blocks])


class Boosting(ClassifierMixin, BaseEstimator):
    """Histogram gradient boosting, of sparse X too (made dense: the ``DENSE_COLUMNS`` that vary most).

    ``categories``: X are small whole numbers without an order, such as the ``codes`` of ``LettersOneHot``.
    """

    def __init__(
        self,
        max_iter=200,
        learning_rate=0.1,
        max_leaf_nodes=15,
        min_samples_leaf=20,
        l2_regularization=1.0,
        max_features=1.0,
        categories=False,
        random_state=0,
    ):
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.l2_regularization = l2_regularization
        self.max_features = max_features
        self.categories = categories
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        settings = self.get_params()
        categories = settings.pop("categories")
        self.dense_ = Densify().fit(X)
        X = self.dense_.transform(X)
        self.model_ = HistGradientBoostingClassifier(
            **settings, early_stopping=False, categorical_features=np.full(X.shape[1], True) if categories else None
        ).fit(X, y)
        self.classes_, self.n_iter_ = self.model_.classes_, self.model_.n_iter_
        return self

    def predict_proba(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.model_.predict_proba(self.dense_.transform(X))

    def predict(self, X) -> np.ndarray:
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Densify(TransformerMixin, BaseEstimator):
    """Sparse X as a dense float32 array of the ``max_columns`` that vary most, in their order; dense X as it is."""

    def __init__(self, max_columns=DENSE_COLUMNS):
        self.max_columns = max_columns

    def fit(self, X, y=None):
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        self.kept_ = np.arange(X.shape[1])
        if sparse.issparse(X) and X.shape[1] > self.max_columns:
            mean = np.asarray(X.mean(axis=0)).ravel()
            variance = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
            self.kept_ = np.sort(np.argsort(-variance, kind="stable")[: self.max_columns])
        return self

    def transform(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return X[:, self.kept_].astype(np.float32).toarray() if sparse.issparse(X) else X

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        names = [f"x{i}" for i in range(self.n_features_in_)] if input_features is None else input_features
        return np.asarray(names, dtype=object)[self.kept_]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# --------------------------------------------------------------------------------------------------- the kinds


@dataclass(frozen=True)
class Kind:
    """build(random_state, **settings) -> an unfitted estimator; scaled: X should be."""

    build: Callable[..., BaseEstimator]
    scaled: bool = False


def _linear_svm(random_state: int = 0, **point) -> LinearSVM:
    return LinearSVM(**point)


def _random_forest(random_state: int = 0, **point) -> Pipeline:
    settings = {"n_estimators": 500, "max_features": "sqrt"} | point
    return Pipeline([("dense", Densify()), ("classify", RandomForestClassifier(**settings, random_state=random_state))])


def _mlp(random_state: int = 0, **point) -> MLPClassifier:
    # no rows held out to know when to stop: of a hundred receptors they would be ten; the penalty bounds the fit
    settings = {"learning_rate_init": 3e-3, "n_iter_no_change": 10, "max_iter": 200} | point
    return MLPClassifier(**settings, random_state=random_state)


KINDS: dict[str, Kind] = {
    "linear_svm": Kind(_linear_svm, scaled=True),
    "rbf_svm": Kind(RBFSVM, scaled=True),
    "random_forest": Kind(_random_forest),
    "gradient_boosting": Kind(Boosting),
    "mlp": Kind(_mlp, scaled=True),
}
