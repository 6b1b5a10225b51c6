"""What classifiers made of several networks share: labels, the rows that each holds out, and averaged log-odds."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin

from airrformer.errors import UserError

logger = logging.getLogger(__name__)


class AveragedNetworks(ClassifierMixin, BaseEstimator):
    """``n_models`` networks, their log-odds averaged. A subclass gives ``fit`` and ``_logits``.

    ``validation``: share of the groups that each network holds out to know when to stop. After ``fit``: ``weights_`` of
    each network, name -> float32 array, and its best epoch in ``epochs_``.
    """

    def decision_function(self, X) -> np.ndarray:
        """Log-odds, float64 (m, K), or (m,) after binary labels."""
        logits = self._logits(X)
        return logits if self.multi_ else logits[:, 0]

    def predict_proba(self, X) -> np.ndarray:
        positive = expit(self.decision_function(X))
        return positive if self.multi_ else np.stack([1 - positive, positive], axis=1)

    def predict(self, X) -> np.ndarray:
        """0 or 1 for each class, int (m, K), or labels (m,): what is more likely than not."""
        likely = self.decision_function(X) > 0
        return likely.astype(int) if self.multi_ else self.classes_[likely.astype(int)]

    def _logits(self, X) -> np.ndarray:
        """Log-odds of all networks together, float64 (m, K)."""
        raise NotImplementedError

    def _learn_labels(self, Y, n: int, groups=None) -> np.ndarray:
        """Y, (n, K), of what ``fit`` was given for ``n`` receptors. Raises ``UserError`` for what cannot be learned."""
        if self.n_models < 1 or not 0 < self.validation <= 1:
            raise UserError(
                f"n_models is {self.n_models} and validation {self.validation}: one network or more is needed, and a "
                "share above 0 of what is held out to know when to stop"
            )
        Y = np.asarray(Y)
        for name, values in (("labels", Y), ("groups", groups)):
            if values is not None and len(values) != n:
                raise UserError(f"{len(values)} {name} for {n} receptors: give one for each")
        if groups is not None and pd.isna(pd.Series(list(groups), dtype=object)).any():
            raise UserError("a receptor without a group: give each a group, its own if it has no other")
        self.multi_ = Y.ndim == 2
        if self.multi_:
            odd = Y[~np.isin(Y, (0, 1, -1))]
            if len(odd):
                raise UserError(f"{odd.tolist()[0]!r} stands in Y; 1, 0 and -1 (not known) were expected")
            self.classes_ = np.arange(Y.shape[1])
            return Y
        self.classes_, Y = np.unique(Y, return_inverse=True)
        if len(self.classes_) != 2:
            raise UserError(f"two labels were expected, not {len(self.classes_)}: {self.classes_[:5].tolist()}")
        return Y[:, None]

    def _fit_networks(self, groups, train: Callable[[np.ndarray, int], tuple[dict[str, np.ndarray], int]]):
        """Train each network: ``train`` gets who is held out, bool (n,), and a seed; it gives weights and the epoch.

        groups: of any kind, (n,): who is held out together.
        """
        self.weights_, self.epochs_ = [], []
        for held in self._held_out(np.unique(np.asarray(groups), return_inverse=True)[1]):
            weights, epoch = train(held, self.random_state + len(self.weights_))
            self.weights_.append(weights)
            self.epochs_.append(epoch)
            logger.info("network %d of %d: best epoch %d", len(self.weights_), self.n_models, epoch)
        return self

    def _held_out(self, groups: np.ndarray) -> list[np.ndarray]:
        """bool (n,) for each network: another share of the groups, int (n,), in an order drawn by the seed."""
        if groups.max() == 0:  # one group cannot be on both sides
            groups = np.arange(len(groups))
        order = np.random.default_rng(self.random_state).permutation(groups.max() + 1)
        shares = min(max(round(1 / self.validation), 2), len(order))
        return [order[groups] * shares // len(order) == model % shares for model in range(self.n_models)]
