"""Calibration against scikit-learn, and what it promises: order kept, finite, the same again from JSON."""

import json

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from airrformer.classify.calibration import KINDS, Calibrator, fit_calibrator
from airrformer.classify.metrics import ece
from airrformer.errors import UserError


def miscalibrated(n, slope, offset, seed=0):
    """Probabilities whose true log odds are ``slope * logit + offset``."""
    rng = np.random.default_rng(seed)
    scores = expit(rng.normal(size=n) * 1.5)
    return scores, rng.random(n) < expit(slope * logit(scores) + offset)


def test_the_true_map_is_found():
    scores, labels = miscalibrated(50_000, 0.5, -2.0)
    found = fit_calibrator("temperature", scores, labels)
    assert found.slope == pytest.approx(0.5, abs=0.03) and found.offset == pytest.approx(-2.0, abs=0.03)


def test_temperature_is_a_logistic_regression_on_the_log_odds():
    scores, labels = miscalibrated(20_000, 2.0, 1.0)
    found = fit_calibrator("temperature", scores, labels)
    reference = LogisticRegression(C=np.inf, tol=1e-8).fit(logit(scores)[:, None], labels)
    expected = reference.predict_proba(logit(scores)[:, None])[:, 1]
    np.testing.assert_allclose(found.apply(scores), expected, atol=2e-3)


def test_isotonic_is_scikit_learns():
    scores, labels = miscalibrated(300, 0.5, -1.0)
    new = np.linspace(0, 1, 501)
    expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels).predict(new)
    np.testing.assert_allclose(fit_calibrator("isotonic", scores, labels).apply(new), expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_probabilities_hold_afterwards(kind):
    scores, labels = miscalibrated(4000, 0.4, -2.0, seed=1)
    fitted = fit_calibrator(kind, scores[:2000], labels[:2000])
    before, after, labels = scores[2000:], fitted.apply(scores[2000:]), labels[2000:]
    ones = np.ones((2000, 1), dtype=np.uint8)
    assert brier_score_loss(labels, after) < 0.7 * brier_score_loss(labels, before)
    assert ece(labels, after, ones)[0] < 0.04 < 0.2 < ece(labels, before, ones)[0]


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0, -1.0], ids=str)
def test_order_is_kept(slope):
    scores, labels = miscalibrated(200, slope, -1.0, seed=2)
    new = np.concatenate([[0, 1e-12, 1e-9, 1e-6], scores, [1 - 1e-6, 1]])
    truth = np.random.default_rng(0).random(len(new)) < 0.4
    after = fit_calibrator("temperature", scores, labels).apply(new)
    assert (np.diff(after[np.argsort(new)]) > 0).all()
    assert roc_auc_score(truth, after) == roc_auc_score(truth, new)
    assert (np.diff(fit_calibrator("isotonic", scores, labels).apply(np.sort(new))) >= 0).all()


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize("levels", [[0.0, 1.0], [0.4999, 0.5001], [1e-30, 1 - 1e-16]], ids=["0/1", "near", "extreme"])
def test_scores_that_separate_stay_finite(levels, n):
    labels = np.arange(n) % 2 == 1
    found = fit_calibrator("temperature", np.where(labels, levels[1], levels[0]), labels)
    assert np.isfinite([found.slope, found.offset]).all() and found.slope > 0
    low, high = found.apply(np.array(levels))
    assert 0 < low < 0.5 < high < 1
    # as sure as rows of that number allow
    assert log_loss(labels, np.where(labels, high, low)) < 1


def test_equal_scores_become_the_prevalence():
    labels = np.arange(40) < 10
    found = fit_calibrator("temperature", np.full(40, 0.9), labels)
    assert found.apply(np.array([0.9]))[0] == pytest.approx(0.25, abs=0.02)
    assert found == fit_calibrator("temperature", np.full(40, 0.9), labels)


def test_too_little_to_fit_is_said():
    scores = np.linspace(0.1, 0.9, 12)
    labels = np.arange(12) > 5
    few = fit_calibrator("temperature", scores[:9], labels[:9])
    one = fit_calibrator("isotonic", scores, np.ones(12, dtype=bool))
    unscored = fit_calibrator("isotonic", np.append(scores[:9], np.full(3, np.nan)), labels)
    assert (few.kind, few.wanted, few.rows) == ("none", "temperature", 9) and "9 receptors" in few.note
    assert one.kind == "none" and "one label" in one.note
    assert unscored.kind == "none" and unscored.rows == 9
    for fitted in (few, one, unscored, fit_calibrator("none", scores, labels)):
        np.testing.assert_array_equal(fitted.apply(scores), scores)
    assert fit_calibrator("none", scores, labels).note == ""


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_from_json(kind):
    scores, labels = miscalibrated(120, 0.5, -1.0)
    fitted = fit_calibrator(kind, scores.astype(np.float32), labels)
    again = Calibrator.from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
    assert again == fitted
    new = np.array([[0.0, 0.2], [np.nan, 1.0]])
    np.testing.assert_array_equal(again.apply(new), fitted.apply(new))
    assert np.isnan(fitted.apply(new)[1, 0]) and np.isnan(fitted.apply(new)).sum() == 1


def test_what_cannot_be_calibrated():
    with pytest.raises(ValueError, match="only probabilities"):
        fit_calibrator("temperature", np.linspace(-2, 2, 20), np.arange(20) > 9)
    with pytest.raises(ValueError, match="'platt' is none of temperature, isotonic, none"):
        fit_calibrator("platt", np.linspace(0, 1, 20), np.arange(20) > 9)
    with pytest.raises(UserError, match="kind 'beta' is not known here"):
        Calibrator.from_dict({"kind": "beta"})
