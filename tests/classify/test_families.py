"""The contract of every kind of classifier: what it learns from, what it gives, and that it can be saved."""

import numpy as np
import pandas as pd
import pytest
import skops.io
from pydantic import TypeAdapter
from scipy import sparse
from scipy.stats import spearmanr

from airrformer.classify.families import FAMILIES, REGRESSORS, PerClass
from airrformer.classify.features import prepare
from airrformer.classify.metrics import auroc_by_column
from airrformer.classify.models import Task, fit, take, tune
from airrformer.classify.persistence import TRUSTED_TYPES
from airrformer.config.classifiers import REGRESSION, Classifier
from airrformer.config.encoders import LettersEncoder

SETTINGS = {
    "random_forest": {"trees": 25, "grid": {"min_samples_leaf": [3, 1]}},
    "gradient_boosting": {"grid": {"trees": [30], "leaves": [7]}},
    "mlp": {"grid": {"alpha": [1]}},
    "rbf_svm": {"grid": {"C": [1, 3], "gamma": [1]}},
    "distance_svm": {"grid": {"C": [1], "bandwidth": [0.3, 0.15]}},
    "cnn": {"models": 1, "grid": {"channels": [16]}},
}
KINDS = sorted(set(FAMILIES) - {"residue_head"})  # which reads neither vectors nor letters: test_residue_heads
LETTERS = LettersEncoder(kind="letters", genes=True)
ON_VECTORS = [kind for kind in KINDS if kind != "cnn"]


def settings_of(kind):
    return TypeAdapter(Classifier).validate_python({"kind": kind, **SETTINGS.get(kind, {})})


def vectors(n=150, K=2, seed=0):
    rng = np.random.default_rng(seed)
    Y = (np.arange(K) == rng.integers(0, K + 1, n)[:, None]).astype(np.int8)
    return rng.normal(size=(n, 8)) + Y @ (2.5 * np.eye(K, 8)), Y


def letters(n=150, seed=0):
    """Receptors of two chains; class 0 has IRSS in its beta CDR3, class 1 begins its alpha CDR3 with WW."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, n)

    def loop(k):
        return "".join(rng.choice(list("ADEFGHKLNPQRSTVY"), k))

    rows = []
    for k in which:
        beta = loop(3) + ("IRSS" if k == 0 else loop(4)) + loop(int(rng.integers(3, 6)))
        alpha = ("WW" if k == 1 else loop(2)) + loop(int(rng.integers(7, 10)))
        rows.append(
            {"TRA_cdr1": "TSENNYY", "TRA_cdr2": "QEAYKQQN", "TRA_cdr3": alpha, "TRA_v": "TRAV38-1", "TRA_j": "TRAJ1"}
            | {"TRB_cdr1": "SGHDT", "TRB_cdr2": "YYEEEE", "TRB_cdr3": beta, "TRB_v": "TRBV9", "TRB_j": "TRBJ2-1"}
            | {"TRA_sequence": alpha, "TRB_sequence": beta}
        )
    return pd.DataFrame(rows), (which[:, None] == np.arange(2)).astype(np.int8)


def as_sparse(X):
    return prepare(sparse.csr_array(np.where(X > 0.5, np.ceil(X), 0)))


FORMS = {"dense": np.asarray, "sparse": as_sparse}
CASES = [(kind, form) for kind in ON_VECTORS for form in FORMS] + [(kind, "letters") for kind in KINDS]


def problem(form, seed=0):
    if form == "letters":
        return letters(seed=seed)
    X, Y = vectors(seed=seed)
    return FORMS[form](X), Y


def task_of(kind, form):
    return Task(settings_of(kind), 7, letters=LETTERS if form == "letters" else None)


def inner(n):
    return np.arange(n) % 3


@pytest.mark.parametrize(("kind", "form"), CASES, ids=lambda case: str(case))
def test_learns_and_gives_probabilities(kind, form):
    X, Y = problem(form)
    fitted = fit(task_of(kind, form), take(X, np.arange(100)), Y[:100], inner(100))
    scores = fitted.scores(take(X, np.arange(100, 150)))
    assert scores.shape == (50, 2) and scores.dtype == np.float64
    assert (scores >= 0).all() and (scores <= 1).all()
    assert auroc_by_column(Y[100:], scores).mean() > 0.7
    assert fitted.chosen in FAMILIES[kind].grid(settings_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unknown_is_not_learnt_from(kind):
    form = "letters" if kind == "cnn" else "dense"
    X, Y = problem(form)
    unknown = Y.copy()
    unknown[100:] = -1  # all of these rows, in both classes
    task = task_of(kind, form)
    grid = FAMILIES[kind].grid(task.settings)[:1]
    rows = np.arange(100)
    with_them = FAMILIES[kind].grid_scores(task.settings, grid, X, unknown, X, 7)
    one = Y.copy()
    one[::2, 0] = -1
    mixed = FAMILIES[kind].grid_scores(task.settings, grid, X, one, X, 7)
    assert np.isfinite(mixed).all() and auroc_by_column(Y[::2], mixed[0, ::2]).mean() > 0.7
    turned = np.where(unknown < 0, unknown, Y)
    assert (turned == unknown).all()
    without = FAMILIES[kind].grid_scores(task.settings, grid, take(X, rows), Y[:100], X, 7)
    # scaling may see them, labels they have none: the ranking is about the same
    for k in range(2):
        if kind != "cnn":  # which holds out other rows to know when to stop
            assert spearmanr(with_them[0, :, k], without[0, :, k]).statistic > 0.8


@pytest.mark.parametrize(("kind", "form"), CASES, ids=lambda case: str(case))
def test_the_grid_is_scored_as_the_estimator_would(kind, form):
    X, Y = problem(form)
    task = task_of(kind, form)
    Y = Y.copy()
    Y[:20, 0] = -1
    for point in FAMILIES[kind].grid(task.settings):
        one = Task(task.settings, 7, letters=task.letters)
        from airrformer.classify.models import _fit_point

        slow = _fit_point(one, point, take(X, np.arange(100)), Y[:100]).predict_proba(take(X, np.arange(100, 150)))
        tuned = tune(one, X, Y, np.where(np.arange(150) < 100, 0, 1))
        if tuned.point == point:
            # the fast path of the logistic regression stops earlier
            np.testing.assert_allclose(tuned.scores[100:], slow, atol=0.03)


@pytest.mark.parametrize(("kind", "form"), CASES, ids=lambda case: str(case))
def test_saved_and_read_again_it_says_the_same(kind, form, tmp_path):
    X, Y = problem(form)
    estimator = fit(task_of(kind, form), X, Y, inner(len(Y))).estimator
    skops.io.dump(estimator, tmp_path / "estimator.skops")
    assert set(skops.io.get_untrusted_types(file=tmp_path / "estimator.skops")) <= set(TRUSTED_TYPES)
    again = skops.io.load(tmp_path / "estimator.skops", trusted=list(TRUSTED_TYPES))
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_every_time(kind):
    form = "letters" if kind == "cnn" else "dense"
    X, Y = problem(form)
    a, b = (fit(task_of(kind, form), X, Y, inner(len(Y))).scores(X) for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_random_labels_are_at_chance(kind):
    form = "letters" if kind == "cnn" else "dense"
    found = []
    for seed in range(6):
        X, Y = problem(form, seed)
        Y = Y[np.random.default_rng(seed).permutation(len(Y))]
        fitted = fit(task_of(kind, form), take(X, np.arange(90)), Y[:90], inner(90))
        found.append(auroc_by_column(Y[90:], fitted.scores(take(X, np.arange(90, 150)))).mean())
    assert abs(np.mean(found) - 0.5) < 0.08


@pytest.mark.parametrize("kind", sorted(REGRESSORS))
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_numbers(kind, form, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = 20 + 5 * X[:, 0] - 3 * X[:, 1] + rng.normal(size=200)
    X = FORMS[form](X)
    task = Task(settings_of(kind), 7, regression=True)
    fitted = fit(task, X[:150], y[:150, None], inner(150))
    predicted = fitted.scores(X[150:])
    assert predicted.shape == (50, 1) and spearmanr(predicted[:, 0], y[150:]).statistic > (
        0.8 if form == "dense" else 0.3
    )
    skops.io.dump(fitted.estimator, tmp_path / "estimator.skops")
    assert set(skops.io.get_untrusted_types(file=tmp_path / "estimator.skops")) <= set(TRUSTED_TYPES)
    again = skops.io.load(tmp_path / "estimator.skops", trusted=list(TRUSTED_TYPES))
    np.testing.assert_array_equal(again.predict(X), fitted.estimator.predict(X))


def test_every_kind_of_the_config_has_a_family():
    for settings in Classifier.__args__[0].__args__:
        kind = settings.model_fields["kind"].annotation.__args__[0]
        if kind in ("stack", "multi_kernel", "receptor_peptide"):  # made for what they read
            continue
        assert (kind in FAMILIES) == ("classification" in settings.tasks)
        assert (kind in REGRESSORS) == (REGRESSION in settings.tasks)


def test_settings_reach_the_estimator():
    given = {"layers": 0, "kernel": 5, "hidden": 7, "dropout": 0.1, "input_dropout": 0.2, "learning_rate": 0.5}
    given |= {"batch_size": 11}
    settings = TypeAdapter(Classifier).validate_python({"kind": "cnn", "models": 4, **given})
    built = FAMILIES["cnn"].estimator(settings, {"channels": 9}, None, 3).get_params()
    assert built | given | {"channels": 9, "n_models": 4, "random_state": 3} == built
    settings = TypeAdapter(Classifier).validate_python({"kind": "gradient_boosting", "features": 0.3})
    built = FAMILIES["gradient_boosting"].estimator(settings, {"trees": 30, "leaves": 7}, None, 3).estimator
    assert (built.max_features, built.max_iter, built.max_leaf_nodes) == (0.3, 30, 7)


def test_a_class_has_the_receptors_that_are_known_for_it():
    class Counting(PerClass):
        pass

    from sklearn.linear_model import LogisticRegression

    X, Y = vectors()
    Y[:50, 0] = -1
    model = Counting(LogisticRegression()).fit(X, Y)
    alone = LogisticRegression().fit(X[50:], Y[50:, 0])
    np.testing.assert_allclose(model.predict_proba(X)[:, 0], alone.predict_proba(X)[:, 1])
