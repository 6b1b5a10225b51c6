"""L2-regularised logistic regressions of all classes along all penalties, fast: for choosing the penalty.

Cross-validation fits folds x penalties x classes models and keeps none of them, so they are fitted together: one
matrix product serves all classes, each penalty starts from the solution of the one before, and the variables are
scaled so that the loss is about equally curved in each. The models that are kept are scikit-learn's own; the solutions
agree (tests/classify/test_logistic.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import issparse
from scipy.special import expit


def logistic_path(
    X, Y: np.ndarray, penalties: Sequence[float], balanced: bool = False, tolerance: float = 5e-5
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Coefficients (D, K) and intercepts (K,) for each C of ``penalties``, which should rise.

    X: float64 (n, D), centred, or sparse; Y: (n, K), 1, 0 or -1 (unknown: of no weight), both labels in each column.
    The loss of a class is scikit-learn's: sum of (weighted) log losses + |w|^2 / 2C, the intercept free. ``tolerance``
    bounds the gradient in the scaled variables, per receptor (of at least 200, so that small sets are solved well).
    """
    n, K = Y.shape
    Z, curvature, back = _axes(X)
    D = Z.shape[1]
    ZT = Z.T.tocsr() if issparse(Z) else Z.T
    known = np.asarray(Y, dtype=np.int8) >= 0
    T = ((np.asarray(Y) == 1) & known).astype(np.float64)
    positives, total = T.sum(axis=0), known.sum(axis=0)
    weights = np.where(T == 1, total / (2 * positives), total / (2 * (total - positives))) if balanced else 1.0
    weights = weights * known
    share = (weights * T).sum(axis=0) / weights.sum(axis=0)
    variance = share * (1 - share)  # of the label: what a log loss is curved by, about
    W = np.zeros((D + 1, K))  # the last row is the intercept
    W[-1] = np.log(share / (1 - share))

    path = []
    for C in penalties:
        scale = 1 / np.sqrt(np.vstack([curvature[:, None] * variance + 1 / C, n * variance[None]]))

        def loss(flat, scale=scale, C=C):
            W = flat.reshape(D + 1, K) * scale
            margin = Z @ W[:-1] + W[-1]  # (n, K)
            value = (weights * (np.logaddexp(0, margin) - T * margin)).sum() + (W[:-1] ** 2).sum() / (2 * C)
            residual = weights * (expit(margin) - T)
            gradient = np.vstack([ZT @ residual + W[:-1] / C, residual.sum(axis=0)]) * scale
            return value, gradient.ravel()

        options = {"gtol": tolerance * max(n, 200), "ftol": 0, "maxiter": 300}
        W = minimize(loss, (W / scale).ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(W.shape) * scale
        path.append((back(W[:-1]), W[-1].copy()))
    return path


def _axes(X):
    """X in coordinates Z whose second moments are diagonal, those moments (D,), and the way back for coefficients.

    Dense X is rotated onto its principal axes, at most n of them, which changes neither fit nor penalty. Sparse X is
    left as it is.
    """
    if issparse(X):
        return X, np.asarray(X.multiply(X).sum(axis=0)).ravel(), lambda W: W
    n, D = X.shape
    if n >= D:
        moments, axes = np.linalg.eigh(X.T @ X)
        return X @ axes, np.maximum(moments, 0), lambda W: axes @ W
    moments, U = np.linalg.eigh(X @ X.T)
    kept = moments > moments[-1] * 1e-10
    moments, U = moments[kept], U[:, kept]
    lengths = np.sqrt(moments)
    return U * lengths, moments, lambda W: X.T @ (U @ (W / lengths[:, None]))
