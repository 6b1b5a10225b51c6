"""Nearest neighbours of numbers, by the distances that classifiers compare letters by."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.kernels import closest
from airrformer.classify.similarity import blocks_of, metric_of, near_fill
from airrformer.receptors.loops import compared_columns, encode


class DistanceNeighborsRegressor(RegressorMixin, BaseEstimator):
    """The mean of the numbers of the nearest training receptors, weighted by closeness.

    Weights are 1 / distance; where there are receptors at distance 0, they alone count.

    Args:
        n_neighbors: how many; all where there are fewer.
        options: what ``receptors.loops.LoopDistance`` compares.
    """

    def __init__(self, n_neighbors: int = 5, *, options: dict | None = None):
        self.n_neighbors = n_neighbors
        self.options = options

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> DistanceNeighborsRegressor:
        """X: letters of n receptors, as ``receptor_letters`` gives them; y float (n,)."""
        self.references_ = {name: np.array(X[name].tolist(), dtype=str) for name in compared_columns(X)}
        self.y_ = np.asarray(y, dtype=np.float64)
        self.fill_ = near_fill(self._metric(), encode(self.references_))
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """float64 (m,), in the unit of y."""
        check_is_fitted(self)
        found = np.empty(len(X))
        for rows, (block,) in blocks_of(encode(X), encode(self.references_), [self._metric()]):
            nearest, weights = closest(block.distances(self.fill_), self.n_neighbors)
            found[rows] = (weights * self.y_[nearest]).sum(axis=1) / weights.sum(axis=1)
        return found

    def _metric(self):
        return metric_of("loops", self.options)
