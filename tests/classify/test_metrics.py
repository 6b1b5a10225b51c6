"""The vectorised metrics against scikit-learn and scipy, resample by resample."""

import itertools
import time
from functools import partial

import numpy as np
import pytest
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    matthews_corrcoef,
    roc_auc_score,
    root_mean_squared_error,
    top_k_accuracy_score,
)

from airrformer.classify.metrics import (
    METRICS,
    POOLED_IS_MISLEADING,
    REGRESSION_METRICS,
    auroc_by_column,
    best_threshold,
    bootstrap_weights,
    brier,
    ece,
    interval,
    macro_interval,
    mean_defined,
    pooled_auroc,
    precision_at_k,
    regression_metrics,
    spearman,
    top_k_accuracy,
    weighted_auroc,
    weighted_metrics,
)

precision_at_10 = partial(precision_at_k, k=10)


def by_sklearn(labels, scores, decisions, weights):
    return {
        "auroc": roc_auc_score(labels, scores, sample_weight=weights),
        "auprc": average_precision_score(labels, scores, sample_weight=weights),
        "auc01": roc_auc_score(labels, scores, sample_weight=weights, max_fpr=0.1),
        "mcc": matthews_corrcoef(labels, decisions, sample_weight=weights),
    }


def problem(m, levels, seed, share=0.2):
    """Scores with ties when ``levels`` is small."""
    rng = np.random.default_rng(seed)
    labels = rng.random(m) < share
    scores = rng.normal(size=m) + labels
    if levels:
        scores = np.round(scores * levels) / levels
    return labels, scores, scores > 0.7


@pytest.mark.parametrize("levels", [0, 3, 1], ids=["no ties", "some ties", "many ties"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_equal_to_sklearn_in_every_resample(levels, share):
    labels, scores, decisions = problem(150, levels, 3, share)
    weights = bootstrap_weights(150, 12, seed=1)
    found = weighted_metrics(labels, scores, decisions, weights)
    for r in range(weights.shape[1]):
        if not weights[labels, r].any():
            assert all(np.isnan(found[name][r]) for name in METRICS)
            continue
        expected = by_sklearn(labels, scores, decisions, weights[:, r])
        for name in METRICS:
            assert found[name][r] == pytest.approx(expected[name], abs=1e-12), (name, r)


def test_a_resample_is_a_draw_with_replacement():
    labels, scores, decisions = problem(80, 2, 0)
    weights = bootstrap_weights(80, 20, seed=5)
    assert (weights[:, 0] == 1).all() and (weights.sum(axis=0) == 80).all()
    found = weighted_metrics(labels, scores, decisions, weights)
    for r in range(1, 21):
        drawn = np.repeat(np.arange(80), weights[:, r])
        expected = by_sklearn(labels[drawn], scores[drawn], decisions[drawn], None)
        for name in METRICS:
            assert found[name][r] == pytest.approx(expected[name], abs=1e-12)


def test_chunks_of_resamples_change_nothing(monkeypatch):
    labels, scores, decisions = problem(60, 2, 0)
    weights = bootstrap_weights(60, 50, seed=5)
    whole = weighted_metrics(labels, scores, decisions, weights)
    monkeypatch.setattr("airrformer.classify.metrics._AT_ONCE", 7 * 60)
    for name, values in weighted_metrics(labels, scores, decisions, weights).items():
        np.testing.assert_array_equal(values, whole[name])


def test_one_label_only_is_undefined():
    scores = np.array([0.1, 0.4, 0.9])
    for labels in (np.zeros(3, dtype=bool), np.ones(3, dtype=bool)):
        found = weighted_metrics(labels, scores, scores > 0.5, bootstrap_weights(3, 100, 1))
        for values in found.values():
            assert np.isnan(values).all()
            assert interval(values) == {"value": None, "low": None, "high": None}


def test_resamples_without_a_positive_do_not_count():
    labels = np.array([True] + [False] * 9)
    scores = np.linspace(1, 0, 10)
    values = weighted_metrics(labels, scores, scores > 0.5, bootstrap_weights(10, 500, 1))["auroc"]
    assert np.isnan(values).any() and values[0] == 1
    assert interval(values) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_constant_scores_are_chance():
    labels = np.array([True, False] * 20)
    found = weighted_metrics(labels, np.full(40, 0.3), np.zeros(40, dtype=bool), bootstrap_weights(40, 100, 1))
    assert found["auroc"][0] == 0.5 and found["auc01"][0] == pytest.approx(0.5)
    assert found["auprc"][0] == 0.5 and found["mcc"][0] == 0


def test_mean_of_what_is_defined():
    np.testing.assert_array_equal(mean_defined(np.array([[1.0, np.nan], [0.5, np.nan]])), [0.75, np.nan])


def test_thousand_resamples_take_little_time():
    rng = np.random.default_rng(0)
    weights = bootstrap_weights(1500, 1000, 7)
    started = time.process_time()
    for _ in range(6):
        labels, scores, decisions = problem(1500, 0, rng.integers(1000))
        weighted_metrics(labels, scores, decisions, weights)
    assert time.process_time() - started < 5  # 0.2 s on an idle machine; a loop over resamples takes 25 s


def test_auroc_by_column():
    rng = np.random.default_rng(0)
    labels = rng.random((50, 4)) < 0.4
    labels[:, 2] = True
    scores = np.round(rng.random((50, 4)), 1)
    scores[3, 3] = np.nan
    found = auroc_by_column(labels, scores)
    for k in (0, 1):
        assert found[k] == pytest.approx(roc_auc_score(labels[:, k], scores[:, k]))
    assert np.isnan(found[2:]).all()


def test_best_threshold_is_the_best_of_all():
    labels, scores, _ = problem(120, 4, 2)
    threshold = best_threshold(labels, scores)
    best = max(matthews_corrcoef(labels, scores >= t) for t in np.unique(scores))
    assert matthews_corrcoef(labels, scores >= threshold) == pytest.approx(best)
    assert threshold not in scores  # midway, so that rounding decides nothing


def test_threshold_without_a_choice():
    assert best_threshold(np.zeros(4, dtype=bool), np.arange(4.0)) == 0.5
    assert best_threshold(np.array([True, False]), np.array([0.2, 0.2])) == 0.5
    assert best_threshold(np.array([True, False]), np.array([np.nan, 0.2])) == 0.5


# --------------------------------------------------------------------------------------- probabilities and the top ones


def repeated(weights, *columns):
    """The rows as often as they were drawn."""
    return [np.repeat(column, weights) for column in columns]


def ece_by_hand(labels, probabilities, bins=10):
    place = np.floor((rankdata(probabilities) - 0.5) / len(labels) * bins + 1e-9)
    return sum(abs((probabilities - labels)[place == b].sum()) for b in range(bins)) / len(labels)


def precision_by_hand(labels, scores, k):
    """All receptors above the k-th best score count; those equal to it fill what is left, each to the same part."""
    last = np.sort(scores)[-k]
    above = scores > last
    return (labels[above].sum() + (k - above.sum()) * labels[scores == last].mean()) / k


@pytest.mark.parametrize("levels", [0, 20, 2], ids=["no ties", "some ties", "many ties"])
def test_probability_metrics_are_those_of_repeated_rows(levels):
    rng = np.random.default_rng(4)
    probabilities = rng.beta(0.5, 2, size=120)
    labels = rng.random(120) < probabilities
    if levels:
        probabilities = np.round(probabilities * levels) / levels
    weights = bootstrap_weights(120, 40, seed=2)
    found = {
        "brier": brier(labels, probabilities, weights),
        "ece": ece(labels, probabilities, weights),
        "top": precision_at_10(labels, probabilities, weights),
        "top 30": precision_at_k(labels, probabilities, weights, 30),
    }
    for r in range(41):
        drawn, scores = repeated(weights[:, r], labels, probabilities)
        assert found["brier"][r] == pytest.approx(brier_score_loss(drawn, scores), abs=1e-12)
        assert found["ece"][r] == pytest.approx(ece_by_hand(drawn, scores), abs=1e-12)
        assert found["top"][r] == pytest.approx(precision_by_hand(drawn, scores, 10), abs=1e-12)
        assert found["top 30"][r] == pytest.approx(precision_by_hand(drawn, scores, 30), abs=1e-12)


@pytest.mark.parametrize("bins", [1, 5, 10])
def test_ece_is_the_gap_of_scikit_learns_quantile_bins(bins):
    rng = np.random.default_rng(0)
    probabilities = rng.random(200)
    labels = rng.random(200) < probabilities**2
    share, mean = calibration_curve(labels, probabilities, n_bins=bins, strategy="quantile")
    found = ece(labels, probabilities, np.ones((200, 1), dtype=np.uint8), bins)
    assert found[0] == pytest.approx(np.abs(share - mean).mean(), abs=1e-12)


def test_precision_at_k_is_the_mean_over_the_orders_of_the_tied():
    labels = np.array([1, 0, 1, 0, 0, 1], dtype=bool)
    scores = np.array([3.0, 2, 2, 2, 1, 1])
    orders = [np.array(order) for order in itertools.permutations(range(6))]
    for k in range(1, 7):
        values = [labels[order[np.argsort(-scores[order], kind="stable")[:k]]].mean() for order in orders]
        found = precision_at_k(labels, scores, np.ones((6, 1), dtype=np.uint8), k)
        assert found[0] == pytest.approx(np.mean(values))


def test_undefined_probability_metrics():
    scores, ones = np.linspace(0, 1, 12), np.ones((12, 3), dtype=np.uint8)
    mixed = scores > 0.3
    for labels in (np.zeros(12, dtype=bool), np.ones(12, dtype=bool)):
        for metric in (brier, ece, precision_at_10):
            assert np.isnan(metric(labels, scores, ones)).all()
    assert np.isnan(precision_at_k(mixed, scores, ones, 13)).all()
    assert precision_at_k(mixed, scores, ones, 12)[0] == pytest.approx(mixed.mean())
    for metric in (brier, ece, precision_at_10):  # a fold without a receptor, and a resample that drew one label
        assert np.isnan(metric(mixed[:0], scores[:0], ones[:0])).all()
        only = np.where(mixed, 2, 0)[:, None].astype(np.uint8)
        assert np.isnan(metric(mixed, scores, np.hstack([only, ones]))).tolist() == [True, False, False, False]


def test_intervals_hold_the_value():
    rng = np.random.default_rng(3)
    probabilities = rng.random(60)
    labels = rng.random(60) < probabilities
    found = interval(ece(labels, probabilities, bootstrap_weights(60, 200, 1)))
    assert found["low"] <= found["value"] <= found["high"]


def test_chunks_change_no_metric(monkeypatch):
    rng = np.random.default_rng(0)
    scores = np.round(rng.random(60), 1)
    labels, weights = rng.random(60) < scores, bootstrap_weights(60, 50, seed=5)

    def measured():
        found = [metric(labels, scores, weights) for metric in (brier, ece, precision_at_10)]
        found += [weighted_auroc(labels, scores[:, None], weights)[0]]
        return np.stack(found + list(regression_metrics(scores, rng_values, weights).values()))

    rng_values = rng.normal(size=60)
    whole = measured()
    monkeypatch.setattr("airrformer.classify.metrics._AT_ONCE", 7 * 60)
    np.testing.assert_allclose(measured(), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("levels", [0, 3, 1], ids=["no ties", "some ties", "many ties"])
@pytest.mark.parametrize("share", [0.03, 0.5, 0.97])
def test_auroc_of_many_models(levels, share):
    rng = np.random.default_rng(1)
    labels = rng.random(100) < share
    scores = rng.normal(size=(100, 4)) + labels[:, None]
    scores[:, 3] = 0.5
    if levels:
        scores = np.round(scores * levels) / levels
    weights = bootstrap_weights(100, 30, seed=3)
    found = weighted_auroc(labels, scores, weights)
    for model in range(4):
        expected = weighted_metrics(labels, scores[:, model], scores[:, model] > 0, weights)["auroc"]
        np.testing.assert_allclose(found[model], expected, rtol=0, atol=1e-12)
    assert np.isnan(weighted_auroc(np.ones(100, dtype=bool), scores, weights)).all()


# ----------------------------------------------------------------------------------------------------------- regression


@pytest.mark.parametrize("levels", [0, 2], ids=["no ties", "ties"])
@pytest.mark.parametrize("offset", [0, 1e6], ids=["about 0", "far from 0"])
def test_regression_metrics_are_scipys_on_repeated_rows(levels, offset):
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    predicted = y + rng.normal(size=60)
    if levels:
        y, predicted = np.round(y * levels) / levels, np.round(predicted * levels) / levels
    y, predicted = y + offset, predicted + offset
    weights = bootstrap_weights(60, 25, seed=1)
    found = regression_metrics(y, predicted, weights)
    assert tuple(found) == REGRESSION_METRICS
    for r in range(26):
        truth, guess = repeated(weights[:, r], y, predicted)
        assert found["spearman"][r] == pytest.approx(spearmanr(truth, guess).statistic, abs=1e-12)
        assert found["pearson"][r] == pytest.approx(pearsonr(truth, guess).statistic, abs=1e-9)
        assert found["rmse"][r] == pytest.approx(root_mean_squared_error(truth, guess), rel=1e-9)
    assert spearman(y, predicted) == found["spearman"][0]


def test_a_constant_has_no_correlation():
    y, weights = np.array([1.0, 2, 2, 5]), np.array([[1, 0], [1, 1], [1, 3], [1, 0]], dtype=np.uint8)
    found = regression_metrics(y, np.array([0.1, 0.2, 0.3, 0.4]), weights)
    assert found["spearman"][0] > 0.9 and np.isnan(found["spearman"][1]) and np.isnan(found["pearson"][1])
    assert found["rmse"][1] == pytest.approx(np.sqrt((1.8**2 + 3 * 1.7**2) / 4))
    found = regression_metrics(y, np.full(4, 0.1), weights)
    assert np.isnan([found["spearman"], found["pearson"]]).all() and not np.isnan(found["rmse"]).any()
    for values in regression_metrics(y[:0], y[:0], weights[:0]).values():
        assert np.isnan(values).all()
    assert np.isnan(spearman(y, np.array([1, np.nan, 2, 3]))) and np.isnan(spearman(y[:1], y[:1]))


# --------------------------------------------------------------------------------------------------------- over classes


def test_macro_interval_of_one_class_is_the_plain_one():
    values = np.random.default_rng(0).random((1, 200))
    assert macro_interval(values, seed=3) == interval(values[0])


def test_macro_interval_resamples_classes_as_well():
    rng = np.random.default_rng(0)
    by_class = np.linspace(0.5, 0.9, 16)[:, None] + 0.02 * rng.normal(size=(16, 4001))
    found, receptors_only = macro_interval(by_class, seed=1), interval(mean_defined(by_class))
    assert found["value"] == receptors_only["value"] and found == macro_interval(by_class, seed=1)
    # both sources of chance: the spread of the classes and that of the receptors, over 16 classes
    spread = np.sqrt((by_class[:, 0].var() + 0.02**2) / 16)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * spread, rel=0.08)
    assert receptors_only["high"] - receptors_only["low"] == pytest.approx(2 * 1.96 * 0.02 / 4, rel=0.08)


def test_macro_interval_covers_the_mean_of_all_classes():
    """200 studies of 12 classes out of many, each class with its own chance of receptors."""
    rng = np.random.default_rng(7)
    held = 0
    for study in range(200):
        true = 0.75 + 0.1 * rng.normal(size=12)
        seen = true + 0.03 * rng.normal(size=12)
        found = macro_interval(np.hstack([seen[:, None], seen[:, None] + 0.03 * rng.normal(size=(12, 300))]), study)
        held += found["low"] <= 0.75 <= found["high"]
    assert 0.9 <= held / 200 <= 0.99


def test_macro_interval_leaves_out_what_is_undefined():
    values = np.random.default_rng(0).random((3, 50))
    values[1, 0] = np.nan
    values[2, 7] = np.nan
    assert macro_interval(values, 1) == macro_interval(values[[0, 2]], 1)
    assert macro_interval(np.full((2, 50), np.nan), 1) == {"value": None, "low": None, "high": None}


def test_pooled_auroc_misleads():
    """Scores that say only how common a class is: each class at 0.5, the pool far above."""
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 2)) < [0.9, 0.05]).astype(np.int8)
    scores = np.tile([0.9, 0.05], (400, 1))
    known = rng.random((400, 2)) < 0.8
    labels[~known] = -1
    found = pooled_auroc(labels, scores, known)
    assert found == pytest.approx(roc_auc_score(labels[known], scores[known])) and found > 0.9
    assert (auroc_by_column(labels, scores) == 0.5).all()
    assert np.isnan(pooled_auroc(labels, np.full((400, 2), np.nan), known))
    assert "misleading" in POOLED_IS_MISLEADING


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_accuracy_is_scikit_learns_on_repeated_rows(k):
    rng = np.random.default_rng(0)
    own = rng.integers(0, 5, 80)
    Y = np.eye(5, dtype=np.int8)[own]
    scores = rng.random((80, 5)) + Y
    weights = bootstrap_weights(80, 20, seed=1)
    found = top_k_accuracy(Y, scores, weights, k)
    for r in range(21):
        drawn = np.repeat(np.arange(80), weights[:, r])
        assert found[r] == pytest.approx(top_k_accuracy_score(own[drawn], scores[drawn], k=k, labels=range(5)))


def test_top_k_accuracy_without_an_answer():
    Y = np.array([[1, 0, 0], [0, 1, -1], [1, 1, 0], [0, 0, 0], [0, 0, 1]], dtype=np.int8)
    scores = np.array([[0.5, 0.5, 0.5], [0.1, 0.9, 0.2], [1, 1, 1], [1, 1, 1], [0.1, np.nan, 0.9]])
    ones = np.ones((5, 1), dtype=np.uint8)
    assert top_k_accuracy(Y, scores, ones, 1)[0] == pytest.approx((1 / 3 + 1) / 2)  # only the first two are judged
    assert np.isnan(top_k_accuracy(Y, scores, ones, 3)).all()
    assert np.isnan(top_k_accuracy(Y[:, :2], scores[:, :2], ones, 1)).all()
    assert np.isnan(top_k_accuracy(Y[2:], scores[2:], ones[2:], 1)).all()


def test_unknown_labels_count_in_no_column():
    rng = np.random.default_rng(0)
    Y = rng.integers(-1, 2, size=(60, 3)).astype(np.int8)
    scores = np.round(rng.random((60, 3)), 1)
    scores[np.flatnonzero(Y[:, 1] == -1)[0], 1] = np.nan
    for k, found in enumerate(auroc_by_column(Y, scores)):
        known = Y[:, k] >= 0
        assert found == pytest.approx(roc_auc_score(Y[known, k], scores[known, k]))


def test_all_metrics_of_a_thousand_resamples_take_little_time():
    rng = np.random.default_rng(0)
    weights = bootstrap_weights(1500, 1000, 7)
    labels, scores = rng.random(1500) < 0.1, rng.random(1500)
    started = time.process_time()
    for metric in (brier, ece, precision_at_10):
        metric(labels, scores, weights)
    regression_metrics(scores, rng.random(1500), weights)
    weighted_auroc(labels, rng.random((1500, 30)), weights)
    assert time.process_time() - started < 5  # 0.4 s on an idle machine
