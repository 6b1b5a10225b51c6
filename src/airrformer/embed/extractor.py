"""``FeatureExtractor``: sequences -> vectors as a scikit-learn transformer, for pipelines in notebooks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from airrformer.embed.encoders import BATCH_TOKENS, LOOPS, Sequences, load


class FeatureExtractor(TransformerMixin, BaseEstimator):
    """Embed sequences with a frozen encoder; nothing is learned from them, so nothing can leak.

    Parameters
    ----------
    encoder: a name or folder, as ``airrformer.load`` takes it.
    pooling: ``mean``, ``max``, a region such as ``cdr3``, or ``loops``.
    layer: 0 the embedding, -1 the last.
    weights, device, precision: as in ``airrformer.load``.
    batch_tokens: tokens a batch; it changes no result.

    Attributes
    ----------
    encoder_: the loaded encoder. n_features_out_: how many numbers a sequence becomes.
    """

    def __init__(
        self,
        encoder: str | Path = "antiberty",
        pooling: str = "mean",
        layer: int = -1,
        weights: str | Path | None = None,
        device: str = "auto",
        precision: str = "auto",
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        self.encoder = encoder
        self.pooling = pooling
        self.layer = layer
        self.weights = weights
        self.device = device
        self.precision = precision
        self.batch_tokens = batch_tokens

    def fit(self, X: Sequences, y: object = None) -> FeatureExtractor:
        """Load the encoder. Of ``X`` is looked at whether it holds chains or pairs of them; ``y`` is not."""
        self._load()
        first = next(iter(X), "")
        loops = len(LOOPS) * (len(first) if isinstance(first, tuple) else 1)
        self.n_features_out_ = self.encoder_.width * (loops if self.pooling == "loops" else 1)
        return self

    def _load(self) -> None:
        self.encoder_ = load(self.encoder, self.weights, self.device, self.precision)

    def transform(self, X: Sequences) -> np.ndarray:
        """``X``: n sequences (list, array, Series), as ``embed`` takes them. Returns float32 (n, D), row i for i."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.embed(X, pooling=self.pooling, layer=self.layer, batch_tokens=self.batch_tokens)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """``<encoder>_<i>`` for each column, as an object array."""
        check_is_fitted(self, "encoder_")
        return np.array([f"{self.encoder_.name}_{i}" for i in range(self.n_features_out_)], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        return tags

    def __getstate__(self) -> dict:
        # The weights are a file: a pickle (joblib's workers, clones) names the encoder and loads it again.
        return {key: value for key, value in super().__getstate__().items() if key != "encoder_"}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if "n_features_out_" in state:
            self._load()
