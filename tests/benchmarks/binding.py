"""Binding benchmarks: what airrformer reaches beside what is published, on the data folder that AIRRFORMER_DATA names.

    AIRRFORMER_DATA=FOLDER python tests/benchmarks/binding.py immrep22 [--test FILE ...]

runs `config/examples/NAME.yaml` (parse, embed, baselines, classify) into a folder and prints three tables: what others
report and what we aim at on the test sets; every classifier and baseline in cross-validation within the training files,
with CPU seconds; and by how much the best classifier is ahead of each on these folds. `--beside CLASSIFIER` says also
by how much each is ahead of that one. `--test` names files that were kept apart, in the format of the training files,
with labels: they are scored with `airrformer predict` by each model of the config. Nothing of them is seen before that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from airrformer.classify import classify, compare_dataset, make_baselines, predict
from airrformer.classify.calibration import Calibrator
from airrformer.classify.comparison import compare_models
from airrformer.classify.contest import read_predictions
from airrformer.classify.metrics import regression_metrics, weighted_metrics
from airrformer.config import Config, load_config
from airrformer.embed.checkpoints import fetch
from airrformer.embed.stage import embed_dataset
from airrformer.parse import parse_dataset
from airrformer.paths import Results
from airrformer.receptors.splits import class_lists
from airrformer.receptors.tables import read_receptors

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"

# On the separate test sets (GDPa1: its published folds): what others report (the README of each data set says where), a
# k-mer or one-hot logistic regression, and what we aim at. A set's, or one class's of it.
ROC, BOTH, THREE = "AUROC", "AUROC / AUPRC", "AUROC / AUPRC / MCC"
REFERENCES = {
    "immrep22": [
        ("TCRex .844, TCRGP .842, tcrdist3 .836, TCR-BERT .750", "0.834 / 0.727", "0.915 / 0.845", "AUROC / AUC0.1"),
    ],
    "trastuzumab_dms": [("", "0.896 / 0.789 / 0.627", "0.927 / 0.857 / 0.71", THREE)],
    "spike_ha_cdrs": [("Wang et al. 2022: 0.865 / 0.920", "0.905 / 0.952", "0.962 / 0.982", BOTH)],
    "spike_ha_chains": [
        ("", "0.912 / 0.973 / 0.636", "0.980 / 0.994 / 0.85", THREE),
        ("", "0.824", "0.92", "AUROC, cross-validation, group"),
    ],
    "emi_antigen": [("", "0.981", "0.987", ROC)],
    "emi_ovalbumin": [("", "0.976", "0.985", ROC)],
    "nettcr21": [("", "0.942", "0.955", f"{ROC}, GILGFVFTL"), ("", "0.901", "0.93", f"{ROC}, RAKFKQLL")],
    "ac_sins": [("AbLang2 + elastic net 0.509", "0.230", "above 0.509", "Spearman")],
    "hic": [("AbLang2 + elastic net 0.461", "0.233", "above 0.461", "Spearman")],
    "pr_cho": [("ESM-2 + ridge 0.420", "0.204", "above 0.420", "Spearman")],
    "titer": [("AbLang2 + elastic net 0.356", "0.193", "above 0.356", "Spearman")],
    "tm2": [("AbLang2 + elastic net 0.101", "-0.006", "above 0.101", "Spearman")],
}
METRICS = {"classification": ("auroc", "auprc", "auc01", "mcc"), "regression": ("spearman", "pearson", "rmse")}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", help=f"one of {', '.join(sorted(p.stem for p in EXAMPLES.glob('*.yaml')))}")
    arguments.add_argument(
        "--results", type=Path, help="where to write; chains and vectors that are there stay; default: nowhere to stay"
    )
    arguments.add_argument("--datasets", nargs="+", help="only these datasets of the config")
    arguments.add_argument(
        "--beside", nargs="+", default=[], metavar="CLASSIFIER", help="the config's name of one for each dataset"
    )
    arguments.add_argument("--test", nargs="+", default=[], metavar="FILE", help="files kept apart, with labels")
    given = arguments.parse_args()
    config = load_config(EXAMPLES / f"{given.name}.yaml", check_files=True)
    datasets = given.datasets or list(config.datasets)
    references = [
        {"dataset": name, "metric": metric, "published": published, "logistic regression": floor, "aim": aim}
        for name in datasets
        for published, floor, aim, metric in REFERENCES.get(name, [])
    ]
    show("On separate test sets", references)
    with tempfile.TemporaryDirectory() as folder:
        results = Results(given.results or folder)
        rows, ahead = [], []
        for dataset in datasets:
            rows += beside(run(config, dataset, results), config, dataset, results, given.beside)
            for file in given.test:
                rows += score(config, dataset, results, file)
            ahead += compare(config, dataset, results)
        show("Judged here", rows)
        show("The best classifier less each other model, on the same folds", ahead)


def show(title: str, rows: list[dict]) -> None:
    """A table in Markdown."""
    table = pd.DataFrame(rows).fillna("")
    print(f"\n{title}\n\n| {' | '.join(table)} |\n|{' --- |' * len(table.columns)}")
    for row in table.itertuples(index=False):
        print(f"| {' | '.join(map(str, row))} |")


def compare(config: Config, dataset: str, results: Results) -> list[dict]:
    """Paired differences of macro AUROC, or Spearman's correlation, with intervals over receptors and p over folds."""
    table = compare_dataset(config, dataset, results, results.comparisons(dataset))
    return [
        {"dataset": dataset, "split": row.split, "best": row.b, "other": row.a}
        | {"difference": f"{-row.difference:.3f} [{-row.high:.3f}, {-row.low:.3f}]", "p (Holm)": f"{row.p_holm:.2g}"}
        for row in table.itertuples()
    ]


def beside(rows: list[dict], config: Config, dataset: str, results: Results, references: list[str]) -> list[dict]:
    """``rows`` of a dataset with what the macro metric of each model is above that of the one of ``references``."""
    targets = [target for target in config.expand_targets() if target.dataset == dataset]
    numbers = config.datasets[dataset].task == "regression"
    named = ["/".join(target[1:]) for target in targets if target.classifier in references]
    if not named:
        return rows
    tables = {"/".join(t[1:]): read_predictions(results.classifier(*t) / "predictions.tsv") for t in targets}
    for split in dict.fromkeys(split for table in tables.values() for split in table["split"]):
        found = compare_models(tables, named[0], split, config.evaluation.bootstrap, config.seed, numbers)
        found = found.set_index("a")
        for row in rows:
            if row["judged by"] == f"cross-validation, {split}" and row["model"] in found.index:
                one = found.loc[row["model"]]
                row["ahead"] = f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
    return rows


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(config: Config, dataset: str, results: Results) -> list[dict]:
    """Everything that the config says of a dataset, one job after another, and its rows of the table."""
    targets = [target for target in config.expand_targets() if target.dataset == dataset]
    if not results.receptors(dataset).is_file():
        parse_dataset(config.datasets[dataset], results.dataset(dataset), workers=os.cpu_count() or 1)
    rows: list[dict] = []
    lacking = [e for e in config.expand_embeddings() if e.dataset == dataset and not results.features(*e).is_file()]
    for encoder in dict.fromkeys(embedding.encoder for embedding in lacking):
        if hasattr(config.encoders[encoder], "published_name"):
            fetch(config.encoders[encoder], encoder, results.encoder(encoder))
        started = cpu_seconds()
        embed_dataset(config, dataset, encoder, results)
        rows.append(
            {"dataset": dataset, "model": f"vectors of {encoder}", "CPU seconds": round(cpu_seconds() - started)}
        )
    if config.evaluation.baselines:
        started = cpu_seconds()
        found = make_baselines(config, dataset, results, results.baselines(dataset))["baselines"]
        seconds = cpu_seconds() - started
        for name, metrics in found.items():
            rows += _rows(dataset, f"baseline {name}", metrics, seconds / len(found))
    for target in targets:
        started = cpu_seconds()
        metrics = classify(config, target, results, results.classifier(*target))
        rows += _rows(dataset, "/".join(target[1:]), metrics, cpu_seconds() - started)
    return rows


def _rows(dataset: str, model: str, metrics: dict, seconds: float) -> list[dict]:
    rows = []
    for split, judged in metrics["splits"].items():
        parts = {"": judged["macro"]} if "macro" in judged else {}
        if len(judged.get("classes", {})) in (2, 3) and not model.startswith("baseline"):  # of a few classes each
            parts |= {f", {name}": values for name, values in judged["classes"].items()}
        rows += [
            {"dataset": dataset, "model": model, "judged by": f"cross-validation, {split}{part}"}
            | {metric: _cell(values[metric]) for metric in METRICS[metrics["task"]]}
            | {"CPU seconds": round(seconds)}
            for part, values in parts.items()
        ]
    return rows


def _cell(value: dict) -> str:
    if value["value"] is None:
        return "undefined"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def score(config: Config, dataset: str, results: Results, file: str) -> list[dict]:
    """Each model of a dataset on a file kept apart: mean over the classes that have both labels there."""
    settings = config.datasets[dataset]
    labelled = settings.model_copy(update={"sequences": file, "duplicates": "keep"})
    with tempfile.TemporaryDirectory() as folder:
        parse_dataset(labelled, folder)
        truth = read_receptors(Results(folder).receptors(".")).set_index("receptor_id")
    rows = []
    for target in (target for target in config.expand_targets() if target.dataset == dataset):
        with tempfile.TemporaryDirectory() as folder:
            model = results.classifier(*target) / "model"
            scores = predict(model, file, Path(folder) / "scores.tsv").set_index("receptor_id")
        values = _judged(scores, truth, json.loads((model / "config.json").read_text()))
        found = pd.DataFrame(values).mean()
        rows.append(
            {
                "dataset": dataset,
                "model": "/".join(target[1:]),
                "judged by": f"{Path(file).name}, {len(values)} classes",
            }
            | {metric: f"{found[metric]:.3f}" for metric in METRICS[settings.task] if metric in found}
        )
    return rows


def _judged(scores: pd.DataFrame, truth: pd.DataFrame, model: dict) -> list[dict]:
    """The metrics of each class that has both labels, or of the numbers."""
    truth = truth.loc[scores.index]
    if model["task"] == "regression":
        y, found = truth["label"].to_numpy(), scores[model["classes"][0]].to_numpy()
        known = ~np.isnan(y)
        values = regression_metrics(y[known], found[known], np.ones((known.sum(), 1)))
        return [{name: value[0] for name, value in values.items()}]
    is_one, said_not = class_lists(truth), class_lists(truth, "not_label")
    values = []
    for name, threshold, calibration in zip(model["classes"], model["thresholds"], model["calibration"]):
        # thresholds are those of scores, and predict gives probabilities
        threshold = Calibrator.from_dict(calibration).apply(np.array([threshold]))[0]
        yes = np.array([name in names for names in is_one])
        no = np.array([name in names for names in said_not]) if any(map(bool, said_not)) else ~yes
        known = (yes | no) & scores[name].notna().to_numpy()
        if not yes[known].any() or yes[known].all():
            continue
        p = scores[name].to_numpy()[known]
        values.append(
            {m: v[0] for m, v in weighted_metrics(yes[known], p, p >= threshold, np.ones((known.sum(), 1))).items()}
        )
    return values


if __name__ == "__main__":
    sys.exit(main())
