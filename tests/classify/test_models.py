import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import matthews_corrcoef

from airrformer.classify.features import prepare
from airrformer.classify.metrics import auroc_by_column
from airrformer.classify.models import FAMILIES, as_target, fit, probabilities
from airrformer.config import LogisticRegressionClassifier, NearestNeighborsClassifier

LOGISTIC = LogisticRegressionClassifier(kind="logistic_regression")
NEIGHBORS = NearestNeighborsClassifier(kind="k_nearest_neighbors", grid={"n_neighbors": [3, 9]})
BOTH = pytest.mark.parametrize("settings", [LOGISTIC, NEIGHBORS], ids=["logistic", "neighbors"])


def problem(n=120, D=8, K=3, seed=0):
    rng = np.random.default_rng(seed)
    Y = np.arange(K) == rng.integers(0, K, n)[:, None]
    return rng.normal(size=(n, D)) + Y @ rng.normal(size=(K, D)) * 1.5, Y, np.arange(n) % 3


def as_sparse(X):
    return prepare(sparse.csr_array(np.where(X > 0.5, np.ceil(X), 0)))


@BOTH
@pytest.mark.parametrize("form", [np.asarray, as_sparse], ids=["dense", "sparse"])
def test_learns_and_gives_probabilities(settings, form):
    X, Y, inner = problem()
    X = form(X)
    fitted = fit(settings, X[:90], Y[:90], inner[:90])
    scores = fitted.scores(X[90:])
    assert scores.shape == (30, 3) and (scores >= 0).all() and (scores <= 1).all()
    assert auroc_by_column(Y[90:], scores).mean() > 0.75
    assert fitted.chosen in FAMILIES[settings.kind].grid(settings)
    assert matthews_corrcoef(Y[90:].ravel(), fitted.decide(scores).ravel()) > 0.3


@BOTH
@pytest.mark.parametrize("form", [np.asarray, as_sparse], ids=["dense", "sparse"])
def test_the_grid_is_scored_as_the_estimator_would(settings, form):
    X, Y, _ = problem()
    X = form(X)
    family = FAMILIES[settings.kind]
    grid = family.grid(settings)
    fast = family.grid_scores(settings, grid, X[:80], Y[:80], X[80:])
    for point, scores in zip(grid, fast, strict=True):
        slow = probabilities(family.estimator(settings, point, X[:80]).fit(X[:80], as_target(Y[:80])), X[80:], 3)
        np.testing.assert_allclose(scores, slow, atol=0.03)  # the fast path stops earlier


@BOTH
def test_one_class_and_several_labels(settings):
    X, Y, inner = problem()
    alone = fit(settings, X, Y[:, :1], inner).scores(X)
    assert alone.shape == (120, 1) and auroc_by_column(Y[:, :1], alone)[0] > 0.8
    several = Y | np.roll(Y, 1, axis=1)  # two classes each
    assert auroc_by_column(several, fit(settings, X, several, inner).scores(X)).min() > 0.7


@BOTH
def test_a_class_of_one_label_is_not_trained(settings):
    X, Y, inner = problem()
    Y = Y.copy()
    Y[:, 1] = False
    fitted = fit(settings, X, Y, inner)
    scores = fitted.scores(X)
    assert fitted.trained.tolist() == [True, False, True] and np.isnan(scores[:, 1]).all()
    assert not np.isnan(scores[:, [0, 2]]).any() and not fitted.decide(scores)[:, 1].any()
    nothing = fit(settings, X, np.zeros_like(Y), inner)
    assert nothing.estimator is None and np.isnan(nothing.scores(X)).all()


@BOTH
def test_a_class_within_one_inner_fold_is_trained_all_the_same(settings):
    X, Y, inner = problem()
    Y = Y.copy()
    Y[:, 0] &= inner == 0
    fitted = fit(settings, X, Y, inner)
    assert fitted.trained.all() and fitted.thresholds[0] == 0.5  # no out-of-fold score to choose by


def test_equally_good_grid_points_give_the_cautious_one():
    X = np.concatenate([np.full((30, 2), -5.0), np.full((30, 2), 5.0)]) + np.random.default_rng(0).normal(size=(60, 2))
    Y = np.repeat([[False], [True]], 30, axis=0)
    inner = np.arange(60) % 3
    assert fit(LOGISTIC, X, Y, inner).chosen == {"C": 0.01}
    assert fit(NEIGHBORS, X, Y, inner).chosen == {"n_neighbors": 9}


def test_more_neighbours_than_receptors():
    X, Y, inner = problem(n=12)
    settings = NearestNeighborsClassifier(kind="k_nearest_neighbors", grid={"n_neighbors": [45]})
    assert fit(settings, X, Y, inner).scores(X).shape == (12, 3)
