"""Stacking (Wolpert 1992): several classifiers, weighed by one logistic regression that all classes share.

A class of a few dozen positives cannot tell by itself which member to trust; all of them together can, each class
weighing the same. A member's scores are made alike first: log odds, standardised within each class.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import logit
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

from airrformer.classify.kernels import best_other

_LEAST = 1e-6  # probabilities are kept this far from 0 and 1


class Stack(BaseEstimator):
    """Members that are already fitted, and the weights of their scores.

    views: the name of what each member reads, among those of X; ``None``: all of them. ``weigh`` learns from
    out-of-fold scores (members, n, K); ``predict_proba`` takes X as a mapping of views. Weights are not below 0: a
    member that would have to be turned round is left out. rivals: each member's score of the best other class is
    weighed, too, either way.
    """

    def __init__(self, views: list[str | None], regression: bool = False, rivals: bool = False):
        self.views = views
        self.regression = regression
        self.rivals = rivals

    def weigh(self, scores: np.ndarray, Y: np.ndarray) -> Stack:
        """Fit centres and scales (columns, K), weights (columns,) and the intercept; Y int8 (n, K) or float (n, 1).

        The columns are the members, then with ``rivals`` the members again.
        """
        odds = self._odds(scores)
        known = ~np.isnan(odds).any(axis=0) & ((Y >= 0) | self.regression)
        masked = np.where(known, odds, np.nan)
        with np.errstate(all="ignore"):
            counts = np.maximum(known.sum(axis=0), 1)
            self.centres_ = np.nansum(masked, axis=1) / counts
            self.scales_ = np.sqrt(np.nansum((masked - self.centres_[:, None]) ** 2, axis=1) / counts)
        self.scales_ = np.where(self.scales_ > 1e-9, self.scales_, 1.0)
        rows = self._standard(odds)[:, known].T  # (known pairs, columns)
        target, classes = Y[known], np.nonzero(known)[1]
        members = len(self.views)
        self.weights_ = np.where(np.arange(len(odds)) < members, 1 / members, 0.0)
        self.intercept_ = 0.0
        if len(target) > len(odds) and len(np.unique(target)) > 1:
            share = 1 / np.bincount(classes)[classes]
            self.weights_, self.intercept_ = self._weights(rows, target, share / share.mean())
        return self

    def _weights(self, rows: np.ndarray, target: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float]:
        members, kept = len(self.views), np.arange(rows.shape[1])
        while True:
            model = Ridge(alpha=1.0) if self.regression else LogisticRegression(C=1.0)
            model.fit(rows[:, kept], target, sample_weight=share)
            coefficients = np.ravel(model.coef_)
            turned = (coefficients < 0) & (kept < members)
            if not turned.any() or len(kept) == 1:
                break
            kept = kept[~turned] if not turned.all() else kept[[int(np.argmax(coefficients))]]
        weights = np.zeros(rows.shape[1])
        weights[kept] = np.where(kept < members, np.maximum(coefficients, 0), coefficients)
        if not weights[:members].any():
            weights[:] = np.where(np.arange(len(weights)) < members, 1 / members, 0.0)
        return weights, float(np.ravel(model.intercept_)[0])

    def combine(self, scores: np.ndarray) -> np.ndarray:
        """Scores of members (members, m, K) -> scores (m, K); NaN where a member has none."""
        total = np.tensordot(self.weights_, self._standard(self._odds(scores)), axes=1) + self.intercept_
        return total if self.regression else 1 / (1 + np.exp(-total))

    def predict_proba(self, X: Mapping) -> np.ndarray:
        """P(positive) of each class, float64 (m, K)."""
        return self.combine(np.stack([member.predict_proba(view) for member, view in self._read(X)]))

    def predict(self, X: Mapping) -> np.ndarray:
        """Predicted numbers, float64 (m,), in regression."""
        return self.combine(np.stack([member.predict(view)[:, None] for member, view in self._read(X)]))[:, 0]

    def _read(self, X: Mapping) -> list[tuple[BaseEstimator, object]]:
        """Each member and what it reads of X."""
        if not hasattr(self, "members_"):
            raise NotFittedError("this Stack has no fitted members yet")
        return [(member, X if view is None else X[view]) for member, view in zip(self.members_, self.views)]

    def _odds(self, scores: np.ndarray) -> np.ndarray:
        """What is weighed, float (columns, m, K)."""
        if self.regression:
            return scores
        odds = logit(np.clip(scores, _LEAST, 1 - _LEAST))
        if not self.rivals:
            return odds
        # a class that a member could not learn is nobody's rival
        others = np.stack([best_other(np.where(np.isnan(member), -np.inf, member)) for member in odds])
        return np.concatenate([odds, np.where(np.isfinite(others), others, 0.0)])

    def _standard(self, odds: np.ndarray) -> np.ndarray:
        return (odds - self.centres_[:, None]) / self.scales_[:, None]
