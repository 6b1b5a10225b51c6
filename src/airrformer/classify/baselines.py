"""What every classifier has to beat: shortcuts, which know nothing of binding, and plain models that are hard to beat.

A shortcut that does about as well as a model says that the labels can be told without looking at what binds: by the
genes, by a length, by which chains are there, by how often a receptor was seen. All are judged on the same folds as the
classifiers of the config, and need no setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from threadpoolctl import threadpool_limits

from airrformer.classify.evaluation import Study, assess, open_study
from airrformer.classify.families import NUMBERS_BY_DISTANCE, Family
from airrformer.classify.features import Inputs, View, prepare
from airrformer.classify.leakage import corpus_leakage, shortcut_leaks
from airrformer.classify.models import Task, take
from airrformer.config import Config, KmerEncoder, LettersEncoder, ModelSettings, PretrainEncoder
from airrformer.config.classifiers import (
    Classifier,
    LogisticGrid,
    LogisticRegressionClassifier,
    NearestNeighborsClassifier,
    RidgeRegressor,
    SequenceDistance,
)
from airrformer.config.encoders import MeanPooling
from airrformer.paths import Results, write_json
from airrformer.receptors.tables import read_chains, write_table

logger = logging.getLogger(__name__)

SHORTCUT, STRONG = "shortcut", "strong"
INNER_SAMPLE = 2000
_LOGISTIC = LogisticRegressionClassifier(kind="logistic_regression")
_PLAIN_LOGISTIC = LogisticRegressionClassifier(kind="logistic_regression", grid=LogisticGrid(C=[1]))
_RIDGE = RidgeRegressor(kind="ridge")
_EDITS = SequenceDistance(cost="edit", weights=(0, 0, 1), trim=False)


@dataclass(frozen=True)
class Baseline:
    """A model without settings.

    what: it in words, ``{}`` for the word before regression: logistic, or ridge of numbers.
    view: what it reads of a study: a matrix, or letters. settings: its classifier; ``number``: its regressor.
    letters: how letters become vectors, where the classifier wants vectors.
    """

    name: str
    kind: str
    what: str
    view: Callable[[Study], View]
    settings: Classifier = _LOGISTIC
    number: Classifier = _RIDGE
    letters: LettersEncoder | None = None

    def task(self, config: Config, regression: bool) -> Task:
        settings = self.number if regression else self.settings
        kind = Nearest if isinstance(settings, NearestNeighborsClassifier) else Task
        return kind(settings, config.seed, config.evaluation.calibration, self.letters, regression=regression)


@dataclass(frozen=True)
class Nearest(Task):
    """Nearest neighbours of a number that is fixed: inner folds serve thresholds and calibration alone.

    For those ``INNER_SAMPLE`` receptors of a fold do, drawn by the seed; a large set is not gone through again for
    each inner fold.
    """

    @property
    def family(self) -> Family:
        if self.regression:
            return NUMBERS_BY_DISTANCE
        family = super().family

        def scores(settings, grid: list[dict], X, Y, X_test, seed: int) -> np.ndarray:
            m = len(X_test)
            some = np.sort(np.random.default_rng(seed).permutation(m)[:INNER_SAMPLE])
            found = np.full((len(grid), m, Y.shape[1]), np.nan)
            found[:, some] = family.grid_scores(settings, grid, X, Y, take(X_test, some), seed)
            return found

        return replace(family, grid_scores=scores)


def make_baselines(config: Config, dataset: str, results: Results, output: str | Path) -> dict:
    """Write metrics.json and predictions.tsv of all baselines of a dataset into ``output``; return the metrics.

    Beside them what leaks: labels that can be told from elsewhere, and test receptors that an encoder trained here has
    read (``corpora``, the encoders of ``config`` with their datasets).
    """
    with threadpool_limits(limits=1):
        study = open_study(config, dataset, results)
        data, regression = study.data, study.data.numbers is not None
        found, tables = {}, []
        for baseline in BASELINES:
            view = baseline.view(study)
            inputs = Inputs(view, [""] * view.shape[1], lambda split, seed, fold, view=view: view)
            task = baseline.task(config, regression)
            metrics, predictions = assess(study, task, inputs, f"{dataset}, baseline {baseline.name}")
            what = baseline.what.format("ridge" if regression else "logistic")
            found[baseline.name] = {"kind": baseline.kind, "what": what} | metrics
            tables.append(predictions.assign(baseline=baseline.name))
        Y = data.all_labels(config.seed)
        metrics = {
            "version": 1,
            "dataset": dataset,
            "baselines": found,
            "leaks": [] if regression else shortcut_leaks(data.receptors, data.chains, Y, data.classes),
            "corpora": _corpora(study, results),
        }
        output = Path(output)
        write_table(pd.concat(tables, ignore_index=True), output / "predictions.tsv")
        write_json(output / "metrics.json", metrics)
        return metrics


def _corpora(study: Study, results: Results) -> dict[str, dict]:
    """By encoder trained on named datasets, by split: how many test receptors it has read, or the like of them."""
    found = {}
    for name, encoder in study.config.encoders.items():
        if not isinstance(encoder, PretrainEncoder) or not isinstance(encoder.corpus, list) or not encoder.corpus:
            continue
        read = pd.concat([read_chains(results.chains(corpus)) for corpus in encoder.corpus], ignore_index=True)
        found[name] = {
            split: corpus_leakage(study.data.receptors, study.data.chains, read, [trial.split for trial in trials])
            for split, trials in study.trials.items()
        }
    return found


# --------------------------------------------------------------------------------------------------- what they read


def _letters(study: Study) -> pd.DataFrame:
    return study.letters


def _nothing(study: Study) -> np.ndarray:
    return np.zeros((len(study.data.ids), 1))


def _genes(study: Study) -> sparse.csr_array:
    letters = study.letters
    return _one_hot(letters[[column for column in letters if column.endswith(("_v", "_j"))]])


def _lengths(study: Study) -> sparse.csr_array:
    letters = study.letters
    return _one_hot(letters[[column for column in letters if column.endswith("_cdr3")]].map(len).astype(str))


def _presence(study: Study) -> np.ndarray:
    """Which parts are there: of each chain its sequence, CDRs and genes."""
    return (study.letters != "").to_numpy(dtype=np.float64)


def _frequency(study: Study) -> np.ndarray:
    return np.log(study.data.receptors["occurrences"].to_numpy(dtype=np.float64))[:, None]


def _one_hot(table: pd.DataFrame) -> sparse.csr_array:
    """A column for each value of each column."""
    codes = [np.unique(table[name].to_numpy(dtype=str), return_inverse=True)[1] for name in table]
    widths = [int(column.max(initial=-1)) + 1 for column in codes]
    columns = np.stack(codes, axis=1) + np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(int)
    n, k = columns.shape
    matrix = sparse.coo_array((np.ones(n * k), (np.repeat(np.arange(n), k), columns.ravel())), (n, sum(widths)))
    return prepare(matrix)


def _kmers(study: Study) -> sparse.csr_array:
    return _features(study, KmerEncoder(kind="kmer"), None)


def _untrained(study: Study) -> np.ndarray:
    """Vectors of an encoder with the weights that training would start from."""
    from airrformer.embed.encoders import TransformerEncoder
    from airrformer.pretrain.train import untrained

    settings = PretrainEncoder(kind="pretrain", corpus=[], model=ModelSettings(max_length=1024))
    model = untrained(settings.model.to_model_config(), study.config.seed)
    return _features(study, settings, TransformerEncoder(model, "untrained", device="cpu"))


def _features(study: Study, encoder, loaded) -> np.ndarray | sparse.csr_array:
    # imported here, so that a job that only fits a classifier does not pay for torch
    from airrformer.embed.features import dataset_features

    dataset = study.config.datasets[study.name]
    pooling = {"mean": MeanPooling(kind="mean")}
    return prepare(
        dataset_features(study.data.chains, study.data.ids, dataset, encoder, pooling, loaded)["mean"].matrix
    )


_PHYSCHEM = LettersEncoder(kind="letters", encoding="physchem")
_NEAREST = NearestNeighborsClassifier(kind="k_nearest_neighbors", grid={"n_neighbors": [15]})
_NEAREST_EDITS = _NEAREST.model_copy(update={"distance": _EDITS})

BASELINES: tuple[Baseline, ...] = (
    Baseline("class_only", SHORTCUT, "how common a class is", _nothing, _PLAIN_LOGISTIC),
    Baseline("genes_only", SHORTCUT, "V and J genes", _genes),
    Baseline("length_only", SHORTCUT, "the lengths of the CDR3s", _lengths, _PLAIN_LOGISTIC),
    Baseline("presence_only", SHORTCUT, "which chains, CDRs and genes are given", _presence, _PLAIN_LOGISTIC),
    Baseline("frequency_only", SHORTCUT, "how often the receptor occurs in the input", _frequency, _PLAIN_LOGISTIC),
    Baseline("kmers", STRONG, "3-mers of the CDR3s and the genes, {} regression", _kmers),
    Baseline("physchem", STRONG, "physico-chemical make-up of the CDRs, {} regression", _letters, letters=_PHYSCHEM),
    Baseline(
        "nearest_edit", STRONG, "nearest neighbours by edits between CDR3s", _letters, _NEAREST_EDITS, _NEAREST_EDITS
    ),
    Baseline(
        "nearest_tcrdist", STRONG, "nearest neighbours by a TCRdist over CDR1 to CDR3", _letters, _NEAREST, _NEAREST
    ),
    Baseline("untrained", STRONG, "mean vectors of an encoder with random weights, {} regression", _untrained),
)
