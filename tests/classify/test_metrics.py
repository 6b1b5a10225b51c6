"""The vectorised metrics against scikit-learn, resample by resample."""

import time

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, matthews_corrcoef, roc_auc_score

from airrformer.classify.metrics import (
    METRICS,
    auroc_by_column,
    best_threshold,
    bootstrap_weights,
    interval,
    mean_defined,
    weighted_metrics,
)


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
