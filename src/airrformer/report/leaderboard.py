"""``leaderboard.tsv``: one row a target and split, in the order of the config's targets; then the baselines."""

from __future__ import annotations

import pandas as pd

from airrformer.config import Config, Target
from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.receptors.tables import write_table
from airrformer.report.read import METRICS, PROBABILITY_METRICS, REGRESSION_METRICS, read_baselines, read_metrics

_ADDED = (*PROBABILITY_METRICS, *REGRESSION_METRICS)
_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))

COLUMNS = (
    *("dataset", "encoder", "pooling", "classifier", "split", "status", "note", "n_receptors", "n_classes"),
    "prevalence",
    *(f"{metric}{end}" for metric in METRICS for end, _ in _ENDS),
    *("auroc_low_classes", "auroc_high_classes"),
    *(f"{metric}{end}" for metric in _ADDED for end, _ in _ENDS),
    "kind",
)


def leaderboard(config: Config, metrics: dict[Target, dict], baselines: dict[str, dict]) -> pd.DataFrame:
    """``COLUMNS``, a row for each target x split. What is skipped or undefined has empty numbers, never 0 or 0.5.

    Baselines come last, with encoder ``baseline``, no pooling (-) and their name as classifier. kind: model, or the
    baseline's: shortcut or strong. ``baselines``: by dataset the content of baselines/metrics.json.
    """
    judged = {target: {"kind": "model"} | found for target, found in metrics.items()}
    for dataset, found in baselines.items():
        for name, own in (found.get("baselines") or {}).items():
            judged[Target(dataset, "baseline", "-", name)] = own
    rows = [
        {**target._asdict(), "split": split, "kind": found["kind"], **_scores(found, split)}
        for target, found in judged.items()
        for split in config.evaluation.splits
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table[["n_receptors", "n_classes"]] = table[["n_receptors", "n_classes"]].astype("Int64")
    return table.round(6)


def _scores(metrics: dict, split: str) -> dict:
    if "skipped" in metrics:
        return {"status": "skipped", "note": metrics["skipped"]}
    result = metrics["splits"].get(split, {"skipped": f"the split {split!r} was not evaluated"})
    counts = {"n_receptors": metrics["n_receptors"], "n_classes": len(metrics["classes"])}
    if "skipped" in result:
        return {"status": "skipped", "note": result["skipped"]} | counts
    macro = result["macro"]
    scores = {
        f"{metric}{end}": (macro.get(metric) or {}).get(key) for metric in (*METRICS, *_ADDED) for end, key in _ENDS
    }
    auroc = macro.get("auroc") or {}
    scores |= {f"auroc_{end}_classes": auroc.get(f"{end}_classes") for end in ("low", "high")}
    return {"status": "ok", "note": "", "prevalence": macro.get("prevalence")} | counts | scores


def write_leaderboard(config: Config, results: Results) -> pd.DataFrame:
    """Write ``results.leaderboard`` from the ``metrics.json`` of targets and baselines and return it.

    Raises ``UserError`` when nothing of the config's datasets is there: a page about nothing would look like a result.
    """
    found = [results.parse_summary(dataset) for dataset in config.datasets]
    found += [results.encoder_status(encoder) for encoder in config.writers]
    if not any(path.is_file() for path in found):
        names = ", ".join([*config.datasets, *config.writers])
        raise UserError(f"{results.root}: no results of {names} here; name the folder that the workflow wrote to")
    table = leaderboard(config, read_metrics(config, results), read_baselines(config, results))
    write_table(table, results.leaderboard)
    return table
