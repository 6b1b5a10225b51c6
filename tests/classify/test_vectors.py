"""Classifiers of vectors: scikit-learn's contract, sparse and dense alike, exact and approximate alike."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from airrformer.classify.vectors import KINDS, RBFSVM, Boosting, Densify, LinearSVM


def rings(n=200, seed=0, D=4):
    """Inside or outside a sphere: no straight line tells them apart."""
    X = np.random.default_rng(seed).normal(size=(n, D))
    return X, (np.linalg.norm(X, axis=1) > np.sqrt(D)).astype(int)


@parametrize_with_checks(
    [
        LinearSVM(),
        RBFSVM(),
        RBFSVM(max_rows=10, landmarks=5),
        Boosting(max_iter=5, min_samples_leaf=2),
        Densify(),
    ]
)
def test_contract(estimator, check):
    check(estimator)


# the outer settings of each kind, the most cautious first
POINTS = {
    "linear_svm": ({"C": 1e-4}, {"C": 1.0}),
    "rbf_svm": ({"C": 0.3, "gamma": 0.3}, {"C": 10.0, "gamma": 3.0}),
    "random_forest": ({"min_samples_leaf": 10}, {"min_samples_leaf": 1}),
    "gradient_boosting": (
        {"learning_rate": 0.05, "max_iter": 100, "max_leaf_nodes": 7},
        {"learning_rate": 0.1, "max_iter": 500, "max_leaf_nodes": 15},
    ),
    "mlp": ({"hidden_layer_sizes": [32], "alpha": 10.0}, {"hidden_layer_sizes": [128], "alpha": 0.01}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_outer_settings_of_each_kind(kind):
    X, y = rings(120)
    for point in POINTS[kind]:
        P = KINDS[kind].build(random_state=1, **point).fit(X, y).predict_proba(X)
        assert P.shape == (120, 2) and np.isfinite(P).all()
        again = KINDS[kind].build(random_state=1, **point).fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(P, again)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_is_dense(kind):
    X, y = rings(100)
    X = np.maximum(X, 0)
    build, point = KINDS[kind].build, POINTS[kind][-1]
    dense = build(**point).fit(X, y).predict_proba(X)
    thin = sparse.csr_array(X)
    thin.indices, thin.indptr = thin.indices.astype(np.int32), thin.indptr.astype(np.int32)
    np.testing.assert_allclose(build(**point).fit(thin, y).predict_proba(thin), dense, atol=0.03)


def test_exact_machine_is_that_of_scikit_learn():
    X, y = rings()
    ours = RBFSVM(C=2.0).fit(X, y).decision_function(X)
    np.testing.assert_allclose(ours, SVC(C=2.0, gamma="scale").fit(X, y).decision_function(X), atol=5e-3)


def test_approximate_machine_is_near_the_exact_one():
    (X, y), (X_new, y_new) = rings(400), rings(200, seed=1)
    exact, near = (RBFSVM(max_rows=rows, landmarks=150).fit(X, y).decision_function(X_new) for rows in (1000, 10))
    assert roc_auc_score(y_new, exact) > 0.95 and roc_auc_score(y_new, near) > 0.95
    assert np.corrcoef(exact, near)[0, 1] > 0.95


def test_a_constant_matrix_is_no_error():
    assert np.isfinite(RBFSVM().fit(np.ones((6, 3)), [0, 1] * 3).predict_proba(np.ones((2, 3)))).all()


def test_boosting_of_categories():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 22, (600, 3)).astype(float)
    y = np.isin(X[:, 0], [1, 7, 13, 20]).astype(int)  # no order to split by
    model = Boosting(max_iter=20, categories=True).fit(X, y)
    assert roc_auc_score(y, model.predict_proba(X)[:, 1]) == 1
    assert np.isfinite(model.predict_proba([[21.0, 0.0, 5.0]])).all()


def test_the_columns_that_vary_most_are_made_dense():
    X = sparse.csr_array(np.array([[1.0, 0, 5], [1, 0.1, 0], [1, 0, 0]]))
    model = Densify(max_columns=2).fit(X)
    assert model.transform(X).tolist() == [[0.0, 5.0], [pytest.approx(0.1), 0.0], [0.0, 0.0]]
    assert model.get_feature_names_out(["a", "b", "c"]).tolist() == ["b", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_can_be_saved(kind):
    skops = pytest.importorskip("skops.io")
    X, y = rings(60)
    model = KINDS[kind].build(**POINTS[kind][0]).fit(X, y)
    saved = skops.dumps(model)
    back = skops.loads(saved, trusted=skops.get_untrusted_types(data=saved))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
