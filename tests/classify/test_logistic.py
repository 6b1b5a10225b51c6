"""The fast path of penalties against scikit-learn's own solutions."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from airrformer.classify.logistic import logistic_path

PENALTIES = [0.01, 0.1, 1]


def problem(n, D, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) @ np.diag(np.linspace(0.1, 3, D))
    Y = np.stack([X[:, 0] + rng.normal(size=n) > 0, X[:, 1] + 2 * rng.normal(size=n) > 2], axis=1)
    return X - X.mean(axis=0), Y


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("n, D, kind", [(80, 10, "dense"), (40, 90, "dense"), (80, 30, "sparse")])
def test_equal_to_sklearn(n, D, kind, balanced):
    X, Y = problem(n, D)
    if kind == "sparse":
        X = sparse.csr_array(np.where(X > 0.8, np.round(X), 0))
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    path = logistic_path(X, Y, PENALTIES, balanced, tolerance=5e-9)
    for C, (coefficients, intercepts) in zip(PENALTIES, path, strict=True):
        assert coefficients.shape == (D, 2) and intercepts.shape == (2,)
        for k in range(2):
            reference = LogisticRegression(
                C=C, tol=1e-8, max_iter=10_000, class_weight="balanced" if balanced else None
            ).fit(X, Y[:, k])
            np.testing.assert_allclose(coefficients[:, k], reference.coef_[0], atol=2e-4)
            assert intercepts[k] == pytest.approx(reference.intercept_[0], abs=2e-4)


def test_a_constant_column_has_no_coefficient():
    X, Y = problem(60, 5)
    X[:, 2] = 0
    for coefficients, _ in logistic_path(X, Y, PENALTIES):
        assert np.abs(coefficients[2]).max() < 1e-9
