"""Columns of the input as features: an isotype, an HLA allele, a measurement."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

logger = logging.getLogger(__name__)


class ColumnsAsNumbers(TransformerMixin, BaseEstimator):
    """Text columns as numbers: float64 (n, D). Words become a column each, numbers stay numbers.

    A column is one of numbers where all that training gives for it are numbers. A word that training does not know,
    like a value that is missing, is no word at all; a missing number is the mean of training.
    """

    def fit(self, X: pd.DataFrame, y=None) -> ColumnsAsNumbers:
        self.names_ = [str(name) for name in X]
        self.means_: dict[str, float] = {}
        self.words_: dict[str, list[str]] = {}
        for name in self.names_:
            values = [text for text in X[name] if text]
            if values and all(_number(text) is not None for text in values):
                self.means_[name] = float(np.mean([_number(text) for text in values]))
            else:
                self.words_[name] = sorted(set(values))
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        check_is_fitted(self, "names_")
        parts = []
        for name in self.names_:
            if name in self.means_:
                found = [_number(text) for text in X[name]]
                parts.append(np.array([[self.means_[name] if value is None else value] for value in found]))
            else:
                words = np.array(self.words_[name], dtype=object)
                parts.append((X[name].to_numpy(dtype=object)[:, None] == words[None]).astype(np.float64))
        return np.concatenate([part.reshape(len(X), -1) for part in parts], axis=1)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def text_columns(values: Sequence[Mapping[str, str | None]], names: Sequence[str]) -> pd.DataFrame:
    """What ``ColumnsAsNumbers`` reads: text, "" where a receptor has no value. One row for each of ``values``."""
    return pd.DataFrame({name: [_text(row.get(name)) for row in values] for name in names}, dtype=object)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""  # a table has None or NaN where there is nothing


def summary(X: pd.DataFrame) -> str:
    """What the columns are taken for, in a line. Warns of words that tell receptors apart rather than kinds of them."""
    said = []
    for name, made in zip(X, (ColumnsAsNumbers().fit(X[[name]]) for name in X)):
        missing = int((X[name] == "").sum())
        what = "numbers" if made.means_ else f"{len(made.words_[str(name)])} words"
        said.append(f"{name}: {what}" + (f", {missing} missing" if missing else ""))
        if made.words_ and len(made.words_[str(name)]) > max(20, 0.2 * (len(X) - missing)):
            logger.warning(
                "column %s: %s among %d values, which tell receptors apart and no kinds of them; are they numbers?",
                name, what, len(X) - missing,
            )  # fmt: skip
    return "; ".join(said)
