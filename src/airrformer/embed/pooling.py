"""Residue vectors -> one vector a sequence. Every pooling takes a mask; none sees padding or special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Pool(NamedTuple):
    """How to pool, and where: ``spans`` (n, 2) holds each sequence's first residue and the one after the last."""

    kind: str  # mean or max
    spans: np.ndarray | None = None  # None: the whole sequence


def span_mask(spans: np.ndarray, length: int, device: torch.device) -> Tensor:
    """(n, 2) half-open spans -> (n, length) mask, True inside."""
    start, end = torch.as_tensor(np.asarray(spans), device=device).unbind(1)
    position = torch.arange(length, device=device)
    return (position >= start[:, None]) & (position < end[:, None])


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """(B, L, D), (B, L) -> (B, D): arithmetic mean over the residues under the mask, summed in fp32."""
    # where, not a product: 0 x inf would be NaN
    kept = torch.where(mask[..., None], hidden.float(), 0.0)
    return kept.sum(1) / mask.sum(1)[:, None]


def largest(hidden: Tensor, mask: Tensor) -> Tensor:
    """(B, L, D), (B, L) -> (B, D): largest value of each feature over the residues under the mask."""
    return torch.where(mask[..., None], hidden.float(), -torch.inf).amax(1)


POOLINGS = {"mean": mean, "max": largest}


def loops_together(means: Sequence[np.ndarray]) -> np.ndarray:
    """The means of CDR1, CDR2, CDR3, ..., float32 (n, D) each -> each of length 1, side by side, as the contrastive
    objective compares receptors (pretrain.objectives.loop_vectors); what is 0 stays 0."""
    lengths = [np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in means]
    return np.hstack([part / length for part, length in zip(means, lengths)])
