import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from airrformer.classify.metrics import auroc_by_column
from airrformer.classify.models import Task
from airrformer.classify.models import fit as fit_task
from airrformer.config import LogisticRegressionClassifier, NearestNeighborsClassifier

LOGISTIC = LogisticRegressionClassifier(kind="logistic_regression")
NEIGHBORS = NearestNeighborsClassifier(kind="k_nearest_neighbors", grid={"n_neighbors": [3, 9]})
BOTH = pytest.mark.parametrize("settings", [LOGISTIC, NEIGHBORS], ids=["logistic", "neighbors"])


def fit(settings, X, Y, inner, **task):
    return fit_task(Task(settings, 7, **task), X, Y.astype(np.int8), inner)


def problem(n=120, D=8, K=3, seed=0):
    rng = np.random.default_rng(seed)
    Y = np.arange(K) == rng.integers(0, K, n)[:, None]
    return rng.normal(size=(n, D)) + Y @ rng.normal(size=(K, D)) * 1.5, Y, np.arange(n) % 3


@BOTH
def test_decisions_and_calibration(settings):
    X, Y, inner = problem(n=400)
    fitted = fit(settings, X[:300], Y[:300], inner[:300], calibration="temperature")
    scores = fitted.scores(X[300:])
    assert matthews_corrcoef(Y[300:].ravel(), fitted.decide(scores).ravel()) > 0.3
    calibrated = fitted.calibrate(scores)
    np.testing.assert_allclose(auroc_by_column(Y[300:], calibrated), auroc_by_column(Y[300:], scores))
    assert np.mean((calibrated - Y[300:]) ** 2) < np.mean((scores - Y[300:]) ** 2) + 0.01


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


def test_the_budget_bounds_the_grid():
    X, Y, inner = problem()
    settings = LogisticRegressionClassifier(kind="logistic_regression", budget=2)
    chosen = {fit_task(Task(settings, seed), X, Y.astype(np.int8), inner).chosen["C"] for seed in range(20)}
    assert chosen <= {0.01, 0.1, 1, 10}
    from airrformer.classify.models import _within_budget

    grid = [{"C": C} for C in range(10)]
    assert len(_within_budget(grid, 3, 7)) == 3 and _within_budget(grid, 3, 7) == _within_budget(grid, 3, 7)
    assert _within_budget(grid, None, 7) == grid


def test_a_stack_weighs_what_helps():
    X, Y, inner = problem(n=300)
    noise = np.random.default_rng(1).normal(size=(300, 8))
    members = (("good/mean", Task(LOGISTIC, 7)), ("noise/mean", Task(LOGISTIC, 7)), ("good/max", Task(NEIGHBORS, 7)))
    views = {"good/mean": X, "noise/mean": noise, "good/max": X[:, ::-1]}
    stack = Task(LOGISTIC, 7, members=members)
    train = {name: view[:200] for name, view in views.items()}
    fitted = fit_task(stack, train, Y[:200].astype(np.int8), inner[:200])
    scores = fitted.scores({name: view[200:] for name, view in views.items()})
    alone = fit(LOGISTIC, X[:200], Y[:200], inner[:200]).scores(X[200:])
    assert auroc_by_column(Y[200:], scores).mean() > auroc_by_column(Y[200:], alone).mean() - 0.02
    weights = fitted.chosen["weights"]
    assert weights[1] < 0.2 * max(weights) and min(weights) >= 0
    assert 0.3 < scores.mean() + 0.2 < 0.8 and (scores >= 0).all() and (scores <= 1).all()


def test_a_stack_leaves_alone_a_class_that_cannot_be_learnt():
    X, Y, inner = problem()
    Y = Y.astype(np.int8)
    Y[:, 1] = 0
    members = (("a/a", Task(LOGISTIC, 7)), ("b/b", Task(NEIGHBORS, 7)))
    fitted = fit_task(Task(LOGISTIC, 7, members=members), {"a/a": X, "b/b": X}, Y, inner)
    scores = fitted.scores({"a/a": X, "b/b": X})
    assert fitted.trained.tolist() == [True, False, True] and np.isnan(scores[:, 1]).all()
    assert not np.isnan(scores[:, [0, 2]]).any()
