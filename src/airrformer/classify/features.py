"""What a classifier learns from: features, labels and receptors of one dataset, joined by id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from airrformer.config import TRAIN_FOLDS, Config, Target
from airrformer.embed.store import read_features
from airrformer.errors import UserError
from airrformer.paths import Results, fold_name
from airrformer.receptors.splits import class_lists
from airrformer.receptors.tables import read_chains, read_receptors

Matrix = np.ndarray | sparse.csr_array

# Labels that say "does not bind" where there is but one other class: no class of their own.
NEGATIVE_LABELS = ("0", "-1")


@dataclass(frozen=True)
class Labelled:
    """n labelled receptors, sorted by id, so that no result depends on the order of the input.

    X: float64 (n, D), dense or ``csr_array``; Y: bool (n, K), receptor by class; a receptor may have several.
    ``for_fold(split, seed, fold)``: what a fold's models learn from and are tested on; X, or with
    ``corpus: train_folds`` the vectors of an encoder that never saw the receptors tested in that fold.
    """

    receptors: pd.DataFrame
    chains: pd.DataFrame
    X: Matrix
    Y: np.ndarray
    classes: list[str]
    feature_names: list[str]
    unlabelled: int
    for_fold: Callable[[str, int, int], Matrix]

    @property
    def ids(self) -> list[str]:
        return self.receptors["receptor_id"].tolist()


def read_labelled(config: Config, target: Target, results: Results) -> Labelled:
    """Features and labels of a target. Raises ``UserError`` when a receptor has no features or none has a label."""
    dataset = config.datasets[target.dataset]
    if dataset.task != "classification":
        raise UserError(f"datasets.{target.dataset}.task: {dataset.task} is not in this version; use classification")
    receptors = read_receptors(results.receptors(target.dataset))
    labelled = np.array([bool(names) for names in class_lists(receptors)], dtype=bool)
    if not labelled.any():
        raise UserError(f"{results.receptors(target.dataset)}: no receptor has a label; see datasets.*.labels")
    unlabelled = int((~labelled).sum())
    receptors = receptors[labelled].sort_values("receptor_id", kind="stable").reset_index(drop=True)

    ids = receptors["receptor_id"].tolist()
    X, names = _rows(results.features(*target[:3]), ids)
    by_fold = getattr(config.encoders[target.encoder], "corpus", None) == TRAIN_FOLDS

    def for_fold(split: str, seed: int, fold: int) -> Matrix:
        if not by_fold:
            return X
        return _rows(results.fold_features(*target[:2], fold_name(split, seed, fold), target.pooling), ids)[0]

    labels = class_lists(receptors)
    classes = name_classes(labels, dataset.labels.classes if dataset.labels else None)
    Y = np.array([[name in names for name in classes] for names in labels], dtype=bool).reshape(len(labels), -1)
    chains = read_chains(results.chains(target.dataset))
    chains = chains[chains["receptor_id"].isin(set(receptors["receptor_id"]))]
    return Labelled(receptors, chains, X, Y, classes, names, unlabelled, for_fold)


def _rows(path: Path, ids: list[str]) -> tuple[Matrix, list[str]]:
    """The features of ``ids``, in their order, and the names of the columns."""
    features = read_features(path)
    row_of = {receptor: row for row, receptor in enumerate(features.receptor_ids)}
    missing = [receptor for receptor in ids if receptor not in row_of]
    if missing:
        raise UserError(
            f"{path}: no features for {len(missing)} of {len(ids)} receptors (such as {', '.join(missing[:3])}); "
            "it is older than receptors.parquet: run `airrformer embed` again"
        )
    return prepare(features.matrix)[[row_of[receptor] for receptor in ids]], features.names


def prepare(matrix: Matrix) -> Matrix:
    """float64, and for sparse features the 32-bit indices that scikit-learn asks for."""
    if not sparse.issparse(matrix):
        return matrix.astype(np.float64)
    matrix = matrix.tocsr().astype(np.float64)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def name_classes(labels: list[list[str]], wanted: list[str] | None) -> list[str]:
    """The classes to learn: those of the config in its order, else all in sorted order.

    Labels 1 and 0 (or 1 and -1) are one class, named 1.
    """
    present = {name for names in labels for name in names}
    classes = [name for name in wanted if name in present] if wanted else sorted(present)
    if len(classes) == 2:
        classes = [name for name in classes if name not in NEGATIVE_LABELS] or classes
    return classes
