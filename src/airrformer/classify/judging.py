"""How a model is judged: every receptor is scored by a model that did not learn from it, fold by fold.

Scores of different folds come from different models and are not on one scale, so a metric is computed within each test
fold and averaged over the folds (and seeds) where it is defined; folds weigh the same. The intervals resample the
receptors, as often as the config says: one draw serves all classes, folds, seeds and splits. The macro average has two:
over the receptors alone, and over receptors and classes, which speaks of classes that were not seen, too.

Letters: S seeds, n receptors, K classes, F folds, R columns of weights (the data and their resamples).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from airrformer.classify.features import Receptors
from airrformer.classify.metrics import (
    METRICS,
    POOLED_IS_MISLEADING,
    REGRESSION_METRICS,
    brier,
    ece,
    interval,
    macro_interval,
    mean_defined,
    pooled_auroc,
    precision_at_k,
    regression_metrics,
    top_k_accuracy,
    weighted_metrics,
)
from airrformer.classify.models import INNER_FOLDS, Fitted, Task, fit, take
from airrformer.classify.negatives import METHODS
from airrformer.config import Dataset, Evaluation
from airrformer.receptors.splits import Split, deal, make_split, value_bins

PROBABILITY_METRICS = ("brier", "ece", "brier_calibrated", "ece_calibrated")
CLASS_METRICS = (*METRICS, "precision_at_k", *PROBABILITY_METRICS)


@dataclass(frozen=True)
class Trial:
    """One cross-validation: who is tested in which fold, and what counts as a positive and a negative in it."""

    seed: int
    split: Split
    Y: np.ndarray  # int8 (n, K), or float64 (n, 1) in regression
    method: np.ndarray  # uint8 (n, K), how each negative came to be one
    same: np.ndarray  # int (n,), equal for receptors with the same chains

    def tested(self, k: int, fold: int) -> np.ndarray:
        """The receptors on which class k is judged in a fold, bool (n,)."""
        rows = self.split.folds == fold
        if self.Y.dtype == np.int8:
            rows &= self.Y[:, k] >= 0
        return rows if self.split.judged is None else rows & self.split.judged[:, k]


@dataclass(frozen=True)
class Tested:
    """Out-of-fold results of one trial; NaN where a receptor was not tested or a class could not be trained."""

    scores: np.ndarray  # float32 (n, K)
    probabilities: np.ndarray  # float64 (n, K), the scores calibrated within the training folds
    decisions: np.ndarray  # bool (n, K)
    chosen: list[dict]  # the grid point of each fold


def make_trials(split: str, data: Receptors, dataset: Dataset, evaluation: Evaluation) -> list[Trial]:
    """A trial for each seed. Raises ``CannotSplit``."""
    trials = []
    for seed in evaluation.seeds:
        Y = data.all_labels(seed)
        made = make_split(split, data.receptors, data.chains, dataset, evaluation, seed, Y)
        trials.append(Trial(seed, made, *data.labels(made.folds, seed), data.same))
    return trials


def run(task: Task, trial: Trial, view_of_fold: Callable[[int], object]) -> Tested:
    """Train and test every fold. ``view_of_fold``: what the models of a fold read, for all receptors."""
    n, K = trial.Y.shape
    scores = np.full((n, K), np.nan, dtype=np.float32)
    probabilities, decisions, chosen = np.full((n, K), np.nan), np.zeros((n, K), dtype=bool), []
    for fold, train in enumerate(trial.split.train):
        test = trial.split.folds == fold
        if not test.any():
            continue
        X = view_of_fold(fold)
        groups = [group for group, used in zip(trial.split.groups, train) if used]
        inner = inner_folds(groups, trial.Y[train], f"{trial.seed}/{fold}", trial.same[train])
        fitted = fit(task, take(X, train), trial.Y[train], inner)
        # what the file says is what is judged: scores are rounded to float32 before anything is computed from them
        scores[test] = fitted.scores(take(X, test))
        if not task.regression:
            decisions[test] = fitted.decide(scores[test])
            probabilities[test] = fitted.calibrate(scores[test])
        chosen.append({"seed": trial.seed, "fold": fold, **fitted.chosen})
    return Tested(scores, probabilities, decisions, chosen)


def fit_on_all(task: Task, data: Receptors, split: Split, X) -> Fitted:
    """The model that is kept: tuned by the groups of one split, fitted on all receptors."""
    Y = data.all_labels(task.seed)
    return fit(task, X, Y, inner_folds(split.groups, Y, "final", data.same))


def inner_folds(groups: list[str], Y: np.ndarray, seed: str, same: np.ndarray) -> np.ndarray:
    """Folds within a training fold, int (n,), that keep groups together, or if these are too few who is the same.

    ``same``: int (n,), equal for receptors with the same chains.
    """
    if len(Y) < INNER_FOLDS:
        return np.zeros(len(Y), dtype=np.int64)
    if len(set(groups)) < INNER_FOLDS:
        _, first, of = np.unique(same, return_index=True, return_inverse=True)
        groups = [f"row {row}" for row in first[of]]
    membership = value_bins(Y[:, 0]) if Y.dtype != np.int8 else Y == 1
    return deal(groups, membership, INNER_FOLDS, f"inner/{seed}")


# ------------------------------------------------------------------------------------------------------ the numbers


def judge(
    data: Receptors, trials: list[Trial], tested: list[Tested], weights: np.ndarray, evaluation: Evaluation
) -> dict:
    """The numbers of one split: each class, their mean, negatives of each kind apart. ``weights``: uint8 (n, R)."""
    names = REGRESSION_METRICS if data.numbers is not None else CLASS_METRICS
    by_class = np.stack([_class_metrics(k, trials, tested, weights, evaluation) for k in range(len(data.classes))])
    classes = {}
    for k, name in enumerate(data.classes):
        classes[name] = _counts(k, trials, tested, data.numbers is not None)
        classes[name] |= {metric: interval(by_class[k, i]) for i, metric in enumerate(names)}
    macro = {metric: _macro(by_class[:, i], trials[0].seed) for i, metric in enumerate(names)}
    judged = {"n_tested": int((trials[0].split.folds >= 0).sum()), "classes": classes, "macro": macro}
    if data.numbers is not None:
        return judged
    prevalences = [entry["prevalence"] for entry in classes.values() if entry["prevalence"] is not None]
    judged["macro"] = {"prevalence": float(np.mean(prevalences)) if prevalences else None} | macro
    judged["negatives"] = _by_method(data, trials, tested, weights)
    judged["pooled"] = _pooled(trials, tested)
    return judged


def _macro(by_class: np.ndarray, seed: int) -> dict[str, float | None]:
    """Value and interval over receptors of the mean over classes, and the interval over receptors and classes."""
    over_both = macro_interval(by_class, seed)
    return interval(mean_defined(by_class)) | {"low_classes": over_both["low"], "high_classes": over_both["high"]}


def _folds(k: int, trials: list[Trial], tested: list[Tested]) -> Iterator[tuple[Trial, Tested, np.ndarray]]:
    """Each fold of each seed in which class k was trained: the receptors that it is judged on, bool (n,)."""
    for trial, found in zip(trials, tested):
        for fold in range(len(trial.split.train)):
            rows = trial.tested(k, fold)
            if rows.any() and not np.isnan(found.scores[rows, k]).any():
                yield trial, found, rows


def _class_metrics(k: int, trials, tested, weights: np.ndarray, evaluation: Evaluation) -> np.ndarray:
    """The metrics of a class, averaged over the test folds where they are defined: float (metrics, R)."""
    if trials[0].Y.dtype != np.int8:
        found = [
            list(regression_metrics(trial.Y[rows, k], done.scores[rows, k], weights[rows]).values())
            for trial, done, rows in _folds(k, trials, tested)
        ]
        names = REGRESSION_METRICS
    else:
        found = [
            _fold_metrics(trial.Y[rows, k] == 1, done, rows, k, weights[rows], evaluation.top_k)
            for trial, done, rows in _folds(k, trials, tested)
        ]
        names = CLASS_METRICS
    return mean_defined(np.array(found)) if found else np.full((len(names), weights.shape[1]), np.nan)


def _fold_metrics(labels: np.ndarray, done: Tested, rows: np.ndarray, k: int, weights: np.ndarray, top_k: int) -> list:
    """``CLASS_METRICS`` of one test fold, each float (R,)."""
    scores, probabilities = done.scores[rows, k], done.probabilities[rows, k]
    ranked = weighted_metrics(labels, scores, done.decisions[rows, k], weights)
    return [
        *(ranked[metric] for metric in METRICS),
        precision_at_k(labels, scores, weights, top_k),
        *(measure(labels, p, weights) for p in (scores, probabilities) for measure in (brier, ece)),
    ]


def _counts(k: int, trials: list[Trial], tested: list[Tested], regression: bool) -> dict:
    """How many receptors a class is judged on, in the first seed."""
    rows = np.zeros(len(trials[0].Y), dtype=bool)
    for _, _, judged in _folds(k, trials[:1], tested[:1]):
        rows |= judged
    n = int(rows.sum())
    if regression:
        return {"n": n}
    positives = int((trials[0].Y[rows, k] == 1).sum())
    return {"n": n, "n_positive": positives, "prevalence": positives / n if n else None}


def _by_method(data: Receptors, trials, tested, weights: np.ndarray) -> dict[str, dict]:
    """Macro metrics against the negatives of each kind alone, where there are several kinds: they are not alike."""
    kinds = [i for i in range(1, len(METHODS)) if any(((t.method == i) & (t.Y == 0)).any() for t in trials)]
    if len(kinds) < 2:
        return {}
    found = {}
    for kind in kinds:
        by_class = []
        for k in range(len(data.classes)):
            folds = []
            for trial, done, rows in _folds(k, trials, tested):
                rows = rows & ((trial.Y[:, k] == 1) | (trial.method[:, k] == kind))
                labels = trial.Y[rows, k] == 1
                values = weighted_metrics(labels, done.scores[rows, k], done.decisions[rows, k], weights[rows])
                folds.append([values[metric] for metric in METRICS])
            undefined = np.full((len(METRICS), weights.shape[1]), np.nan)
            by_class.append(mean_defined(np.array(folds)) if folds else undefined)
        macro = mean_defined(np.stack(by_class))
        found[METHODS[kind]] = {metric: interval(macro[i]) for i, metric in enumerate(METRICS)}
    return found


def _pooled(trials: list[Trial], tested: list[Tested]) -> dict:
    """All classes in one heap: AUROC, as others report it, with the sentence that says why it misleads; and how often a
    receptor's class is the likeliest, or among the three likeliest (of calibrated probabilities, one class a receptor).
    """
    if trials[0].Y.shape[1] < 2:
        return {}
    values, first = [], []
    for trial, done in zip(trials, tested):
        known = (trial.Y >= 0) & ~np.isnan(done.scores)
        if trial.split.judged is not None:
            known &= trial.split.judged
        values.append(pooled_auroc(trial.Y == 1, done.scores, known))
        alone = np.ones((len(trial.Y), 1))
        first.append([top_k_accuracy(trial.Y, done.probabilities, alone, k)[0] for k in (1, 3)])
    auroc, (top_1, top_3) = mean_defined(np.array(values)), mean_defined(np.array(first))
    found = {"auroc": auroc, "top_1_accuracy": top_1, "top_3_accuracy": top_3}
    shown = {name: None if np.isnan(value) else float(value) for name, value in found.items()}
    return shown | {"note": POOLED_IS_MISLEADING}


def undefined_classes(split: str, data: Receptors, trials: list[Trial], tested: list[Tested]) -> list[str]:
    """A sentence for each class that some folds cannot judge."""
    notes = []
    for k, name in enumerate(data.classes):
        defined = total = 0
        for trial, done in zip(trials, tested):
            for fold in range(len(trial.split.train)):
                held = trial.split.held is not None and trial.split.held[fold, k]
                if held or not (trial.split.folds == fold).any():
                    continue  # a class that is kept from training is not meant to be judged there
                rows = trial.tested(k, fold)
                y, scores = trial.Y[rows, k], done.scores[rows, k]
                both = len(y) > 1 if data.numbers is not None else (y == 1).any() and (y == 0).any()
                total += 1
                defined += bool(both and not np.isnan(scores).any())
        if defined < total:
            notes.append(
                f"{name}, split {split}: judged in {defined} of {total} folds; "
                "the others have one label only in the test or in the training part."
            )
    return notes


def prediction_table(split: str, data: Receptors, trials: list[Trial], tested: list[Tested]) -> pd.DataFrame:
    """The rows of predictions.tsv: by seed, fold, class, receptor. A class that could not be trained has none."""
    tables, ids = [], data.receptors["receptor_id"].to_numpy()
    for trial, done in zip(trials, tested):
        for fold in range(len(trial.split.train)):
            for k, name in enumerate(data.classes):
                rows = np.flatnonzero(trial.tested(k, fold) & ~np.isnan(done.scores[:, k]))
                columns = {"receptor_id": ids[rows], "label": trial.Y[rows, k], "score": done.scores[rows, k]}
                if data.numbers is None:
                    columns["probability"] = done.probabilities[rows, k].astype(np.float32)
                    columns["decision"] = done.decisions[rows, k].astype(int)
                place = {"split": split, "seed": trial.seed, "fold": fold, "class": name}
                tables.append(pd.DataFrame(place, index=range(len(rows))).assign(**columns))
    return pd.concat(tables, ignore_index=True)
