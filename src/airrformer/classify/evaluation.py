"""The classify stage: judge a classifier by every split side by side, then fit it on all receptors and save it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from airrformer import __version__
from airrformer.classify.card import write_card
from airrformer.classify.features import Inputs, Receptors, read_inputs, read_labelled
from airrformer.classify.judging import Trial, fit_on_all, judge, make_trials, prediction_table, run, undefined_classes
from airrformer.classify.leakage import leakage_table
from airrformer.classify.metrics import bootstrap_weights
from airrformer.classify.models import Task, task_of
from airrformer.classify.negatives import shortfalls, summary
from airrformer.classify.persistence import save_model
from airrformer.config import STRICTEST_FIRST, Config, Dataset, Target
from airrformer.errors import UserError
from airrformer.paths import Results, write_json
from airrformer.receptors.loops import receptor_letters
from airrformer.receptors.splits import CannotSplit, class_lists, group_name, missing_groups
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)

_NO_NEGATIVES = "no receptor counts as not of it; say which do: rows that say no (labels.value), {}(background)"
_OTHERS = "receptors of other classes (negatives.methods: swapped) or receptors without a label "
_UNLABELLED = "or receptors without a label, as there is no other class "


@dataclass(frozen=True)
class Study:
    """A dataset ready to be learnt from: its receptors, its cross-validations by split, and the bootstrap's draws.

    skipped: by split, why it cannot be made. left_out: classes too small to be judged.
    """

    name: str
    config: Config
    data: Receptors
    trials: dict[str, list[Trial]]
    skipped: dict[str, str]
    left_out: list[dict]
    weights: np.ndarray

    @cached_property
    def leakage(self) -> dict[str, dict[str, int]]:
        """By split, how many test receptors have their like in training: the same for every model."""
        data = self.data
        return {
            split: leakage_table(data.receptors, data.chains, [trial.split for trial in trials])
            for split, trials in self.trials.items()
        }

    @cached_property
    def letters(self) -> pd.DataFrame:
        """The receptors' CDRs, genes and sequences as text."""
        return receptor_letters(self.data.ids, self.data.chains, self.config.datasets[self.name].chains)

    @property
    def strictest(self) -> str:
        return next(split for split in STRICTEST_FIRST if split in self.trials)


def open_study(config: Config, name: str, results: Results) -> Study:
    """Raises ``UserError`` when there is nothing to learn or no split can be made."""
    dataset, evaluation = config.datasets[name], config.evaluation
    data, left_out = _leave_out_small_classes(read_labelled(config, name, results), evaluation)
    if not data.classes:
        reasons = "; ".join(f"{names}: {reason}" for names, reason in _by_reason(left_out))
        raise UserError(f"dataset {name}: no class is large enough to be judged ({reasons})")
    for note in _absent_chains(data, dataset):
        logger.warning("%s: %s", name, note)
    trials, skipped = {}, {}
    for split in evaluation.splits:
        try:
            trials[split] = make_trials(split, data, dataset, evaluation)
        except CannotSplit as reason:
            logger.warning("%s: %s", name, reason)
            skipped[split] = str(reason)
    if not trials:
        raise UserError(f"dataset {name}: no split can be made: {skipped[evaluation.splits[-1]]}")
    weights = bootstrap_weights(len(data.ids), evaluation.bootstrap, config.seed)
    return Study(name, config, data, trials, skipped, left_out, weights)


def _leave_out_small_classes(data: Receptors, evaluation) -> tuple[Receptors, list[dict]]:
    """Without the classes that have fewer than two positives or two negatives a fold, and a line for each of those.

    Their receptors stay, as negatives of the other classes.
    """
    if data.numbers is not None:
        return data, []
    least, folds = max(2 * evaluation.folds, evaluation.min_class or 0), evaluation.folds
    Y = data.all_labels(0)
    left_out, kept = [], []
    for name, y in zip(data.classes, Y.T):
        positives, negatives = int((y == 1).sum()), int((y == 0).sum())
        if positives >= least and negatives >= 2 * folds:
            kept.append(name)
            continue
        few = f"{positives} receptors" if positives < least else f"{negatives} receptors without it"
        needs = f"{folds} folds need at least {2 * folds}"
        if positives >= 2 * folds and negatives >= 2 * folds:
            needs = f"evaluation.min_class asks for {least}"
        lacking = _NO_NEGATIVES.format(_OTHERS if len(data.classes) > 1 else _UNLABELLED)
        reason = f"{few}, but {needs}" if negatives else lacking
        left_out.append({"class": name, "n": positives, "reason": reason})
    for names, reason in _by_reason(left_out):
        logger.warning("class %s left out: %s", names, reason)
    return replace(data, classes=kept), left_out


def _by_reason(left_out: list[dict]) -> list[tuple[str, str]]:
    """Classes that were left out for the same reason, their names together."""
    reasons = dict.fromkeys(item["reason"] for item in left_out)
    return [(", ".join(item["class"] for item in left_out if item["reason"] == reason), reason) for reason in reasons]


def classify(config: Config, target: Target, results: Results, output: str | Path, device: str = "auto") -> dict:
    """Write metrics.json, predictions.tsv, card.md and model/ of one target into ``output``; return the metrics.

    ``device``: where encoders compute whose residues the classifier reads itself.
    """
    # Thousands of small products: on a busy machine threads that wait for one another make them a hundred times slower.
    with threadpool_limits(limits=1):
        started = time.monotonic()
        study = open_study(config, target.dataset, results)
        task = task_of(config, target, study.data.classes)
        inputs = read_inputs(config, target, results, study.data, device)
        metrics, predictions = assess(study, task, inputs, "/".join(target))
        split = study.trials[study.strictest][0].split
        fitted = fit_on_all(task, study.data, split, inputs.whole)
        metrics["settings"]["final"] = {"tuned_by": study.strictest, **fitted.chosen}
        output = Path(output)
        write_table(predictions, output / "predictions.tsv")
        save_model(output / "model", config, target, results, study.data, inputs, fitted)
        metrics = {"version": 2, "target": target._asdict()} | metrics
        write_card(output / "card.md", config, target, metrics, study.data)
        write_json(output / "metrics.json", metrics)
        # said here and in no file: the same job writes the same bytes
        logger.info("%s: judged, fitted and saved in %.0f s", "/".join(target), time.monotonic() - started)
        return metrics


def assess(study: Study, task: Task, inputs: Inputs, name: str) -> tuple[dict, pd.DataFrame]:
    """Judge a model by every split: what metrics.json says, and the table of its predictions."""
    config, data, evaluation = study.config, study.data, study.config.evaluation
    dataset = config.datasets[study.name]
    splits: dict[str, dict] = {split: {"skipped": reason} for split, reason in study.skipped.items()}
    notes, tables = _notes(data, dataset, evaluation), []
    for split, trials in study.trials.items():
        tested = [run(task, trial, partial(inputs.of_fold, split, trial.seed)) for trial in trials]
        judged = judge(data, trials, tested, study.weights, evaluation)
        made = trials[0].split
        splits[split] = {
            "folds": len(np.unique(made.folds[made.folds >= 0])),
            "n_groups": len(set(made.groups)) if split in ("cluster", "group") else None,
            "group": {"group": group_name(dataset, evaluation), "given": evaluation.given}.get(split),
            "notes": list(made.notes),
            "leakage": study.leakage[split],
            **judged,
            "chosen": [point for done in tested for point in done.chosen],
        }
        notes += undefined_classes(split, data, trials, tested)
        tables.append(prediction_table(split, data, trials, tested))
        metric = "spearman" if task.regression else "auroc"
        value = judged["macro"][metric]["value"]
        logger.info("%s, split %s: macro %s %s", name, split, metric, "-" if value is None else f"{value:.3f}")
    negatives = _negatives(study)
    metrics = {
        "task": dataset.task,
        "n_receptors": len(data.ids),
        "n_features": len(inputs.feature_names),
        "classes": data.classes,
        "left_out": study.left_out,
        "seed": config.seed,
        "folds": evaluation.folds,
        "seeds": list(evaluation.seeds),
        "negatives": negatives,
        "splits": {split: splits[split] for split in evaluation.splits},
        "notes": [*notes, *(shortfalls(negatives, evaluation.folds) if negatives else [])],
        "versions": {"airrformer": __version__, "scikit-learn": version("scikit-learn")},
        "settings": {
            "classifier": task.settings.model_dump(mode="json"),
            "evaluation": evaluation.model_dump(mode="json"),
        },
    }
    return metrics, pd.concat(tables, ignore_index=True)


def _absent_chains(data: Receptors, dataset: Dataset) -> list[str]:
    """A sentence for each chain that the config names and no receptor has."""
    there = set(data.chains["chain"])
    return [
        f"None of the {len(data.ids)} receptors has the chain {chain} that the dataset's chains name: nothing is "
        "learned from it. Take it out of chains, or see rejected.tsv for why none was kept."
        for chain in dataset.chains
        if chain not in there
    ]


def _negatives(study: Study) -> dict:
    """What counts as a negative, in the first cross-validation."""
    if study.data.numbers is not None:
        return {}
    trial = study.trials[study.strictest][0]
    return summary(trial.Y, trial.method, study.data.classes, study.data.negatives, trial.seed)


def _notes(data: Receptors, dataset, evaluation) -> list[str]:
    notes = [
        "Each metric is computed within each test fold and averaged over the folds where it is defined; the folds' "
        "scores come from different models and are never pooled.",
        f"Intervals: 2.5 % to 97.5 % of {evaluation.bootstrap} resamples of the receptors, models and folds held "
        "fixed; in the group and cluster splits they do not speak of other groups.",
    ]
    notes += _absent_chains(data, dataset)
    if data.unlabelled:
        notes.append(f"{data.unlabelled} receptors without a label are left out.")
    if data.numbers is None:
        several = sum(len(set(names) & set(data.classes)) > 1 for names in class_lists(data.receptors))
        if several:
            notes.append(f"{several} receptors have several classes; each is a positive of all of them.")
    name = group_name(dataset, evaluation)
    if "group" in evaluation.splits and name is not None:
        missing = int(missing_groups(data.receptors[name]).sum())
        if missing:
            notes.append(f"{missing} receptors have no {name}; each counts as a group of its own.")
    if evaluation.shuffle_labels:
        notes.append("Control: the labels were given to other receptors at random; any score is chance.")
    return notes
