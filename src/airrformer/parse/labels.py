"""Labels: what each receptor binds, what it is said not to bind, its groups, and where the rows contradict each other.

A row names a receptor and a class. Without ``labels.value`` it says that the receptor is of that class; with it, the
row says yes or no in one of the words of ``YES`` and ``NO``, and a receptor is unknown for the classes that no row of
it names. Where there are two classes and one of them is 0 or -1, its rows say no of the other class.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from airrformer.config import Dataset, Labels
from airrformer.config.datasets import BY_FILE
from airrformer.errors import UserError
from airrformer.parse.chain import counted
from airrformer.parse.files import Source
from airrformer.parse.table import near, read_table
from airrformer.parse.twins import Twins

# More label rows than this share without a sequence, and the two files are not about the same receptors.
MOST_UNMATCHED = 0.05
YES = frozenset({"1", "1.0", "true", "yes", "binder", "positive"})
NO = frozenset({"0", "0.0", "-1", "-1.0", "false", "no", "non-binder", "negative"})
NEGATIVE_CLASSES = ("0", "-1")  # as in classify.features: of two classes, the lack of the other
_EXAMPLES = 5
_DONE = {
    "drop": "unknown for that class",
    "positive": "taken as of the class",
    "negative": "taken as not of the class",
}


class LabelRow(NamedTuple):
    """One row that may hold a label: column -> value, without missing ones."""

    file: str
    line: int
    receptor_id: str
    values: dict[str, str]

    def value(self, column: str) -> str | None:
        """A value of the row; for ``{file}`` the name of its file up to the first full stop: GILGFVFTL.tsv.gz."""
        return Path(self.file).name.partition(".")[0] or None if column == BY_FILE else self.values.get(column)

    @property
    def where(self) -> str:
        return f"{self.file}: line {self.line}"


@dataclass
class ReceptorLabels:
    """Labels and groups by receptor id.

    Attributes:
        labels: the classes of a receptor in the order of the rows, or one float.
        not_labels: the classes that it is said not to be of; empty without ``labels.value``.
        groups: group name -> receptor id -> value.
        rows: on how many rows of a table of labels each receptor stands; None where there is no such table.
        summary: the block ``labels`` of parse.json.
    """

    labels: dict[str, list[str] | float]
    not_labels: dict[str, list[str]]
    groups: dict[str, dict[str, str]]
    rows: dict[str, int] | None
    summary: dict
    notes: list[str] = field(default_factory=list)


def read_labels(
    dataset: Dataset, record_ids: dict[str, None], in_tables: list[LabelRow], twins: Twins
) -> ReceptorLabels:
    """Read the labels of a dataset, from a file of their own or from the sequence tables.

    Args:
        record_ids: the receptor ids of all records, also of those rejected later.
        in_tables: the rows of the sequence tables, used where ``labels.path`` names no file.
        twins: the receptors that are kept, and which of them have the same chains.

    Raises:
        UserError: a column is missing, a value is no number or neither yes nor no, a class does not occur, a receptor
            has two values of one group, more than 5 % of the rows match no record, or, with ``conflicts: error``, a
            receptor is said to be of a class and not of it.
    """
    assert dataset.labels is not None
    settings = dataset.labels
    columns = [name for name in (settings.column, settings.value, *dataset.groups.values()) if name]
    path = next(iter(dataset.label_files), None)
    if path is None:
        # a row that holds several chains gives a record for each
        rows = list({(row.file, row.line, row.receptor_id): row for row in in_tables}.values())
        for column in columns:
            if not any(row.value(column) for row in rows):
                raise UserError(
                    f"{', '.join(dataset.files)}: no column {column!r} with values; name the file of the labels "
                    "(labels.path), or the right column"
                )
        summary: dict = {"rows": len(rows), "matched": len(rows), "unmatched": 0, "examples": []}
    else:
        rows = _rows_of(path, settings, columns)
        summary = _match(path, dataset, [row.receptor_id for row in rows], record_ids)
    one = twins.first_of if dataset.duplicates == "merge" else {}
    notes: list[str] = []
    if summary["unmatched"]:
        notes.append(
            f"{path}: {summary['unmatched']} of {summary['rows']} rows match no sequence, such as "
            f"{', '.join(summary['examples'])}; ids of the sequences are such as {', '.join(_examples(record_ids))}"
        )
    groups = _groups(dataset, rows, one, notes)
    kept = {receptor: None for receptor in twins.ids if receptor not in one}
    counts = Counter(row.receptor_id for row in rows) if path else None
    regression = dataset.task == "regression"
    found = ReceptorLabels({}, {}, groups, counts, summary, notes)
    if regression:
        _read_numbers(found, settings, rows, one, kept)
    else:
        _read_classes(found, settings, rows, one, kept, twins)
    labelled = sum(found.labels.get(receptor, []) != [] or bool(found.not_labels.get(receptor)) for receptor in kept)
    if labelled < len(kept):
        what = "value" if regression else "label"
        of_those = " of the classes asked for" if settings.classes else ""
        notes.append(
            f"{len(kept) - labelled} of {len(kept)} receptors have no {what}{of_those}; they are kept unlabelled"
        )
    same = twins.summary()
    summary |= {"receptors": len(kept), "unlabelled": len(kept) - labelled}
    summary |= {"duplicates": {"policy": dataset.duplicates, **same}}
    if same["groups"] and dataset.duplicates == "keep":
        notes.append(
            f"{counted(same['receptors'], 'receptor')} in {counted(same['groups'], 'group')} of the same chains and "
            f"genes, the largest of {same['largest']:,}; each is kept (duplicates: merge makes them one)"
        )
    return found


def _rows_of(path: str, settings: Labels, columns: list[str]) -> list[LabelRow]:
    table = read_table(Source(path))
    columns = [name for name in columns if name != BY_FILE]
    for column in (settings.id, *columns):
        if column not in table.header:
            raise UserError(f"{path}: no column {column!r}{near(column, table.header)}")
    rows: list[LabelRow] = []
    for line, values, cells in table.dicts(words=columns):
        if values is None:
            raise UserError(f"{path}: line {line}: the row has {len(cells)} cells, the header {len(table.header)}")
        if settings.id not in values:
            raise UserError(f"{path}: line {line}: no {settings.id}")
        rows.append(
            LabelRow(path, line, values[settings.id], {name: values[name] for name in columns if name in values})
        )
    return rows


def _match(path: str, dataset: Dataset, label_ids: list[str], record_ids: dict[str, None]) -> dict:
    unmatched = [receptor_id for receptor_id in label_ids if receptor_id not in record_ids]
    if len(unmatched) > MOST_UNMATCHED * len(label_ids):
        labelled = set(label_ids)
        raise UserError(
            f"{path}: {len(unmatched)} of {len(label_ids)} rows match no sequence of "
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


def _examples(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ids))[:3]


# ------------------------------------------------------------------------------------------------------------ classes


@dataclass(slots=True)
class _Said:
    """The first rows that say that a receptor is of a class, and that it is not."""

    yes: LabelRow | None = None
    no: LabelRow | None = None


def _read_classes(
    found: ReceptorLabels,
    settings: Labels,
    rows: list[LabelRow],
    one: dict[str, str],
    kept: dict[str, None],
    twins: Twins,
) -> None:
    """Fill in the classes of the receptors in ``kept``; ``one``: receptor -> the one that it has become."""
    counts = Counter(name for row in rows if (name := row.value(settings.column)) is not None)
    for name in settings.classes or []:
        if name not in counts:
            hint = near(name, list(counts))
            where = settings.path or rows[0].file
            raise UserError(f"{where}: classes: no row has {name!r} in column {settings.column!r}{hint}")
    asked = set(settings.classes or counts)
    negative = _negative_class(asked) if settings.value is None else None
    said: dict[str, dict[str, _Said]] = {}  # receptor -> class -> what is said
    for row in rows:
        name = row.value(settings.column)
        receptor = one.get(row.receptor_id, row.receptor_id)
        if name not in asked or receptor not in kept:
            continue
        is_of = _says_yes(row, name, settings.value) if settings.value else name != negative
        if is_of is None:
            continue
        if name == negative:
            name = next(iter(asked - {negative}))
        of = said.setdefault(receptor, {}).setdefault(name, _Said())
        if is_of:
            of.yes = of.yes or row
        else:
            of.no = of.no or row
    _settle(found, settings, said, [] if one else list(_apart(said, twins)))
    tally = {name: Counter() for name in settings.classes or sorted(asked) if name != negative}
    for receptor, of in said.items():
        found.labels[receptor] = [name for name, what in of.items() if what.yes]
        not_of = [name for name, what in of.items() if what.no]
        for name, what in of.items():
            tally[name]["positives"] += what.yes is not None
            tally[name]["negatives"] += what.no is not None
        if negative is None:
            found.not_labels[receptor] = not_of
        elif not_of:
            found.labels[receptor] = [negative]
    found.summary["classes"] = {
        name: {"positives": n["positives"], "negatives": n["negatives"],
               "unknown": len(kept) - n["positives"] - n["negatives"]}
        for name, n in tally.items()
    }  # fmt: skip
    several = sum(len(names) > 1 for names in found.labels.values())
    found.summary["several_classes"] = several
    if several:
        found.notes.append(f"{counted(several, 'receptor')} of several classes")


def _negative_class(names: set[str]) -> str | None:
    """0 or -1, where it stands for the lack of the one other class."""
    negative = names & set(NEGATIVE_CLASSES)
    return negative.pop() if len(names) == 2 and len(negative) == 1 else None


def _says_yes(row: LabelRow, name: str, column: str) -> bool | None:
    """Whether a row says that its receptor is of class ``name``; None where it says nothing."""
    text = row.values.get(column)
    if text is None:
        return None
    if text.lower() in YES or text.lower() in NO:
        return text.lower() in YES
    raise UserError(
        f"{row.where}: {column} of {row.receptor_id!r} for class {name!r} is {text!r}, neither yes nor no; say 1 or 0, "
        "1 or -1, true or false, yes or no, binder or non-binder, positive or negative"
    )


def _settle(
    found: ReceptorLabels,
    settings: Labels,
    said: dict[str, dict[str, _Said]],
    apart: list[tuple[str, str, _Said]],
) -> None:
    """Apply the policy where a receptor is said to be of a class and not of it, and count these; ``said`` is changed.

    ``apart``: receptors with the same chains that contradict each other but are kept apart: they are counted, no more.
    """
    both = [(receptor, name, of) for receptor, names in said.items() for name, of in names.items() if of.yes and of.no]
    if settings.conflicts == "error" and (both or apart):
        receptor, name, of = (both or apart)[0]
        other = "" if both else " (another receptor with the same chains)"
        raise UserError(
            f"{of.no.where}: {receptor!r} is said not to be of class {name!r}, but {of.yes.where} says that it "
            f"is{other}; {counted(len(both) + len(apart), 'such conflict')} (labels.conflicts: error)"
        )
    examples = [_both_ways(*conflict) for conflict in (both or apart)[:_EXAMPLES]]
    found.summary["conflicts"] = {
        "policy": settings.conflicts,
        "count": len(both),
        "same_chains": len(apart),
        "examples": examples,
    }
    for _, _, of in both:
        if settings.conflicts != "positive":
            of.yes = None
        if settings.conflicts != "negative":
            of.no = None
    if both:
        found.notes.append(
            f"{counted(len(both), 'conflict')}, a receptor said to be of a class and not of it, such as {examples[0]}: "
            f"{_DONE[settings.conflicts]} (labels.conflicts: {settings.conflicts})"
        )
    if apart:
        found.notes.append(
            f"{counted(len(apart), 'conflict')} between receptors with the same chains and genes, such as "
            f"{_both_ways(*apart[0])}: each keeps its label; duplicates: merge makes them one"
        )


def _apart(said: dict[str, dict[str, _Said]], twins: Twins) -> Iterator[tuple[str, str, _Said]]:
    """What receptors with the same chains say that none of them says by itself."""
    together: dict[str, dict[str, _Said]] = {}
    of_group = {twins.ids[i] for i in np.flatnonzero(twins.sizes > 1).tolist()}
    for receptor, names in said.items():
        first = twins.first_of.get(receptor, receptor)
        if first not in of_group:
            continue
        for name, of in names.items():
            all_of = together.setdefault(first, {}).setdefault(name, _Said())
            all_of.yes, all_of.no = all_of.yes or of.yes, all_of.no or of.no
    for first, names in together.items():
        for name, of in names.items():
            if of.yes and of.no and of.yes.receptor_id != of.no.receptor_id:
                yield first, name, of


def _both_ways(receptor: str, name: str, of: _Said) -> str:
    assert of.yes and of.no
    files = [f" of {Path(row.file).name}" if of.yes.file != of.no.file else "" for row in (of.yes, of.no)]
    return f"{receptor!r} (class {name!r}: yes on line {of.yes.line}{files[0]}, no on line {of.no.line}{files[1]})"


# ------------------------------------------------------------------------------------------------------------ numbers


def _read_numbers(
    found: ReceptorLabels, settings: Labels, rows: list[LabelRow], one: dict[str, str], kept: dict[str, None]
) -> None:
    """Fill in the value of each receptor, the mean where there are several."""
    values_of: dict[str, list[float]] = {}
    for row in rows:
        text = row.value(settings.column)
        if text is None:
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            do = "write one number, or leave the cell empty where there is none"
            if re.fullmatch(r"[-+\d.,\s]*,[\d.,\s]*", text):
                do = "write numbers with a decimal point and nothing else between the digits, such as 1234.5"
            raise UserError(
                f"{row.where}: {settings.column} of {row.receptor_id!r} is {text!r}, not a number (task: regression); "
                f"{do}"
            )
        receptor = one.get(row.receptor_id, row.receptor_id)
        if receptor in kept:
            values_of.setdefault(receptor, []).append(number)
    found.labels.update({receptor: math.fsum(numbers) / len(numbers) for receptor, numbers in values_of.items()})
    spreads = {i: max(numbers) - min(numbers) for i, numbers in values_of.items() if len(numbers) > 1}
    found.summary["several_values"] = {"receptors": len(spreads)}
    if spreads:
        widest = max(spreads, key=lambda receptor: spreads[receptor])
        median, most = float(np.median(list(spreads.values()))), spreads[widest]
        found.summary["several_values"] |= {"median_spread": median, "largest_spread": most}
        found.notes.append(
            f"{counted(len(spreads), 'receptor')} with several values: the mean is taken; the largest less the "
            f"smallest is {median:.3g} in the median, {most:.3g} at most ({widest!r})"
        )


# ------------------------------------------------------------------------------------------------------------- groups


def _groups(dataset: Dataset, rows: list[LabelRow], one: dict[str, str], notes: list[str]) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {}
    for name, column in dataset.groups.items():
        of: dict[str, str] = {}
        for row in rows:
            value = row.values.get(column)
            if value is None:
                continue
            if of.setdefault(row.receptor_id, value) != value:
                raise UserError(
                    f"{row.where}: receptor {row.receptor_id!r} is in two groups of {column!r}: "
                    f"{of[row.receptor_id]!r} and {value!r}; a receptor belongs to one"
                )
        groups[name] = of
        others: dict[str, set[str]] = {}
        for receptor, first in one.items():
            value = of.get(receptor)
            if value is not None and of.setdefault(first, value) != value:
                others.setdefault(first, set()).add(value)
        if others:
            receptor = next(iter(others))
            notes.append(
                f"{counted(len(others), 'merged receptor')} of several groups of {column!r}, such as "
                f"{receptor!r} of {of[receptor]!r} and {', '.join(map(repr, sorted(others[receptor])[:3]))}: the first "
                "is kept"
            )
    return groups


def receptor_table(
    receptor_ids: list[str], status: list[str], dataset: Dataset, found: ReceptorLabels | None, twins: Twins
) -> pd.DataFrame:
    """``receptors.parquet`` in the order of ``receptor_ids``: a receptor without a label has an empty list, or NaN.

    ``status``: scirpy's word for the chains of each, column ``chain_status``.
    """
    labels, not_labels = (found.labels, found.not_labels) if found else ({}, {})
    none: list[str] = []  # one for all: there may be millions
    table = pd.DataFrame({"receptor_id": pd.Series(receptor_ids, dtype=object)})
    if dataset.task == "regression":
        table["label"] = pd.Series([labels.get(i, math.nan) for i in receptor_ids], dtype=float)
    else:
        table["label"] = pd.Series([labels.get(i, none) for i in receptor_ids], dtype=object)
    table["not_label"] = pd.Series([not_labels.get(i, none) for i in receptor_ids], dtype=object)
    for name in dataset.groups:
        groups = found.groups[name] if found else {}
        table[name] = pd.Series([groups.get(i) for i in receptor_ids], dtype=object)
    table["chain_status"] = pd.Series(status, dtype=object)
    occurrences = twins.occurrences(found.rows if found else None)
    table["occurrences"] = occurrences if len(receptor_ids) == len(occurrences) else occurrences[twins.is_first]
    return table
