"""card.md: what a saved classifier learned from, how it was judged, its numbers, and what it is not for."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np

from airrformer import __version__
from airrformer.classify.features import Receptors
from airrformer.classify.leakage import shortcut_leaks
from airrformer.classify.negatives import METHODS
from airrformer.classify.persistence import encoders_of, hash_names
from airrformer.config import Config, Target
from airrformer.paths import write_text

_METRICS = {
    "classification": {"auroc": "AUROC", "auprc": "AUPRC (by chance)", "auc01": "AUC0.1", "mcc": "MCC"},
    "regression": {"spearman": "Spearman", "pearson": "Pearson", "rmse": "RMSE"},
}
_SPLITS = {
    "random": "deals receptors one by one",
    "cluster": "keeps similar receptors together",
    "group": "keeps the receptors of one group together",
    "class": "keeps a class from training and takes its receptors for negatives",
    "parent": "tests stretches of the distance from the parent",
    "given": "tests the folds that the data name",
}


def write_card(path: str | Path, config: Config, target: Target, metrics: dict, data: Receptors) -> None:
    """Write the card of a target; ``metrics`` as metrics.json has them."""
    lines = [
        *_learned(config, target, metrics, data),
        *_judged(metrics),
        *_ranked(metrics),
        *_by_negatives(metrics),
        *_calibrated(metrics),
        *_told_otherwise(config, target, metrics, data),
        *_leakage(metrics),
        *_limits(metrics),
        f"airrformer {__version__}, scikit-learn {version('scikit-learn')}; hash of the training ids "
        f"{hash_names(data.ids)[:16]}.",
    ]
    write_text(path, "\n".join(lines) + "\n")


def _learned(config: Config, target: Target, metrics: dict, data: Receptors) -> list[str]:
    dataset = config.datasets[target.dataset]
    kinds = ", ".join(f"`{name}` ({config.encoders[name].kind})" for name in encoders_of(config, target))
    receptor = f"a receptor ({dataset.receptor}, {' + '.join(dataset.chains)})"
    says = f"to which of {len(data.classes)} classes {receptor} is likely to belong"
    if metrics["task"] == "regression":
        says = f"the {data.classes[0]} of {receptor}"
    files = dataset.sequences if isinstance(dataset.sequences, str) else ", ".join(dataset.sequences)  # as written
    lines = [
        f"# {'/'.join(target)}",
        "",
        f"Says {says}.",
        "",
        "## Learned from",
        "",
        f"{metrics['n_receptors']} labelled receptors of `{files}`, labels from "
        f"`{dataset.labels.path or files}` (column {dataset.labels.column}); "
        f"{metrics['n_features']} features a receptor: encoders {kinds}, pooling `{target.pooling}`, classifier "
        f"`{target.classifier}` ({config.classifiers[target.classifier].kind.replace('_', ' ')}).",
        "",
    ]
    if metrics["task"] == "regression":
        return lines
    Y, method = data.labels(np.zeros(len(data.ids), dtype=np.int64), config.seed)
    kinds = [code for code in range(1, len(METHODS)) if (method == code).any()]
    columns = ["receptors", *(f"not of it ({METHODS[code]})" for code in kinds), "unknown"]
    counts = [(Y == 1).sum(axis=0), *((method == code).sum(axis=0) for code in kinds), (Y == -1).sum(axis=0)]
    lines += [f"| class | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in zip(data.classes, zip(*counts))]
    lines.append("")
    lines += [f"- left out: {item['class']} ({item['reason']})" for item in metrics["left_out"]]
    methods = metrics["negatives"]["methods"]
    if "swapped" in methods:
        lines.append("A receptor of another class counts as a negative; that it does not bind was not measured.")
    if "background" in methods:
        lines.append("A receptor without any label counts as a negative; that it does not bind was not measured.")
    return [*lines, ""]


def _judged(metrics: dict) -> list[str]:
    names = _METRICS[metrics["task"]]
    folds = ", ".join(
        f"{split}: {judged['folds']} folds" for split, judged in metrics["splits"].items() if "folds" in judged
    )
    made = ", ".join(f"`{split}` {_SPLITS[split]}" for split in metrics["splits"])
    lines = [
        "## How it was judged",
        "",
        f"Cross-validation ({folds}; seeds {', '.join(map(str, metrics['seeds']))}); scaling, tuning, thresholds and "
        f"calibration within the training folds. {made[0].upper()}{made[1:]}. With 95 % bootstrap "
        "intervals over the receptors; those of the macro average in a second line also over the classes:",
        "",
        f"| split | class | {' | '.join(['n', *names.values()])} |",
        f"| --- | --- | --- |{' --- |' * len(names)}",
    ]
    for split, judged in metrics["splits"].items():
        if "skipped" in judged:
            lines.append(f"| {split} | not made: {judged['skipped']} |{' |' * (len(names) + 1)}")
            continue
        entries = list(judged["classes"].items())
        if len(entries) > 1:
            wide = {metric: _over_classes(judged["macro"][metric]) for metric in names}
            entries = [("**macro**", judged["macro"]), ("macro, over classes too", wide), *entries]
        for name, entry in entries:
            cells = [_cell(entry[metric]) for metric in names]
            if entry.get("prevalence") is not None:
                cells[1] += f" ({entry['prevalence']:.2f})"
            count = entry.get("n_positive", entry.get("n", ""))
            lines.append(f"| {split} | {name} | {count} | {' | '.join(cells)} |")
    return [*lines, ""]


def _ranked(metrics: dict) -> list[str]:
    """Of what stands first: how much is right."""
    if metrics["task"] == "regression":
        return []
    top, lines = metrics["settings"]["evaluation"]["top_k"], []
    for split, judged in _scored(metrics):
        first, pooled = judged["macro"]["precision_at_k"], judged["pooled"]
        said = f"- {split}: of the {top} receptors with the highest scores of a class {_cell(first)} are of it"
        if pooled.get("top_1_accuracy") is not None:
            said += f"; the likeliest class of a receptor is right in {pooled['top_1_accuracy']:.0%}"
        if pooled.get("top_3_accuracy") is not None:
            said += f", one of its three likeliest in {pooled['top_3_accuracy']:.0%}"
        lines.append(said)
    return ["What stands first (mean over the classes):", "", *lines, ""]


def _by_negatives(metrics: dict) -> list[str]:
    """The numbers against the negatives of each kind, where there are several."""
    lines = [
        f"| {split} | {kind} | {' | '.join(_cell(found[metric]) for metric in _METRICS['classification'])} |"
        for split, judged in _scored(metrics)
        for kind, found in judged.get("negatives", {}).items()
    ]
    if not lines:
        return []
    names = _METRICS["classification"].values()
    return [
        "Against the negatives of each kind alone, mean over the classes; those that were measured count most:",
        "",
        f"| split | negatives | {' | '.join(names)} |",
        f"| --- | --- |{' --- |' * len(names)}",
        *lines,
        "",
    ]


def _scored(metrics: dict) -> list[tuple[str, dict]]:
    return [(split, judged) for split, judged in metrics["splits"].items() if "skipped" not in judged]


def _told_otherwise(config: Config, target: Target, metrics: dict, data: Receptors) -> list[str]:
    """What tells the labels without looking at what binds."""
    if metrics["task"] == "regression":
        return []
    leaks = shortcut_leaks(data.receptors, data.chains, data.all_labels(config.seed), data.classes)
    bad = [
        f"- **{leak['title']}**: {leak['sentence']}{_read(config, target, leak['check'])}"
        for leak in leaks
        if leak["level"] == "bad"
    ]
    fine = [leak["check"].replace("_", " ") for leak in leaks if leak["level"] != "bad"]
    lines = ["## Shortcuts and leaks", ""]
    if bad:
        lines += ["Scores may be too good:", "", *bad, ""]
    if fine:
        lines += [f"Looked at, and no warning: {', '.join(fine)}.", ""]
    return lines


def _read(config: Config, target: Target, check: str) -> str:
    """Of a group that tells the label: by which encoders the model reads it, too."""
    what, _, column = check.partition(" ")
    names = [f"`{name}`" for name in config.readers_of(column, [target])] if what == "group" else []
    return f" The model itself reads this column, by {', '.join(names)} (columns)." if names else ""


def _calibrated(metrics: dict) -> list[str]:
    """How far probabilities can be read as such."""
    if metrics["task"] == "regression":
        return []
    how = metrics["settings"]["evaluation"]["calibration"]
    lines = [f"Calibration ({how}), mean over the classes, before -> after; 0 is best:", ""]
    for split, judged in metrics["splits"].items():
        if "skipped" not in judged:
            before, after = (
                ", ".join(f"{name} {_value(judged['macro'][f'{key}{end}'])}" for key, name in _CALIBRATION.items())
                for end in ("", "_calibrated")
            )
            lines.append(f"- {split}: {before} -> {after}")
    return [*lines, ""]


_CALIBRATION = {"brier": "Brier score", "ece": "calibration error"}


def _leakage(metrics: dict) -> list[str]:
    lines = ["Test receptors that training had seen the like of:", ""]
    for split, judged in metrics["splits"].items():
        if "leakage" in judged:
            leak = judged["leakage"]
            lines.append(
                f"- {split}: {leak['exact']} of {leak['of']} with the same chains, {leak['distance_1']} with CDR3s at "
                f"most one edit away, {leak['distance_2']} at most two"
            )
    return [*lines, "", *(f"- {note}" for note in metrics["notes"]), ""]


def _limits(metrics: dict) -> list[str]:
    lines = [
        "## Not for",
        "",
        "- Diagnosis or any decision about a patient.",
        "- Receptors of another species, locus or kind than those above: it answers, but the answer means nothing. "
        "`airrformer predict` names the nearest training receptors of each, and warns of what is unlike them.",
    ]
    if metrics["task"] == "classification":
        lines += [
            "- Classes that it does not know: every score may be low, and a high score compares with these classes "
            "only.",
            "- Comparing scores between models: each is calibrated on its own receptors.",
        ]
    return [
        *lines,
        "",
        "The split nearest to your use tells what to expect: new donors or lineages are judged by `group`, sequences "
        "unlike the training ones by `cluster`; `random` flatters.",
        "",
    ]


def _over_classes(value: dict) -> dict:
    return {"value": value["value"], "low": value["low_classes"], "high": value["high_classes"]}


def _cell(value: dict) -> str:
    if value["value"] is None:
        return "undefined"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def _value(value: dict) -> str:
    return "undefined" if value["value"] is None else f"{value['value']:.3f}"
