"""What a classifier learns from: features or letters, labels and receptors of one dataset, joined by id."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from airrformer.classify.columns import summary, text_columns
from airrformer.classify.negatives import label_matrix
from airrformer.classify.residue_heads import Residues, ResidueSource, residue_table
from airrformer.config import TRAIN_FOLDS, ColumnsEncoder, Config, Embedding, Negatives, Target
from airrformer.embed.store import read_features
from airrformer.errors import UserError
from airrformer.parse.labels import NEGATIVE_CLASSES
from airrformer.paths import Results, fold_name
from airrformer.receptors.distances import chain_names, chain_strings, unique, whole_chain
from airrformer.receptors.loops import receptor_letters
from airrformer.receptors.splits import class_lists, used_receptors
from airrformer.receptors.tables import read_chains, read_receptors

logger = logging.getLogger(__name__)

Matrix = np.ndarray | sparse.csr_array
View = Matrix | pd.DataFrame | Residues  # features, letters, or residues with the encoder that reads them


@dataclass(frozen=True)
class Receptors:
    """The receptors of a dataset from which one can learn, sorted by id: no result depends on the order of the input.

    classes: the names of the K classes; in regression one, the column's.
    numbers: float64 (n, 1) in regression, else ``None``.
    same: int (n,), equal for receptors with the same chains.
    unlabelled: how many receptors have no label and are left out.
    """

    receptors: pd.DataFrame
    chains: pd.DataFrame
    classes: list[str]
    negatives: Negatives
    numbers: np.ndarray | None
    same: np.ndarray
    unlabelled: int

    @property
    def ids(self) -> list[str]:
        return self.receptors["receptor_id"].tolist()

    def all_labels(self, seed: int) -> np.ndarray:
        """Y where all receptors are of one fold: what is known of the whole dataset."""
        return self.labels(np.zeros(len(self.ids), dtype=np.int64), seed)[0]

    def labels(self, folds: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Y, int8 (n, K): 1, 0 or -1 (unknown), and by which method each negative came, uint8 (n, K).

        Negatives that are drawn are drawn within each of ``folds``, int (n,). In regression Y is float64 (n, 1).
        """
        if self.numbers is not None:
            return self.numbers, np.zeros(self.numbers.shape, dtype=np.uint8)
        return label_matrix(self.receptors, self.classes, self.negatives, folds, seed, self.same)


def read_labelled(config: Config, dataset_name: str, results: Results) -> Receptors:
    """The labelled receptors of a dataset. Raises ``UserError`` when none has a label."""
    dataset = config.datasets[dataset_name]
    receptors = read_receptors(results.receptors(dataset_name))
    used = used_receptors(receptors, dataset)
    chosen = receptors[used].sort_values("receptor_id", kind="stable").reset_index(drop=True)
    regression = dataset.task == "regression"
    if not (used.any() if regression else chosen["label"].map(bool).any()):
        raise UserError(f"{results.receptors(dataset_name)}: no receptor has a label; see datasets.*.labels")
    if not regression and "background" in (dataset.negatives.methods or []) and _all_labelled(chosen):
        raise UserError(
            f"datasets.{dataset_name}.negatives: the background is receptors without any label, and there is none in "
            f"{results.receptors(dataset_name)}; leave background out, or add such receptors"
        )
    if config.evaluation.shuffle_labels:
        chosen = _shuffled(chosen, config.seed)
    chains = read_chains(results.chains(dataset_name))
    chains = chains[chains["receptor_id"].isin(set(chosen["receptor_id"]))]
    names = chain_names(chains)
    same = unique(chain_strings(chosen["receptor_id"].tolist(), chains, names, whole_chain))[1]
    if regression:
        classes, numbers = [dataset.labels.column], chosen["label"].to_numpy(dtype=np.float64)[:, None]
    else:
        lists = [[*is_one, *is_none] for is_one, is_none in zip(class_lists(chosen), class_lists(chosen, "not_label"))]
        classes, numbers = name_classes(lists, dataset.labels.classes if dataset.labels else None), None
    return Receptors(chosen, chains, classes, dataset.negatives, numbers, same, int((~used).sum()))


def _all_labelled(receptors: pd.DataFrame) -> bool:
    return all(
        is_one or is_none for is_one, is_none in zip(class_lists(receptors), class_lists(receptors, "not_label"))
    )


def _shuffled(receptors: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same receptors with the labels of others: a control, in which every score should be chance."""
    columns = [column for column in ("label", "not_label") if column in receptors]
    drawn = np.random.default_rng([seed, len(receptors)]).permutation(len(receptors))
    return receptors.assign(**{column: receptors[column].iloc[drawn].to_numpy() for column in columns})


def name_classes(labels: list[list[str]], wanted: list[str] | None) -> list[str]:
    """The classes to learn: those of the config in its order, else all in sorted order.

    Labels 1 and 0 (or 1 and -1) are one class, named 1.
    """
    present = {name for names in labels for name in names}
    classes = [name for name in wanted if name in present] if wanted else sorted(present)
    if len(classes) == 2:
        classes = [name for name in classes if name not in NEGATIVE_CLASSES] or classes
    return classes


@dataclass(frozen=True)
class Inputs:
    """What a target's classifier reads of the receptors: ``whole``, or ``of_fold(split, seed, fold)``.

    Both are one view, or for a stack or several kernels views by the name ``<encoder>/<pooling>``. They differ with
    ``corpus: train_folds``: each fold then has the vectors of an encoder that never saw the receptors tested in it.
    feature_names: of all views, one after another.
    """

    whole: View | dict[str, View]
    feature_names: list[str]
    of_fold: Callable[[str, int, int], View | dict[str, View]]


def read_inputs(config: Config, target: Target, results: Results, data: Receptors, device: str = "auto") -> Inputs:
    """Raises ``UserError`` when a receptor has no features. ``device``: of encoders whose residues are read."""
    ids, embeddings = data.ids, config.inputs(target)

    def view(embedding: Embedding, fold: str | None = None) -> tuple[View, list[str]]:
        encoder = config.encoders[embedding.encoder]
        if config.read_as(embedding) == "residues":
            residues = residues_of(config, embedding, results, ids, data.chains, device, fold)
            return residues, residues.table.columns.tolist()
        if encoder.kind == "letters":
            letters = receptor_letters(ids, data.chains, config.datasets[embedding.dataset].chains)
            return letters, letters.columns.tolist()
        if isinstance(encoder, ColumnsEncoder):
            columns = text_columns(data.receptors.to_dict("records"), encoder.columns)
            logger.info("%s, %s", embedding.encoder, summary(columns))
            return columns, encoder.columns
        path = results.fold_features(*embedding[:2], fold, embedding.pooling) if fold else None
        return _rows(path or results.features(*embedding), ids)

    def together(views: list[View]) -> View | dict[str, View]:
        return dict(zip(map(view_name, embeddings), views)) if config.reads_several(target) else views[0]

    whole, names = zip(*map(view, embeddings))
    by_fold = [getattr(config.encoders[e.encoder], "corpus", None) == TRAIN_FOLDS for e in embeddings]

    def of_fold(split: str, seed: int, fold: int) -> View | dict[str, View]:
        return together(
            [
                view(e, fold_name(split, seed, fold))[0] if folded else once
                for e, folded, once in zip(embeddings, by_fold, whole)
            ]
        )

    return Inputs(together(list(whole)), [name for each in names for name in each], of_fold)


def residues_of(
    config: Config,
    embedding: Embedding,
    results: Results,
    ids: list[str],
    chains: pd.DataFrame,
    device: str,
    fold: str | None = None,
) -> Residues:
    """The receptors ``ids`` as a residue head reads them, by an encoder of the config, or by that of one ``fold``.

    The encoder is loaded when it is first needed.
    """
    encoder, pooling = config.encoders[embedding.encoder], config.poolings[embedding.pooling]

    def load():
        from airrformer.embed.encoders import load as load_folder
        from airrformer.embed.stage import load_encoder

        if fold:
            return load_folder(results.fold_encoders(embedding.encoder) / fold, None, device)
        return load_encoder(encoder.kind, results, embedding.encoder, device, "auto")

    form = getattr(encoder, "sequence", ["chain"])[0]
    table = residue_table(ids, chains, config.datasets[embedding.dataset].chains, pooling.region, form)
    return Residues(table, ResidueSource(load, getattr(encoder, "layer", -1), embedding.encoder, device))


def view_name(embedding: Embedding) -> str:
    """What a stack calls that which a member reads."""
    return f"{embedding.encoder}/{embedding.pooling}"


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
