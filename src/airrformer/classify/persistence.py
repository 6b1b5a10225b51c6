"""A fitted classifier on disk: estimator.skops and config.json in ``model/``, card.md beside it. Never a pickle.

config.json holds all that ``predict`` needs to make the same features from new sequences: the parts of the config, and
which encoder, by its folder relative to the results and the hash of its weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from sklearn.pipeline import Pipeline

from airrformer import __version__
from airrformer.classify.features import Labelled
from airrformer.classify.models import Fitted
from airrformer.config import Config, Target
from airrformer.core.weights import sha256
from airrformer.errors import UserError
from airrformer.paths import Results, replacing, write_json, write_text

# All that a saved classifier may hold beyond numbers and text. Fixed here: what a file asks for is never consulted.
TRUSTED_TYPES: tuple[str, ...] = (
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.multiclass.OneVsRestClassifier",
    "sklearn.neighbors._classification.KNeighborsClassifier",
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing._data.MaxAbsScaler",
    "sklearn.preprocessing._data.StandardScaler",
    "sklearn.preprocessing._label.LabelBinarizer",
)

# Of config.json: what predict stands on.
_KEYS = {"config", "target", "results", "encoder", "classes", "n_features", "feature_names_sha256"}


def _skops():
    """``skops.io`` without torch: on import it walks through all of scikit-learn, and one package there imports torch.

    That one is shown to the walk as already there and empty, which spares each job that only fits a classifier
    seconds.
    """
    name = "sklearn.externals.array_api_compat.torch"
    stub = None
    if "skops.io" not in sys.modules and name not in sys.modules:
        stub = sys.modules[name] = ModuleType(name)
        stub.__path__ = []
    try:
        import skops.io
    finally:
        if stub is not None:
            del sys.modules[name]
    return skops.io


def save_model(
    folder: str | Path, config: Config, target: Target, results: Results, data: Labelled, fitted: Fitted
) -> None:
    """Write ``estimator.skops`` and ``config.json``; each whole or not at all."""
    folder = Path(folder)
    with replacing(folder / "estimator.skops") as temporary:
        _skops().dump(fitted.estimator, temporary)
    kept = {"datasets": [target.dataset], "encoders": [target.encoder], "poolings": [target.pooling]}
    write_json(
        folder / "config.json",
        {
            "version": 1,
            "target": target._asdict(),
            "config": json.loads(config.part(**kept, classifiers=[target.classifier], evaluation=True)),
            "classes": data.classes,
            "thresholds": [float(threshold) for threshold in fitted.thresholds],
            "chosen": fitted.chosen,
            "n_features": data.X.shape[1],
            "feature_names_sha256": hash_names(data.feature_names),
            "n_receptors": len(data.ids),
            "receptor_ids_sha256": hash_names(data.ids),
            "results": os.path.relpath(results.root, folder),
            "encoder": _describe_encoder(config, target, results),
            "versions": {name: version(name) for name in ("scikit-learn", "skops", "numpy")}
            | {"airrformer": __version__},
        },
    )


def load_model(folder: str | Path) -> tuple[Pipeline, dict]:
    """The estimator and config.json of a saved classifier. Raises ``UserError`` for anything else in their place."""
    folder = Path(folder)
    try:
        description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(description, dict) or description.get("version") != 1 or not description.keys() >= _KEYS:
            raise ValueError("it was not written by `airrformer classify`")
        estimator = _skops().load(folder / "estimator.skops", trusted=list(TRUSTED_TYPES))
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: cannot read the model: {error.strerror}; give the folder model/ that "
            "`airrformer classify` wrote"
        ) from None
    except Exception as error:  # skops and zipfile have no common class for a file that is not theirs
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{folder}: no saved classifier of airrformer: {reason}") from None
    if not isinstance(estimator, Pipeline):
        raise UserError(f"{folder / 'estimator.skops'}: holds a {type(estimator).__name__}, not a classifier")
    return estimator, description


def check_encoder(description: dict, folder: str | Path) -> Results:
    """The results that the model belongs to, its encoder there being the one that it was trained on.

    Raises ``UserError`` when the encoder's folder or weights are gone or have changed.
    """
    results = Results(os.path.normpath(Path(folder) / description["results"]))
    encoder = description["encoder"]
    if encoder["sha256"] is None:
        return results
    place = results.encoder(encoder["name"])
    weights = _weights_file(results, encoder["name"])
    if weights is None or not weights.is_file():
        raise UserError(
            f"{place}: the encoder of this model is not there ({weights or 'no weights'}); keep model/ and encoders/ "
            "in their places under one results folder"
        )
    if sha256(weights) != encoder["sha256"]:
        raise UserError(
            f"{weights}: these are not the weights that the model was trained on; run `airrformer classify` again"
        )
    return results


def hash_names(names: list[str]) -> str:
    """One hash of a list of names, in order."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _describe_encoder(config: Config, target: Target, results: Results) -> dict:
    kind = config.encoders[target.encoder].kind
    weights = _weights_file(results, target.encoder) if kind not in ("kmer", "blosum62") else None
    return {
        "name": target.encoder,
        "kind": kind,
        "directory": os.path.relpath(results.encoder(target.encoder), results.root) if weights else None,
        "sha256": sha256(weights) if weights else None,
    }


def _weights_file(results: Results, encoder: str) -> Path | None:
    """Our own model.safetensors, or the foreign file that status.json names."""
    own = results.encoder(encoder) / "model.safetensors"
    if own.is_file():
        return own
    try:
        status = json.loads(results.encoder_status(encoder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Path(status["weights"]) if status.get("weights") else None


# ------------------------------------------------------------------------------------------------------- the card


def write_card(path: str | Path, config: Config, target: Target, metrics: dict, data: Labelled) -> None:
    """card.md: what the classifier learned from, how it was judged, its numbers, and what it is not for."""
    dataset = config.datasets[target.dataset]
    chains = " + ".join(dataset.chains)
    lines = [
        f"# {'/'.join(target)}",
        "",
        f"Says to which of {len(data.classes)} classes a receptor ({dataset.receptor}, {chains}) is likely to belong.",
        "",
        "## Learned from",
        "",
        f"{metrics['n_receptors']} labelled receptors of `{', '.join(dataset.files)}`, labels from "
        f"`{', '.join(dataset.label_files or dataset.files)}` (column {dataset.labels.column}); "
        f"{metrics['n_features']} features a receptor: "
        f"encoder `{target.encoder}` ({config.encoders[target.encoder].kind}), pooling `{target.pooling}`, classifier "
        f"`{target.classifier}` ({config.classifiers[target.classifier].kind.replace('_', ' ')}).",
        "",
        "| class | receptors |",
        "| --- | --- |",
        *(f"| {name} | {int(n)} |" for name, n in zip(data.classes, data.Y.sum(axis=0))),
        "",
    ]
    lines += [f"- left out: {item['class']} ({item['reason']})" for item in metrics["left_out"]]
    lines += [
        "A receptor of another class counts as a negative; that it does not bind was not measured.",
        "",
        "## How it was judged",
        "",
        f"{metrics['folds']}-fold cross-validation, seeds {', '.join(map(str, metrics['seeds']))}; scaling, tuning and "
        "thresholds within the training folds. `random` deals receptors one by one, `cluster` keeps similar ones "
        "together, `group` keeps those of one group together. With 95 % bootstrap intervals:",
        "",
        "| split | class | positives | AUROC | AUPRC (by chance) | AUC0.1 | MCC |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for split, judged in metrics["splits"].items():
        if "skipped" in judged:
            lines.append(f"| {split} | not made: {judged['skipped']} | | | | | |")
            continue
        for name, entry in [("**macro**", judged["macro"]), *judged["classes"].items()]:
            chance = entry["prevalence"]
            cells = [_cell(entry[metric]) for metric in ("auroc", "auprc", "auc01", "mcc")]
            cells[1] += f" ({chance:.2f})" if chance is not None else ""
            lines.append(f"| {split} | {name} | {entry.get('n_positive', '')} | {' | '.join(cells)} |")
    lines += ["", "Test receptors that training had seen the like of:", ""]
    for split, judged in metrics["splits"].items():
        if "leakage" in judged:
            leak = judged["leakage"]
            lines.append(
                f"- {split}: {leak['exact']} of {leak['of']} with the same chains, {leak['distance_1']} with a CDR3 at "
                "most one edit away"
            )
    lines += ["", *(f"- {note}" for note in metrics["notes"])]
    lines += [
        "",
        "## Not for",
        "",
        "- Diagnosis or any decision about a patient.",
        "- Receptors of another species, locus or kind than those above: it answers, but the answer means nothing.",
        "- Classes that it does not know: every score may be low, and a high score compares with these classes only.",
        "- Comparing scores between classes or models: they are not calibrated against each other.",
        "",
        "The split nearest to your use tells what to expect: new donors or lineages are judged by `group`, sequences "
        "unlike the training ones by `cluster`; `random` flatters.",
        "",
        f"airrformer {__version__}, scikit-learn {version('scikit-learn')}; hash of the training ids "
        f"{hash_names(data.ids)[:16]}.",
    ]
    write_text(path, "\n".join(lines) + "\n")


def _cell(value: dict) -> str:
    if value["value"] is None:
        return "undefined"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
