"""Which model is best, and whether it is better than the others by more than chance: one table a dataset."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd

from airrformer.classify.comparison import compare_models
from airrformer.config import STRICTEST_FIRST, Config
from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)

BASELINE = "baseline/"  # what names of baselines begin with
_TYPES = {"class": str, "receptor_id": str, "split": str, "baseline": str}


def compare_dataset(config: Config, dataset: str, results: Results, output: str | Path) -> pd.DataFrame:
    """Write the comparisons of the best classifier, in each split, with every other one and with the baselines.

    Reads the predictions that are there: a target whose encoder is out of reach has none. Raises ``UserError`` when
    there is none at all.
    """
    tables: dict[str, pd.DataFrame] = {}
    scores: dict[str, dict] = {}
    for target in config.expand_targets():
        folder, name = results.classifier(*target), "/".join(target[1:])
        if target.dataset == dataset and (folder / "predictions.tsv").is_file():
            tables[name] = read_predictions(folder / "predictions.tsv")
            scores[name] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["splits"]
    if not tables:
        raise UserError(f"{results.dataset(dataset)}: no predictions to compare; run `airrformer classify` first")
    baselines = results.baselines(dataset) / "predictions.tsv"
    if baselines.is_file():
        for name, table in read_predictions(baselines).groupby("baseline", sort=False):
            tables[f"{BASELINE}{name}"] = table.drop(columns="baseline").reset_index(drop=True)
    splits = set().union(*(table["split"] for table in tables.values()))
    numbers = config.datasets[dataset].task == "regression"
    metric, resamples = "spearman" if numbers else "auroc", config.evaluation.bootstrap
    found = [
        compare_models(tables, _best(scores, split, metric), split, resamples, config.seed, numbers)
        for split in STRICTEST_FIRST
        if split in splits
    ]
    table = pd.concat(found, ignore_index=True)
    write_table(table, output)
    logger.info("%s: %d comparisons", output, len(table))
    return table


def _best(scores: dict[str, dict], split: str, metric: str) -> str:
    """The classifier with the best macro metric in a split; of equals, and where it is undefined, the first."""

    def value(name: str) -> float:
        found = scores[name].get(split, {}).get("macro", {}).get(metric, {}).get("value")
        return -np.inf if found is None else found

    return max(scores, key=value)


def read_predictions(path: Path) -> pd.DataFrame:
    """A predictions.tsv as ``compare_models`` takes it, of baselines with the column ``baseline``."""
    return pd.read_csv(path, sep="\t", dtype=_TYPES, keep_default_na=False, na_values={"score": [""], "label": [""]})
