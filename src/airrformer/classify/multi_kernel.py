"""One support vector machine, or one ridge regression, on kernels of several views of a receptor, combined.

Loops and genes compared by a distance, the vectors of an encoder, the layers of another: each view has a kernel, and
what is near in one of them may be far in another. Combined kernels learn from all views at once, from every training
receptor, where a stack has only a weight for each. In a sum it is enough to be near in one view; in a product
receptors have to be near in all.

X is a mapping of views by name: letters, a DataFrame, or matrices, of the same receptors in the same order.

Letters: n training receptors, m others, K classes, G values of C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.similarity import (
    Kernel,
    References,
    at_bandwidth,
    blocks_of,
    count_of,
    least_squares,
    metric_of,
    rows_of,
    scaled,
    scaling,
    spanning,
)
from airrformer.receptors.loops import AT_ONCE, compared_columns, encode

COMBINATIONS = ("sum", "product", "both")


class ViewKernel(BaseEstimator):
    """The kernel of one view, 1 between receptors that are the same in it.

    Args:
        view: its name in X.
        weight: in the sum, or as an exponent in the product.
        bandwidth: h, as a share of the usual distance between training receptors.
        form: ``exponential``, exp(-d / h), or ``gaussian``, exp(-(d / h)^2 / 2).
        options: what ``LoopDistance`` compares of letters; None for vectors, which are compared by Euclid after
            z-scoring.
        reader: what makes vectors of letters, or completes them, unfitted; None where the view is compared as it is.
    """

    def __init__(
        self,
        view: str,
        weight: float = 1.0,
        bandwidth: float = 0.5,
        form: str = "exponential",
        options: dict | None = None,
        reader: TransformerMixin | None = None,
    ):
        self.view = view
        self.weight = weight
        self.bandwidth = bandwidth
        self.form = form
        self.options = options
        self.reader = reader

    def fit(self, X: Mapping) -> ViewKernel:
        self.reader_ = None if self.reader is None else clone(self.reader).fit(X[self.view])
        read = self._read(X)
        if self.options is not None:
            self.references_ = {name: np.array(read[name].tolist(), dtype=str) for name in compared_columns(read)}
        else:
            self.mean_, self.scale_ = scaling(read)
            self.references_ = self._scaled(read)
        kernel = at_bandwidth(self._metric(), self.bandwidth, self.known(), self.form)
        self.width_, self.fill_ = kernel.width, kernel.fill
        return self

    def keep(self, rows: np.ndarray) -> None:
        """Forget the other training receptors."""
        if self.options is not None:
            self.references_ = {name: column[rows] for name, column in self.references_.items()}
        else:
            self.references_ = self.references_[rows]

    def known(self) -> References:
        return encode(self.references_) if self.options is not None else self.references_

    def queries(self, X: Mapping) -> References:
        read = self._read(X)
        return encode(read) if self.options is not None else self._scaled(read)

    def table(self, queries: References, references: References) -> np.ndarray:
        """The kernel, float32 (m, n)."""
        metric, kernel = self._metric(), Kernel(self._metric(), self.width_, self.form, self.fill_)
        blocks = [
            kernel.of(some[0].distances(self.fill_), None) for _, some in blocks_of(queries, references, [metric])
        ]
        return np.concatenate(blocks).astype(np.float32, copy=False)

    def _metric(self):
        return metric_of("euclidean" if self.options is None else "loops", self.options)

    def _read(self, X: Mapping):
        """The view as it is compared: letters, or vectors in float64."""
        read = X[self.view] if self.reader_ is None else self.reader_.transform(X[self.view])
        if self.options is not None:
            return read
        return sparse.csr_array(read) if sparse.issparse(read) else np.asarray(read, dtype=np.float64)

    def _scaled(self, vectors):
        return scaled(vectors, self.mean_, self.scale_)


class _MultiKernel(BaseEstimator):
    """The combined table, and coefficients (n, columns) of training receptors for what is learnt on it."""

    def __init__(
        self, parts: Sequence[ViewKernel], C=1.0, *, combine="sum", exact=6000, landmarks=2000, random_state=0
    ):
        self.parts = parts
        self.C = C
        self.combine = combine
        self.exact = exact
        self.landmarks = landmarks
        self.random_state = random_state

    def _open(self, X: Mapping) -> list[References]:
        self.parts_ = [clone(part).fit(X) for part in self.parts]
        return [part.known() for part in self.parts_]

    def _table(self, queries: list[References], references: list[References]) -> np.ndarray:
        """The sum, of weights that add up to 1, the product, of exponents that are 1 on average, or the mean of both.

        float32 (m, n).
        """
        if self.combine not in COMBINATIONS:
            raise ValueError(f"combine is one of {', '.join(COMBINATIONS)}, not {self.combine!r}")
        mean = sum(part.weight for part in self.parts_) / len(self.parts_)
        total, product = np.float32(0), np.float32(1)
        for part, left, right in zip(self.parts_, queries, references):
            table, weight = part.table(left, right), part.weight / mean
            if self.combine != "product":
                total = total + np.float32(weight / len(self.parts_)) * table
            if self.combine != "sum":
                product = product * table ** np.float32(weight)
        return {"sum": total, "product": product, "both": (total + product) / 2}[self.combine]

    def _chosen(self, n: int) -> np.ndarray:
        return spanning(n, self.exact, self.landmarks, self.random_state)

    def _keep(self, coefficients: np.ndarray, intercepts: np.ndarray) -> None:
        support = np.flatnonzero(coefficients.any(axis=1))
        if not len(support):
            support = np.array([0])
        for part in self.parts_:
            part.keep(support)
        self.coef_, self.intercept_ = coefficients[support], intercepts

    def _sums(self, X: Mapping, references: list[References], coefficients: np.ndarray) -> np.ndarray:
        """kernel @ coefficients, float64 (m, columns), some rows at a time."""
        queries = [part.queries(X) for part in self.parts_]
        m, step = count_of(queries[0]), max(1, AT_ONCE // max(1, len(coefficients)))
        found = np.empty((m, coefficients.shape[1]))
        for start in range(0, m, step):
            rows = np.arange(start, min(start + step, m))
            found[rows] = self._table([rows_of(query, rows) for query in queries], references) @ coefficients
        return found

    def _values(self, X: Mapping) -> np.ndarray:
        check_is_fitted(self, "coef_")
        return self._sums(X, [part.known() for part in self.parts_], self.coef_) + self.intercept_


class MultiKernelSVC(_MultiKernel):
    """Support vector machines on combined kernels, one a class.

    Beyond ``exact`` receptors known for a class it is a least-squares machine on ``landmarks`` of them, drawn by
    ``random_state`` (Nystroem): as good, and much faster. ``predict_proba`` is the logistic function of the decision,
    to be calibrated by who needs probabilities; NaN for a class without both labels.

    Args:
        parts: the kernels.
        C: how dear an error is.
        combine: ``sum``, ``product``, or ``both``, the mean of the two.
    """

    def fit(self, X: Mapping, Y: np.ndarray) -> MultiKernelSVC:
        """X: views of n receptors; Y int8 (n, K): 1, 0 or -1 for unknown."""
        coefficients, intercepts = self._path(self._open(X), np.asarray(Y), [self.C])
        self._keep(coefficients[0], intercepts[0])
        return self

    def decision_function(self, X: Mapping) -> np.ndarray:
        """float64 (m, K)."""
        return self._values(X)

    def predict_proba(self, X: Mapping) -> np.ndarray:
        """P(positive), float64 (m, K)."""
        return expit(self._values(X))

    def grid_scores(self, X: Mapping, Y: np.ndarray, X_test: Mapping, Cs: Sequence[float]) -> np.ndarray:
        """P(positive) of the machine at each C, float64 (G, m, K), from one table."""
        machine = clone(self)  # what is fitted stays
        references = machine._open(X)
        coefficients, intercepts = machine._path(references, np.asarray(Y), Cs)
        sums = machine._sums(X_test, references, np.hstack(list(coefficients)))
        return expit(sums.reshape(len(sums), len(Cs), -1).transpose(1, 0, 2) + intercepts[:, None])

    def _path(self, references: list[References], Y: np.ndarray, Cs: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (G, n, K) and intercepts (G, K)."""
        coefficients = np.zeros((len(Cs), *Y.shape))
        intercepts = np.full((len(Cs), Y.shape[1]), np.nan)
        last = None
        for k, labels in enumerate(Y.T):
            if not (labels == 1).any() or not (labels == 0).any():
                continue
            if k and np.array_equal(labels, np.where(Y[:, 0] >= 0, 1 - Y[:, 0], -1)):  # the other of two classes
                coefficients[:, :, k], intercepts[:, k] = -coefficients[:, :, 0], -intercepts[:, 0]
                continue
            rows = np.flatnonzero(labels >= 0)
            chosen = rows[self._chosen(len(rows))]
            if last is None or not np.array_equal(rows, last):  # classes that know the same receptors share the table
                some = [[rows_of(each, where) for each in references] for where in (rows, chosen)]
                table, last = self._table(*some), rows
            if len(chosen) < len(rows):
                found = least_squares(table, np.searchsorted(rows, chosen), 2.0 * labels[rows] - 1, Cs)
                for g, (weights, intercept) in enumerate(found):
                    coefficients[g, chosen, k], intercepts[g, k] = weights, intercept
                continue
            for g, C in enumerate(Cs):
                model = SVC(C=C, kernel="precomputed", cache_size=100).fit(table, labels[rows])
                coefficients[g, rows[model.support_], k] = model.dual_coef_[0]
                intercepts[g, k] = model.intercept_[0]
        return coefficients, intercepts


class MultiKernelRidge(_MultiKernel):
    """Ridge regression on combined kernels; the penalty is 1 / (2 C), as scikit-learn's KernelRidge says it.

    Parts, combine, landmarks and C as in ``MultiKernelSVC``.
    """

    def fit(self, X: Mapping, y: np.ndarray) -> MultiKernelRidge:
        """X: views of n receptors; y float (n,)."""
        coefficients, intercept = self._solved(self._open(X), np.asarray(y, dtype=np.float64))
        self._keep(coefficients[:, None], np.array([intercept]))
        return self

    def predict(self, X: Mapping) -> np.ndarray:
        """float64 (m,)."""
        return self._values(X)[:, 0]

    def _solved(self, references: list[References], y: np.ndarray) -> tuple[np.ndarray, float]:
        chosen = self._chosen(len(y))
        table = self._table(references, [rows_of(each, chosen) for each in references])
        coefficients = np.zeros(len(y))
        if len(chosen) < len(y):
            ((coefficients[chosen], intercept),) = least_squares(table, chosen, y, [self.C])
            return coefficients, intercept
        # an intercept that costs nothing: the kernel and y are centred
        means = table.mean(axis=0, dtype=np.float64)
        centred = table - means - means[:, None] + means.mean()
        coefficients = KernelRidge(alpha=1 / (2 * self.C), kernel="precomputed").fit(centred, y - y.mean()).dual_coef_
        coefficients -= coefficients.mean()
        return coefficients, float(y.mean() - means @ coefficients)
