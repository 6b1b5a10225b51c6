"""The page's parts about how well models do: split by split, class by class, and the best against the others."""

from __future__ import annotations

import pandas as pd

from airrformer.config import Config
from airrformer.paths import Results
from airrformer.report import figures, words
from airrformer.report.findings import calibration_sentence
from airrformer.report.read import BASELINE, METRICS, REGRESSION_METRICS, SHORTCUT, STRONG, read_tsv
from airrformer.report.study import Study, target_name

_CALIBRATIONS = (figures.Series("as scored", "c1", 2), "score"), (figures.Series("calibrated", "c0", 0), "probability")
_NEGATIVES = {"given": "said not to be of the class", "swapped": "of other classes", "background": "without a label"}


# ------------------------------------------------------------------------------------------------------- the splits


def splits_part(config: Config, study: Study, index: int) -> dict:
    """The best models and baselines under each split, what each split measures, and what leaks in it."""
    rows = [
        (target_name(target), {split: study.score(target, split) for split in study.splits})
        for target in study.best_per_encoder()
    ]
    for kind, word in ((STRONG, "plain"), (SHORTCUT, "shortcut")):
        for name in study.ranked_baselines(kind)[:1]:
            scores = {split: study.baseline_score(name, split) for split in study.splits}
            rows.append((f"{word}: {name}", scores))
    table = []
    for split in study.splits:
        result = study.metrics[study.best]["splits"][split]
        folds = {point["fold"] for point in result.get("chosen", [])}
        table.append(
            {
                "split": split,
                "measures": split_measures(config, study, split),
                "groups": result.get("n_groups") if split in ("cluster", "group") else None,
                "tested": result.get("n_tested"),
                "folds": len(folds) or study.metrics[study.best].get("folds"),
                "notes": result.get("notes", []),
                "leakage": result.get("leakage") or {},
                "score": study.score(study.best, split),
                "drop": words.difference(study.score(study.best, split), study.score(study.best, study.splits[0])),
            }
        )
    corpora = [
        {"encoder": encoder, "split": split, "leakage": by_split[split], "folds": by_split[split].get("folds", [])}
        for encoder, by_split in study.corpora.items()
        for split in study.splits
        if by_split.get(split)
    ]
    figure = figures.splits_figure(f"splits-{index}", study.name, rows, study.splits, study.score_name, study.chance)
    return {"study": study, "figure": figure, "table": table, "corpora": corpora}


def split_measures(config: Config, study: Study, split: str) -> str:
    """What stands on one side of train and test only, and what a score then says."""
    return {
        "random": "only the same chains are kept together; an upper bound",
        "cluster": f"clusters of similar receptors ({_alike(config, study)}, single linkage) are kept together",
        "group": f"all receptors of one {study.group_name()} are kept together",
        "class": "whole classes are kept from training, and the classes that a model knows are judged by their own "
        "receptors against those of classes that it has never seen: whether “binds A” is more than “is one of the "
        "others”. It does not say that receptors of an unseen class are found",
        "parent": f"folds are stretches of the distance from the parent ({words.listing(study.dataset.parent or ())}), "
        "each tested by models that learned from all other distances: whether a model reaches beyond the numbers of "
        "mutations that it has seen",
        "given": f"the folds are those that {study.group_name('given')} names; each is tested by models that learned "
        "from all receptors outside it",
    }[split]


def _alike(config: Config, study: Study) -> str:
    cluster = config.evaluation.cluster
    metric = cluster.metric
    if metric == "auto":
        metric = "cdr3" if study.dataset.receptor == "TCR" else "identity"
    return {
        "cdr3": f"CDR3s at most {words.count(cluster.tcr_cdr3_distance, 'edit')} apart",
        "tcrdist": f"at most {cluster.tcrdist:g} apart by TCRdist",
        "identity": f"V domains at least {cluster.antibody_identity:.0%} identical",
    }[metric]


# --------------------------------------------------------------------------------------------- classes and their curves


def classes_part(results: Results, study: Study, index: int) -> dict:
    """The best model class by class: curves, numbers, calibration; of numbers that are predicted, the scatter."""
    target, metrics = study.best, study.metrics[study.best]
    predictions = read_tsv(results.classifier(*target) / "predictions.tsv", text=("split", "class", "receptor_id"))
    if predictions is None or not {"split", "class", "label", "score"} <= set(predictions.columns):
        predictions = None
    # the most flattering split beside the most demanding one
    sides = [study.splits[0], study.strict] if len(study.splits) > 1 else [study.strict]
    rows = [
        {"class": name, "splits": {split: metrics["splits"][split]["classes"].get(name, {}) for split in study.splits}}
        for name in metrics["classes"]
    ]
    if len(rows) > 1 or not study.regression:
        whole = {split: metrics["splits"][split]["macro"] for split in study.splits}
        rows.append({"class": "macro mean", "splits": whole})
    part = {
        "study": study,
        "target": target,
        "panels": [],
        "legend": [],
        "hidden": 0,
        "calibration": None,
        "rows": rows,
        "metrics": REGRESSION_METRICS if study.regression else (*METRICS, "precision_at_k"),
        "top_k": metrics.get("settings", {}).get("evaluation", {}).get("top_k"),
        "calibrated": any("brier_calibrated" in scores for row in rows for scores in row["splits"].values()),
        "two_intervals": any(words.over_classes(row["splits"][study.strict].get(study.metric) or {}) for row in rows),
        "negatives": _negatives(study, metrics),
        "pooled": _pooled(study, metrics),
        "model": (results.classifier(*target) / "model").as_posix(),
        "notes": metrics.get("notes", []),
    }
    if predictions is None:
        return part
    if study.regression:
        part["panels"] = [_scatter(study, metrics, predictions, split, index) for split in sides]
        return part
    largest = sorted(metrics["classes"], key=lambda name: -_positives(study, metrics, name))[: figures.MAX_CURVES]
    shown = [name for name in metrics["classes"] if name in largest]
    series = figures.palette(shown)
    part |= {"legend": list(series.values()), "hidden": len(metrics["classes"]) - len(shown)}
    for kind in ("roc", "pr"):
        for split in sides:
            own, slug = predictions[predictions["split"] == split], f"{kind}-{split}-{index}"
            part["panels"].append(figures.curves_figure(slug, kind, split, own, series, metrics["splits"][split]))
    part["calibration"] = _calibration(study, predictions[predictions["split"] == study.strict], index)
    return part


def _positives(study: Study, metrics: dict, name: str) -> int:
    return metrics["splits"][study.strict]["classes"].get(name, {}).get("n_positive") or 0


def _scatter(study: Study, metrics: dict, predictions: pd.DataFrame, split: str, index: int) -> str:
    """Of the first repetition: each receptor once."""
    own = predictions[predictions["split"] == split]
    own = own[own["seed"] == own["seed"].min()]
    score = metrics["splits"][split]["macro"].get(study.metric)
    return figures.scatter_figure(f"scatter-{split}-{index}", split, own, score)


def _calibration(study: Study, predictions: pd.DataFrame, index: int) -> dict | None:
    tables = {
        series: table
        for series, column in _CALIBRATIONS
        if column in predictions and len(table := figures.calibration(predictions, column))
    }
    if not tables:
        return None
    names = {"as scored": "Scores", "calibrated": "Calibrated scores"}
    return {
        "figure": figures.calibration_figure(f"calibration-{index}", study.strict, tables),
        "legend": list(tables),
        "sentences": [calibration_sentence(table, names[series.name]) for series, table in tables.items()],
    }


def _negatives(study: Study, metrics: dict) -> dict:
    """What counts as a negative, in words, and the macro metrics against each kind of them, where there are several."""
    made = metrics.get("negatives") or {}
    apart = [
        {"split": split, "method": method, "scores": scores}
        for split in study.splits
        for method, scores in (metrics["splits"][split].get("negatives") or {}).items()
    ]
    methods = [f"{method} ({_NEGATIVES.get(method, method)})" for method in made.get("methods") or []]
    ratio, excluded = made.get("ratio"), made.get("excluded")
    said = f"Negatives: {words.listing(methods)}" if methods else ""
    if said and ratio is not None:
        said += f", {ratio:g} for each positive"
    if said and excluded:
        said += f"; {words.count(excluded)} were not taken, for a receptor with the same chains is of the class"
    return {"said": f"{said}." if said else "", "apart": apart, "metrics": METRICS}


def _pooled(study: Study, metrics: dict) -> dict | None:
    """The AUROC over all classes in one heap, with the sentence that it misleads; never without it."""
    found = {split: metrics["splits"][split].get("pooled") or {} for split in study.splits}
    known = {split: pooled for split, pooled in found.items() if pooled.get("auroc") is not None and pooled.get("note")}
    if not known:
        return None
    values = [f"{words.decimals(pooled['auroc'])} ({split})" for split, pooled in known.items()]
    return {"values": words.listing(values), "note": next(iter(known.values()))["note"]}


# ---------------------------------------------------------------------------------------------------- the comparisons

_ENDS = (("value", "difference"), ("low", "low"), ("high", "high"))


def comparisons_part(study: Study) -> dict | None:
    """By split, the most demanding first: the best classifier, and how far each other model is from it."""
    if study.comparisons is None:
        return None
    splits = []
    for split in reversed(study.splits):
        own = study.comparisons[study.comparisons["split"] == split]
        if own.empty:
            continue
        rows = []
        for row in own.sort_values("difference", ascending=False, kind="stable").to_dict("records"):
            baseline = row["a"].removeprefix(BASELINE) if row["a"].startswith(BASELINE) else None
            rows.append(
                {
                    "name": baseline or row["a"].replace("/", " / "),
                    "kind": study.baselines.get(baseline, {}).get("kind") if baseline else None,
                    "difference": {end: _known(row[key]) for end, key in _ENDS},
                    "p": row["p_holm"],
                    "note": row.get("note", ""),
                }
            )
        best = own["b"].iloc[0].replace("/", " / ")
        splits.append({"split": split, "best": best, "notes": any(row["note"] for row in rows), "rows": rows})
    return {"study": study, "splits": splits} if splits else None


def _known(value: float) -> float | None:
    return None if value != value else value
