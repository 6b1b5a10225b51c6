"""Result files as the report reads them. A file that an option leaves out is ``None``; a broken one is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from airrformer.config import PLAIN_KINDS, Config, Target
from airrformer.errors import UserError
from airrformer.paths import Results

# Of a class, and of their mean; then of numbers that are predicted. The first of each is what models are ranked by.
METRICS = ("auroc", "auprc", "auc01", "mcc")
PROBABILITY_METRICS = ("precision_at_k", "brier_calibrated", "ece_calibrated")
REGRESSION_METRICS = ("spearman", "pearson", "rmse")
SHORTCUT, STRONG = "shortcut", "strong"  # kinds of baselines
BASELINE = "baseline/"  # what names of baselines begin with in comparisons.tsv


def read_json(path: Path) -> dict | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); remove the file and run its stage again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not what its stage writes, but {content!r:.40}; remove the file and run it again")
    return content


def read_tsv(
    path: Path, text: tuple[str, ...] = (), rows: int | None = None, needed: tuple[str, ...] = ()
) -> pd.DataFrame | None:
    """A TSV, or ``None`` where there is none. Columns in ``text`` stay as written: a class may be called NA.

    Raises ``UserError`` for a file that is no table, or has not the columns ``needed``.
    """
    if not path.is_file():
        return None
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, nrows=rows)
    except pd.errors.EmptyDataError:
        return None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable table ({error}); remove the file and run its stage again") from None
    if missing := [column for column in needed if column not in table]:
        raise UserError(f"{path}: has no column {missing[0]!r}; remove the file and run its stage again")
    for column in table.columns:
        if column not in text:
            table[column] = pd.to_numeric(table[column], errors="coerce")
    return table


def encoder_status(config: Config, results: Results, encoder: str) -> dict:
    """``status.json`` of an encoder. A plain one needs no weights and has no file: it is always ready."""
    kind = config.encoders[encoder].kind
    status = "ready" if kind in PLAIN_KINDS else "not run"
    return {"encoder": encoder, "kind": kind, "status": status} | (read_json(results.encoder_status(encoder)) or {})


def read_metrics(config: Config, results: Results) -> dict[Target, dict]:
    """Each target of the config with its ``metrics.json``, or with ``{"skipped": sentence}``, in config order."""
    status = {encoder: encoder_status(config, results, encoder) for encoder in config.encoders}
    metrics: dict[Target, dict] = {}
    for target in config.expand_targets():
        path = results.classifier(*target) / "metrics.json"
        if status[target.encoder]["status"] == "skipped":
            metrics[target] = {"skipped": status[target.encoder].get("reason") or "the encoder was skipped"}
        else:
            metrics[target] = read_json(path) or {"skipped": f"not run: there is no {path}"}
    return metrics


def read_baselines(config: Config, results: Results) -> dict[str, dict]:
    """By dataset ``baselines/metrics.json``; empty where there is none."""
    return {name: read_json(results.baselines(name) / "metrics.json") or {} for name in config.datasets}


def read_comparisons(results: Results, dataset: str) -> pd.DataFrame | None:
    """How far the others are from the best classifier of each split, or ``None`` where nothing was compared."""
    needed = ("a", "b", "split", "difference", "low", "high", "p_holm", "folds")
    table = read_tsv(results.comparisons(dataset), text=("a", "b", "split", "note"), needed=needed)
    return table if table is not None and len(table) else None
