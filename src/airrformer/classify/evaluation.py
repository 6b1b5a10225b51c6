"""The classify stage: judge a classifier by every split side by side, then fit it on all receptors and save it.

How the numbers come about. Each receptor is tested once per seed, by a model that saw neither it nor, in the cluster
and group splits, anything that stands together with it. Scores of different folds come from different models and are
not on one scale, so a metric is computed within each test fold and averaged over the folds (and seeds) where it is
defined; folds weigh the same. The intervals resample the receptors, 1,000 times or as the config says: one draw serves
all classes, folds, seeds and splits, so that the macro average has an interval of its own. They speak of the receptors,
not of how the folds or the training fell out.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from airrformer import __version__
from airrformer.classify.features import Labelled, read_labelled
from airrformer.classify.metrics import METRICS, bootstrap_weights, interval, mean_defined, weighted_metrics
from airrformer.classify.models import INNER_FOLDS, fit
from airrformer.classify.persistence import save_model, write_card
from airrformer.config import STRICTEST_FIRST, Config, Target
from airrformer.errors import UserError
from airrformer.paths import Results, write_json
from airrformer.receptors.distances import (
    NO_PAIRS,
    Pairs,
    cdr3_or_chain,
    chain_names,
    chain_strings,
    neighbour_pairs,
    unique,
    whole_chain,
)
from airrformer.receptors.splits import CannotSplit, deal, folds_of_groups, group_name, missing_groups, split_groups
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tested:
    """Out-of-fold results of one split: S seeds, n receptors, K classes."""

    folds: np.ndarray  # int (S, n)
    scores: np.ndarray  # float32 (S, n, K), NaN where a class could not be trained
    decisions: np.ndarray  # bool (S, n, K)
    chosen: list[dict]  # the grid point of each seed and fold
    groups: list[str]  # of each receptor


def classify(config: Config, target: Target, results: Results, output: str | Path) -> dict:
    """Write metrics.json, predictions.tsv, card.md and model/ of one target into ``output``; return the metrics."""
    # Thousands of small products: on a busy machine threads that wait for one another make them a hundred times slower.
    with threadpool_limits(limits=1):
        return _classify(config, target, results, Path(output))


def _classify(config: Config, target: Target, results: Results, output: Path) -> dict:
    started = time.monotonic()
    dataset, evaluation = config.datasets[target.dataset], config.evaluation
    settings = config.classifiers[target.classifier]
    data = read_labelled(config, target, results)
    data, left_out = _leave_out_small_classes(data, evaluation.folds)
    if not data.classes:
        reasons = "; ".join(f"{item['class']}: {item['reason']}" for item in left_out)
        raise UserError(f"dataset {target.dataset}: no class is large enough to be judged ({reasons})")
    notes = _notes(data, dataset, evaluation)
    weights = bootstrap_weights(len(data.ids), evaluation.bootstrap, config.seed)
    likeness = _likeness(data)

    splits, predictions, groups = {}, [], {}
    for split in evaluation.splits:
        try:
            tested = _test(split, data, dataset, evaluation, settings)
        except CannotSplit as reason:
            logger.warning("%s: %s", target.dataset, reason)
            splits[split] = {"skipped": str(reason)}
            continue
        groups[split] = tested.groups
        leakage = _leakage(likeness, tested.folds)
        splits[split] = _judge(split, data, tested, weights, leakage, group_name(dataset, evaluation))
        notes += _undefined(split, data, tested)
        predictions.append(_prediction_table(split, data, tested, evaluation.seeds))
        value = splits[split]["macro"]["auroc"]["value"]
        logger.info("%s, split %s: macro AUROC %s", "/".join(target), split, "-" if value is None else f"{value:.3f}")
    if not predictions:
        raise UserError(f"dataset {target.dataset}: no split can be made: {splits[evaluation.splits[-1]]['skipped']}")

    # The model that is kept is tuned under the most demanding split that can be made.
    strictest = next(split for split in STRICTEST_FIRST if split in groups)
    fitted = fit(settings, data.X, data.Y, _inner_folds(groups[strictest], data.Y, "final"))
    metrics = {
        "version": 1,
        "target": target._asdict(),
        "task": dataset.task,
        "n_receptors": len(data.ids),
        "n_features": data.X.shape[1],
        "classes": data.classes,
        "left_out": left_out,
        "seed": config.seed,
        "folds": evaluation.folds,
        "seeds": list(evaluation.seeds),
        "splits": splits,
        "notes": notes,
        "versions": {"airrformer": __version__, "scikit-learn": version("scikit-learn")},
        "settings": {
            "classifier": settings.model_dump(mode="json"),
            "evaluation": evaluation.model_dump(mode="json"),
            "final": {"tuned_by": strictest, **fitted.chosen},
        },
    }
    write_table(pd.concat(predictions, ignore_index=True), output / "predictions.tsv")
    save_model(output / "model", config, target, results, data, fitted)
    metrics["seconds"] = round(time.monotonic() - started, 2)
    write_card(output / "card.md", config, target, metrics, data)
    write_json(output / "metrics.json", metrics)
    return metrics


def _leave_out_small_classes(data: Labelled, folds: int) -> tuple[Labelled, list[dict]]:
    """Without the classes that have fewer than two positives or two negatives a fold, and a line for each of those.

    Their receptors stay, as negatives of the other classes.
    """
    left_out, kept = [], []
    for k, name in enumerate(data.classes):
        positives = int(data.Y[:, k].sum())
        negatives = len(data.Y) - positives
        if min(positives, negatives) >= 2 * folds:
            kept.append(k)
            continue
        few = f"{positives} receptors" if positives < 2 * folds else f"{negatives} receptors without it"
        reason = f"{few}, but {folds} folds need at least {2 * folds}"
        left_out.append({"class": name, "n": positives, "reason": reason})
        logger.warning("class %s is left out: %s", name, reason)
    return replace(data, Y=data.Y[:, kept], classes=[data.classes[k] for k in kept]), left_out


def _test(split, data: Labelled, dataset, evaluation, settings) -> Tested:
    """Train and test every fold of every seed. Raises ``CannotSplit``."""
    S, (n, K) = len(evaluation.seeds), data.Y.shape
    groups = split_groups(split, data.receptors, data.chains, dataset, evaluation)
    folds = np.empty((S, n), dtype=np.int64)
    scores = np.full((S, n, K), np.nan, dtype=np.float32)
    decisions = np.zeros((S, n, K), dtype=bool)
    chosen = []
    for s, seed in enumerate(evaluation.seeds):
        folds[s] = folds_of_groups(split, groups, data.receptors, evaluation.folds, seed)
        for fold in range(evaluation.folds):
            test = folds[s] == fold
            train = ~test
            X = data.for_fold(split, seed, fold)
            inner = _inner_folds([group for group, used in zip(groups, train) if used], data.Y[train], f"{seed}/{fold}")
            fitted = fit(settings, X[train], data.Y[train], inner)
            # what the file says is what is judged: scores are rounded to float32 before anything is computed from them
            scores[s, test] = fitted.scores(X[test])
            decisions[s, test] = fitted.decide(scores[s, test])
            chosen.append({"seed": seed, "fold": fold, **fitted.chosen})
    return Tested(folds, scores, decisions, chosen, groups)


def _inner_folds(groups: list[str], Y: np.ndarray, seed: str) -> np.ndarray:
    """Folds within a training fold, int (n,), that keep the same groups together; by receptor if there are too few."""
    if len(Y) < INNER_FOLDS:
        return np.zeros(len(Y), dtype=np.int64)
    if len(set(groups)) < INNER_FOLDS:
        groups = [f"row {row}" for row in range(len(Y))]
    return deal(groups, Y, INNER_FOLDS, f"inner/{seed}")


def _judge(
    split, data: Labelled, tested: Tested, weights: np.ndarray, leakage: dict[str, int], group: str | None
) -> dict:
    """One entry of ``splits`` in metrics.json."""
    by_class = np.stack([_class_metrics(data.Y[:, k], k, tested, weights) for k in range(len(data.classes))])
    classes = {}
    for k, name in enumerate(data.classes):
        known = ~np.isnan(tested.scores[..., k]).all(axis=0)
        n, positives = int(known.sum()), int(data.Y[known, k].sum())
        classes[name] = {"n": n, "n_positive": positives, "prevalence": positives / n if n else None}
        classes[name] |= {metric: interval(by_class[k, i]) for i, metric in enumerate(METRICS)}
    macro = mean_defined(by_class)
    prevalences = [entry["prevalence"] for entry in classes.values() if entry["prevalence"] is not None]
    return {
        "n_tested": len(data.ids),
        "n_groups": len(set(tested.groups)) if split != "random" else None,
        "group": group if split == "group" else None,
        "leakage": leakage,
        "classes": classes,
        "macro": {"prevalence": float(np.mean(prevalences)) if prevalences else None}
        | {metric: interval(macro[i]) for i, metric in enumerate(METRICS)},
        "chosen": tested.chosen,
    }


def _class_metrics(labels: np.ndarray, k: int, tested: Tested, weights: np.ndarray) -> np.ndarray:
    """The metrics of a class, averaged over the test folds where they are defined: float (metrics, R)."""
    found = []
    for folds, scores, decisions in zip(tested.folds, tested.scores[..., k], tested.decisions[..., k]):
        for fold in np.unique(folds):
            rows = folds == fold
            if np.isnan(scores[rows]).any():
                continue
            values = weighted_metrics(labels[rows], scores[rows], decisions[rows], weights[rows])
            found.append([values[metric] for metric in METRICS])
    return mean_defined(np.array(found)) if found else np.full((len(METRICS), weights.shape[1]), np.nan)


def _likeness(data: Labelled) -> list[tuple[str, int, np.ndarray, Pairs]]:
    """By the name of a leak: how many items there are, the item of each receptor (n,), and which items are alike."""
    names = chain_names(data.chains)
    same, same_of = unique(chain_strings(data.ids, data.chains, names, whole_chain))
    near, near_of = unique(chain_strings(data.ids, data.chains, names, cdr3_or_chain))
    return [("exact", len(same), same_of, NO_PAIRS), ("distance_1", len(near), near_of, neighbour_pairs(near, 1))]


def _leakage(likeness: list[tuple[str, int, np.ndarray, Pairs]], folds: np.ndarray) -> dict[str, int]:
    """How many test rows have the same chains, or CDR3s at most one edit apart in all, in a training fold."""
    found = {name: sum(int(_in_another_fold(*items, row).sum()) for row in folds) for name, *items in likeness}
    return found | {"of": int(folds.size)}


def _in_another_fold(items: int, item_of: np.ndarray, pairs: Pairs, folds: np.ndarray) -> np.ndarray:
    """Whether a receptor's item, or a neighbour of that item, occurs in another fold than its own: bool (n,)."""
    occurs = np.zeros((items, folds.max() + 1), dtype=bool)
    occurs[item_of, folds] = True
    around = occurs.copy()
    for here, there in (pairs, pairs[::-1]):
        np.logical_or.at(around, here, occurs[there])
    around = around[item_of]
    around[np.arange(len(folds)), folds] = False
    return around.any(axis=1)


def _prediction_table(split, data: Labelled, tested: Tested, seeds) -> pd.DataFrame:
    """The rows of predictions.tsv: by seed, fold, class, receptor. A class that could not be trained has none."""
    tables = []
    for seed, folds, scores, decisions in zip(seeds, tested.folds, tested.scores, tested.decisions):
        for fold in np.unique(folds):
            for k, name in enumerate(data.classes):
                rows = np.flatnonzero((folds == fold) & ~np.isnan(scores[:, k]))
                columns = {"receptor_id": data.receptors["receptor_id"].to_numpy()[rows]}
                columns |= {"label": data.Y[rows, k].astype(int), "score": scores[rows, k]}
                columns |= {"decision": decisions[rows, k].astype(int)}
                place = {"split": split, "seed": seed, "fold": int(fold), "class": name}
                tables.append(pd.DataFrame(place, index=range(len(rows))).assign(**columns))
    return pd.concat(tables, ignore_index=True)


def _notes(data: Labelled, dataset, evaluation) -> list[str]:
    notes = [
        "Each metric is computed within each test fold and averaged over the folds where it is defined; the folds' "
        "scores come from different models and are never pooled.",
        f"Intervals: 2.5 % to 97.5 % of {evaluation.bootstrap} resamples of the receptors, models and folds held "
        "fixed; in the group and cluster splits they do not speak of other groups.",
    ]
    if data.unlabelled:
        notes.append(f"{data.unlabelled} receptors without a label are left out.")
    several = int((data.Y.sum(axis=1) > 1).sum())
    if several:
        notes.append(f"{several} receptors have several classes; each is a positive of all of them.")
    name = group_name(dataset, evaluation)
    if "group" in evaluation.splits and name is not None:
        missing = int(missing_groups(data.receptors[name]).sum())
        if missing:
            notes.append(f"{missing} receptors have no {name}; each counts as a group of its own.")
    return notes


def _undefined(split: str, data: Labelled, tested: Tested) -> list[str]:
    """A sentence for each class that some folds cannot judge."""
    notes = []
    for k, name in enumerate(data.classes):
        folds = [
            data.Y[of_seed == fold, k].any()
            and not data.Y[of_seed == fold, k].all()
            and not np.isnan(scores[of_seed == fold, k]).any()
            for of_seed, scores in zip(tested.folds, tested.scores)
            for fold in np.unique(of_seed)
        ]
        if not all(folds):
            notes.append(
                f"{name}, split {split}: judged in {sum(folds)} of {len(folds)} folds; "
                "the others have one label only in the test or in the training part."
            )
    return notes
