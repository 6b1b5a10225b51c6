"""The labels table: what each receptor binds, its groups, and whether its ids are those of the sequences."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from airrformer.config import Dataset, Labels
from airrformer.errors import UserError
from airrformer.parse.files import Source
from airrformer.parse.table import near, read_table

# More label rows than this share without a sequence, and the two files are not about the same receptors.
MOST_UNMATCHED = 0.05


class LabelRow(NamedTuple):
    """One row that may hold a label: column -> value, without missing ones."""

    file: str
    line: int
    receptor_id: str
    values: dict[str, str]


@dataclass
class ReceptorLabels:
    """Labels and groups by receptor id. ``labels`` holds class names in the order of the table, or one float."""

    labels: dict[str, list[str] | float]
    groups: dict[str, dict[str, str]]  # group name -> receptor id -> value
    summary: dict
    notes: list[str] = field(default_factory=list)


def read_labels(dataset: Dataset, record_ids: dict[str, None], in_tables: list[LabelRow]) -> ReceptorLabels:
    """Read the labels of a dataset, from a file of their own or from the sequence tables.

    Args:
        record_ids: the receptor ids of all records, also of those rejected later.
        in_tables: the rows of the sequence tables, used where ``labels.path`` names no file.

    Raises:
        UserError: a column is missing, a value is no number, a class does not occur, a receptor has two values of one
            group, or more than 5 % of the rows match no record.
    """
    assert dataset.labels is not None
    settings = dataset.labels
    if settings.path is None:
        rows = in_tables
        for column in (settings.column, *dataset.groups.values()):
            if not any(column in row.values for row in rows):
                raise UserError(
                    f"{', '.join(dataset.files)}: no column {column!r} with values; name the file of the labels "
                    "(labels.path), or the right column"
                )
        summary: dict = {"rows": len(rows), "matched": len(rows), "unmatched": 0, "examples": []}
    else:
        rows = _rows_of(settings.path, settings, dataset)
        summary = _match(dataset, [row.receptor_id for row in rows], record_ids)
    read = _numbers if dataset.task == "regression" else _classes
    found = ReceptorLabels(read(settings, rows), _groups(dataset, rows), summary)
    if summary["unmatched"]:
        found.notes.append(
            f"{settings.path}: {summary['unmatched']} of {summary['rows']} rows match no sequence, such as "
            f"{', '.join(summary['examples'])}; ids of the sequences are such as {', '.join(_examples(record_ids))}"
        )
    return found


def _rows_of(path: str, settings: Labels, dataset: Dataset) -> list[LabelRow]:
    table = read_table(Source(path))
    for column in (settings.id, settings.column, *dataset.groups.values()):
        if column not in table.header:
            raise UserError(f"{path}: no column {column!r}{near(column, table.header)}")
    rows: list[LabelRow] = []
    for line, values, cells in table.dicts(words=(settings.column, *dataset.groups.values())):
        if values is None:
            raise UserError(f"{path}: line {line}: the row has {len(cells)} cells, the header {len(table.header)}")
        if settings.id not in values:
            raise UserError(f"{path}: line {line}: no {settings.id}")
        rows.append(LabelRow(path, line, values[settings.id], values))
    return rows


def _match(dataset: Dataset, label_ids: list[str], record_ids: dict[str, None]) -> dict:
    unmatched = [receptor_id for receptor_id in label_ids if receptor_id not in record_ids]
    if len(unmatched) > MOST_UNMATCHED * len(label_ids):
        assert dataset.labels is not None
        labelled = set(label_ids)
        raise UserError(
            f"{dataset.labels.path}: {len(unmatched)} of {len(label_ids)} rows match no sequence of "
            f"{', '.join(dataset.files)}: the labels have ids such as {', '.join(_examples(unmatched))}, the sequences "
            f"{', '.join(_examples([i for i in record_ids if i not in labelled] or record_ids))}; "
            "check labels.id and the header template"
        )
    return {
        "rows": len(label_ids),
        "matched": len(label_ids) - len(unmatched),
        "unmatched": len(unmatched),
        "examples": _examples(unmatched),
    }


def _examples(ids) -> list[str]:
    return list(dict.fromkeys(ids))[:3]


def _classes(settings: Labels, rows: list[LabelRow]) -> dict[str, list[str] | float]:
    labels: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for _, _, receptor_id, values in rows:
        names = labels.setdefault(receptor_id, [])
        name = values.get(settings.column)
        if name is None:
            continue
        counts[name] += 1
        if name not in names and (settings.classes is None or name in settings.classes):
            names.append(name)
    for name in settings.classes or []:
        if name not in counts:
            hint = near(name, list(counts))
            where = settings.path or rows[0].file
            raise UserError(f"{where}: classes: no row has {name!r} in column {settings.column!r}{hint}")
    return labels  # type: ignore[return-value]


def _numbers(settings: Labels, rows: list[LabelRow]) -> dict[str, list[str] | float]:
    values_of: dict[str, list[float]] = {}
    for file, line, receptor_id, values in rows:
        text = values.get(settings.column)
        if text is None:
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UserError(
                f"{file}: line {line}: {settings.column} of {receptor_id!r} is {text!r}, not a number "
                "(task: regression)"
            )
        values_of.setdefault(receptor_id, []).append(number)
    return {receptor_id: math.fsum(numbers) / len(numbers) for receptor_id, numbers in values_of.items()}


def _groups(dataset: Dataset, rows: list[LabelRow]) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {}
    for name, column in dataset.groups.items():
        of = groups[name] = {}
        for file, line, receptor_id, values in rows:
            value = values.get(column)
            if value is None:
                continue
            if of.setdefault(receptor_id, value) != value:
                raise UserError(
                    f"{file}: line {line}: receptor {receptor_id!r} is in two groups of {column!r}: "
                    f"{of[receptor_id]!r} and {value!r}; a receptor belongs to one"
                )
    return groups


def receptor_table(
    receptor_ids: list[str], status: list[str], dataset: Dataset, found: ReceptorLabels | None
) -> pd.DataFrame:
    """``receptors.parquet`` in the order of ``receptor_ids``: a receptor without a label has an empty list, or NaN.

    ``status``: scirpy's word for the chains of each, column ``chain_status``.
    """
    labels = found.labels if found else {}
    table = pd.DataFrame({"receptor_id": pd.Series(receptor_ids, dtype=object)})
    if dataset.task == "regression":
        table["label"] = pd.Series([labels.get(i, math.nan) for i in receptor_ids], dtype=float)
    else:
        none: list[str] = []  # one for all: there may be millions
        table["label"] = pd.Series([labels.get(i, none) for i in receptor_ids], dtype=object)
    for name in dataset.groups:
        groups = found.groups[name] if found else {}
        table[name] = pd.Series([groups.get(i) for i in receptor_ids], dtype=object)
    table["chain_status"] = pd.Series(status, dtype=object)
    return table
