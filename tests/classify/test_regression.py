"""Regressors: every kind learns a curve, in the unit of the target, and can be saved."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from airrformer.classify.regression import REGRESSORS, build_regressor
from airrformer.errors import UserError

# the outer settings of each kind, the most cautious first
POINTS = {
    "ridge": ({"alpha": 1e5}, {"alpha": 10.0}),
    "svr": ({"C": 0.1}, {"C": 10.0}),
    "gaussian_process": ({}, {}),
    "random_forest": ({"min_samples_leaf": 10}, {"min_samples_leaf": 2}),
    "gradient_boosting": ({"max_iter": 50, "max_leaf_nodes": 3}, {"max_iter": 300, "max_leaf_nodes": 7}),
    "k_nearest_neighbors": ({"n_neighbors": 25}, {"n_neighbors": 5}),
}


def curve(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, 70 + 5 * (X[:, 0] + 0.5 * X[:, 1]) + 0.5 * rng.normal(size=n)


@pytest.mark.parametrize("target", ["standard", "rank"])
@pytest.mark.parametrize("kind", REGRESSORS)
def test_each_kind_learns_a_curve(kind, target):
    (X, y), (X_new, y_new) = curve(150, 0), curve(80, 1)
    point = POINTS[kind][-1]
    model = build_regressor(kind, target, n_features=6, **point).fit(X, y)
    predicted = model.predict(X_new)
    assert spearmanr(predicted, y_new).statistic > 0.75
    assert abs(predicted.mean() - 70) < 3  # degrees, not standard deviations
    again = build_regressor(kind, target, n_features=6, **point).fit(X, y).predict(X_new)
    np.testing.assert_array_equal(predicted, again)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_the_outer_settings_of_each_kind(kind):
    X, y = curve(40, 0)
    for point in POINTS[kind]:
        assert np.isfinite(build_regressor(kind, n_features=6, **point).fit(X, y).predict(X)).all()


@pytest.mark.parametrize("kind", REGRESSORS)
def test_what_is_kept_can_be_saved(kind):
    skops = pytest.importorskip("skops.io")
    X, y = curve(40, 0)
    model = build_regressor(kind, "rank", n_features=6, **POINTS[kind][0]).fit(X, y)
    saved = skops.dumps(model)
    back = skops.loads(saved, trusted=skops.get_untrusted_types(data=saved))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_mistakes_are_named():
    with pytest.raises(UserError, match="regressor 'lasso' is unknown; use one of ridge"):
        build_regressor("lasso")
    with pytest.raises(UserError, match="target 'log' is unknown"):
        build_regressor("ridge", "log")
    with pytest.raises(UserError, match="ridge has no setting C; it has alpha"):
        build_regressor("ridge", C=1.0)
