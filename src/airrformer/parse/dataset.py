"""A dataset of the config, or one new file, parsed from end to end."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from airrformer.config import Dataset
from airrformer.config.datasets import BY_FILE
from airrformer.errors import UserError
from airrformer.parse.chain import Account, Chain, counted
from airrformer.parse.chains import ChainBuilder, count_of
from airrformer.parse.labels import LabelRow, read_labels, receptor_table
from airrformer.parse.pairing import pair_chains
from airrformer.parse.records import Input, Record, Rejection, read_records
from airrformer.parse.survey import survey
from airrformer.parse.twins import Twins, find_twins
from airrformer.paths import check_output, write_json
from airrformer.receptors.genes import HUMAN, MOUSE
from airrformer.receptors.tables import (
    CHAIN_SCHEMA,
    GENE_COLUMNS,
    REGIONS,
    kind_of_reason,
    with_chain_types,
    write_chains,
    write_receptors,
    write_table,
)
from airrformer.versions import STAGE_VERSIONS

log = logging.getLogger(__name__)

_BATCH = 10_000  # records that are in memory as objects at a time
_SECONDS_BETWEEN_LINES = 10
CANNOT_BE_REBUILT = "chain cannot be rebuilt"
_MIXED = 0.01  # of the chains are of another length than the others: that is worth a word
_LONGEST_VALUE = 200  # characters of a value or an id in rejected.tsv
_PLAIN = {HUMAN: "human", MOUSE: "mouse"}
_REGIONS_BY = ("genes", "germlines", "numbering", "cdrs_only", "cdr3_only", "none")
_REJECTED_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("id", pa.string()), ("reason", pa.string()), ("value", pa.string())]
)
# In memory, columns that say the same over and over are dictionaries.
_REPEATED = {"locus", "chain", "v_call", "j_call", "c_call", "note", "file"}
_WORD = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [*((f.name, _WORD if f.name in _REPEATED else f.type) for f in CHAIN_SCHEMA)]
    + [(name, _WORD) for name in ("regions_by", "species", "conflict")]
)


@dataclass(frozen=True)
class Parsed:
    """What the files hold. ``len(table) + len(rejected) + merged`` is the number of records in them.

    Attributes:
        table: the chains that are kept, columns as in ``CHAIN_SCHEMA``, in the order of the input.
        receptor_ids: receptors that have their chains, in the order of first appearance.
        status: scirpy's word for the chains of each of them.
        merged: chains of receptors that have become one with an earlier one of the same chains.
        twins: the receptors before that, and which have the same chains.
        rejected: ``REJECTED_COLUMNS``.
        genes: ``GENE_COLUMNS``: what became of gene names that were not kept as given.
        notes: sentences on what was changed or is worth knowing.
        record_ids: receptor ids of all records, kept or not, in the order of the input.
        label_rows: labels and groups that stand in the sequence tables themselves.
        formats: file -> what it is.
        used: file -> our name -> its columns.
        regions_by: how the regions were found -> chains.
        species: of each row of ``table``: ``human``, ``mouse`` or what else its record says or its genes are of; None:
            nothing tells.
        conflicts: of each row what contradicts the locus that it is given as, or None.
    """

    table: pa.Table
    receptor_ids: list[str]
    status: list[str]
    merged: int
    twins: Twins
    rejected: pd.DataFrame
    genes: pd.DataFrame
    notes: list[str]
    record_ids: dict[str, None]
    label_rows: list[LabelRow]
    molecules: list[str]
    formats: dict[str, str]
    used: dict[str, dict[str, list[str]]]
    regions_by: dict[str, int]
    species: list[str | None]
    conflicts: list[str | None]

    @cached_property
    def chains(self) -> pd.DataFrame:
        """The chains as ``read_chains`` gives them."""
        return with_chain_types(self.table.cast(CHAIN_SCHEMA).to_pandas())

    @property
    def records(self) -> int:
        return self.table.num_rows + len(self.rejected) + self.merged


def parse_dataset(
    dataset: Dataset, output: str | Path, workers: int = 1, strict: bool = False, told_only: bool = False
) -> dict:
    """Parse a dataset and write chains.parquet, receptors.parquet, rejected.tsv, genes.tsv and parse.json.

    Args:
        workers: threads for the numbering; changes nothing but the time.
        strict: stop at the first record that would be left out or mended.
        told_only: reject chains that do not say which one they are, also where the dataset has one kind of chain.

    Returns:
        The summary that is in parse.json.

    Raises:
        UserError: see ``parse_files`` and ``labels.read_labels``. Nothing is written then.
    """
    output = Path(output)
    for name in ("chains.parquet", "receptors.parquet", "rejected.tsv", "genes.tsv", "parse.json"):
        for path in (*dataset.files, *dataset.label_files):
            check_output(output / name, path)
    merge = dataset.duplicates == "merge"
    parsed = parse_files(dataset.files, dataset, workers, strict, told_only=told_only, merge=merge)
    labels = read_labels(dataset, parsed.record_ids, parsed.label_rows, parsed.twins) if dataset.labels else None
    receptors = receptor_table(parsed.receptor_ids, parsed.status, dataset, labels, parsed.twins)
    notes = parsed.notes + (labels.notes if labels else [])
    classes: Counter[str] = Counter()
    if dataset.task == "classification":
        order = (dataset.labels.classes if dataset.labels else None) or []
        classes.update(dict.fromkeys(order, 0))
        for names in receptors["label"]:
            classes.update(names)
    summary = {
        "version": STAGE_VERSIONS["parse"],
        "files": dataset.files,
        "formats": parsed.formats,
        "molecule": " and ".join(parsed.molecules),
        "records": parsed.records,
        "chains": parsed.table.num_rows,
        "receptors": len(receptors),
        "chain_status": dict(Counter(parsed.status).most_common()),
        "merged": parsed.merged,
        "rejected": reasons_of(parsed.rejected),
        "genes_changed": len(parsed.genes),
        "notes": notes,
        "labels": labels.summary if labels else None,
        "classes": dict(classes),
        "numbered": {"by": parsed.regions_by},
        "species": dict(Counter(name for name in parsed.species if name).most_common()),
    }
    write_chains(parsed.table, output / "chains.parquet")
    write_receptors(receptors, output / "receptors.parquet")
    write_table(parsed.rejected, output / "rejected.tsv")
    write_table(parsed.genes, output / "genes.tsv")
    write_json(output / "parse.json", summary)
    for line in account(summary):
        log.info("%s", line)
    return summary


def account(summary: dict) -> list[str]:
    """The summary as lines for the screen: what was read, what was changed, and what was left out and why."""
    lines = [f"{file}: {name}" for file, name in summary["formats"].items()]
    lines += summary["notes"]
    left = sum(summary["rejected"].values())
    lines.append(
        f"{counted(summary['records'], 'record')}: {counted(summary['receptors'], 'receptor')} with "
        f"{counted(summary['chains'], 'chain')}, {left:,} rejected"
        + (f", {summary['merged']:,} merged" if summary["merged"] else "")
    )
    lines += [f"  {count:,} {reason}" for reason, count in summary["rejected"].items()]
    return lines + hints(summary["rejected"])


def hints(rejected: dict[str, int]) -> list[str]:
    """What to do about frequent reasons."""
    if not rejected.get(CANNOT_BE_REBUILT):
        return []
    return [
        "  say rebuild: never (--set rebuild=never) to keep junctions whose chains cannot be rebuilt, all of them alone"
    ]


def reasons_of(rejected: pd.DataFrame) -> dict[str, int]:
    """Kinds of reasons, most frequent first -> how many records."""
    return {str(kind): int(n) for kind, n in rejected["reason"].map(kind_of_reason).value_counts().items()}


def parse_input(
    path: str | Path,
    dataset: Dataset,
    workers: int | None = None,
    strict: bool = False,
    usual_species: str = HUMAN,
) -> Parsed:
    """Parse new sequences as those of ``dataset`` (its receptor, chains, header template and columns), unlabelled.

    Each row that holds a whole receptor is one, in the order of the file: none is merged with another, whatever
    ``duplicates`` says, and where an id is there again the row is named id_2, id_3, ... A row without an id is named by
    file and line.
    A FASTA file whose headers have not the template's form is read too: the first word is then the receptor's id. A
    table that lacks the dataset's own columns is read under the usual names. A chain without a sequence is made of the
    genes or the CDRs of its own row, whatever the others have, and a row that does not tell its species, by a column or
    by its genes, is of the ``usual_species``. ``workers``: default, all CPUs.
    """
    workers = workers or os.cpu_count() or 1
    return parse_files([str(path)], dataset, workers, strict, any_header=True, usual_species=usual_species)


def parse_files(
    files: list[str],
    dataset: Dataset,
    workers: int = 1,
    strict: bool = False,
    any_header: bool = False,
    most_numbered: float = math.inf,
    told_only: bool = False,
    merge: bool = False,
    usual_species: str = HUMAN,
) -> Parsed:
    """Files to chains of receptors. A file is read once, and only its tables are in memory, not its records.

    Args:
        any_header, usual_species: new files of a model; see ``parse_input``.
        most_numbered: so many chains are numbered; those after them are rejected as undecided.
        told_only: see ``parse_dataset``.
        merge: receptors with the same chains become the first of them.

    Raises:
        UserError: a file cannot be read, ids repeat, the molecule is not what was declared, or no receptor is left.
    """
    dataset = dataset.model_copy(update={"sequences": files})  # new files of a model are not those it learned from
    found = _Found(dataset)
    for file in files:
        found.read(file, workers, strict, any_header, most_numbered, told_only, usual_species)
    chains = pa.Table.from_batches(found.chains, _SCHEMA).unify_dictionaries()
    found.chains.clear()
    pairing = pair_chains(chains, dataset)
    left = np.flatnonzero(~pairing.kept)
    unpaired = (
        chains.select(["file", "line", "sequence_id"]).rename_columns(["file", "line", "id"]).take(pa.array(left))
    )
    for name, texts in (("reason", pairing.reasons), ("value", pairing.values)):
        unpaired = unpaired.append_column(name, pa.array([texts[i] for i in left.tolist()], pa.string()))
    rejected = pa.Table.from_batches(found.rejected, _REJECTED_SCHEMA)
    rejected = pa.concat_tables([rejected, unpaired.cast(_REJECTED_SCHEMA)]).to_pandas()
    rejected = _in_order(rejected, found.formats)
    if len(left):
        chains = chains.filter(pa.array(pairing.kept))
    receptor_ids, status, notes, paired = pairing.receptor_ids, pairing.status, found.all_notes(), chains.num_rows
    twins = find_twins(chains, dataset.chains, receptor_ids, pairing.repeats)
    if merge and twins.first_of:
        chains = chains.filter(pc.invert(pc.is_in(chains["receptor_id"], pa.array(twins.first_of, pa.string()))))
        receptor_ids = [receptor for receptor, first in zip(twins.ids, twins.is_first) if first]
        status = [word for word, first in zip(status, twins.is_first) if first]
        notes.append(
            f"{counted(len(twins.first_of), 'receptor')} of {len(twins.ids):,} with the chains and genes of an earlier "
            "one: merged into it (duplicates: merge)"
        )
    regions_by, species, conflicts = (chains[name].to_pylist() for name in ("regions_by", "species", "conflict"))
    regions_by = Counter(regions_by)
    chains = chains.drop_columns(["regions_by", "species", "conflict"])
    merged = paired - chains.num_rows
    assert found.records == chains.num_rows + len(rejected) + merged, "a record was lost"
    if strict and len(rejected):
        first = rejected.iloc[0]
        raise UserError(
            f"{first['file']}: line {first['line']}: {first['id']!r}: {first['reason']} "
            f"({len(rejected)} of {found.records} records would be left out; --strict)"
        )
    if not chains.num_rows:
        advice = [] if any_header else hints(reasons_of(rejected))  # a model's own reading is not to be changed
        raise UserError("; ".join([_nothing_left(files, rejected, found.records), *advice]))
    return Parsed(
        table=chains,
        receptor_ids=receptor_ids,
        status=status,
        merged=merged,
        twins=twins,
        rejected=rejected,
        genes=found.gene_table(),
        notes=[*notes, *_of_several_files(chains), *([] if any_header else _of_two_lengths(regions_by))],
        record_ids=found.record_ids,
        label_rows=found.label_rows,
        molecules=sorted(found.molecules),
        formats=found.formats,
        used=found.used,
        regions_by={how: regions_by[how] for how in _REGIONS_BY},
        species=species,
        conflicts=conflicts,
    )


def _of_several_files(chains: pa.Table) -> list[str]:
    """Barcodes and complex ids repeat between samples, where heavy and light chains in two files are one antibody."""
    files = pc.dictionary_encode(chains["file"].combine_chunks().cast(pa.string())).indices.to_numpy()
    if not files.any():
        return []
    ids = pc.dictionary_encode(chains["receptor_id"].combine_chunks()).indices.to_numpy()
    first, last = np.full(ids.max() + 1, files.max()), np.zeros(ids.max() + 1, files.dtype)
    np.minimum.at(first, ids, files)
    np.maximum.at(last, ids, files)
    count = int((first != last).sum())
    if not count:
        return []
    return [
        f"{counted(count, 'receptor')} with chains of several files; give ids of their own if they are not the same"
    ]


def _of_two_lengths(regions_by: Counter[str]) -> list[str]:
    notes, total = [], regions_by.total()
    for how, what in (("cdr3_only", "are CDR3s alone"), ("cdrs_only", "are known by their CDRs only")):
        if _MIXED * total < regions_by[how] < (1 - _MIXED) * total:
            notes.append(
                f"{counted(regions_by[how], 'chain')} of {total:,} {what}, the others whole: length tells them apart, "
                "which gives away labels that go with it; ask for one kind"
            )
    return notes


def _in_order(rejected: pd.DataFrame, files: Iterable[str]) -> pd.DataFrame:
    rank = rejected["file"].map({file: i for i, file in enumerate(files)})
    order = np.lexsort((rejected["line"].to_numpy(), rank.to_numpy()))
    return rejected.iloc[order].reset_index(drop=True)


def _nothing_left(files: list[str], rejected: pd.DataFrame, total: int) -> str:
    counts = rejected["reason"].value_counts()
    reasons = "; ".join(f"{reason} ({count})" for reason, count in list(counts.items())[:3])
    first = rejected.iloc[0]
    return (
        f"{', '.join(files)}: no receptor is left of {counted(total, 'record')}: {reasons}; the first is "
        f"{first['id']!r} on line {first['line']}"
    )


# --------------------------------------------------------------------------------------------------------- file by file


@dataclass
class _Found:
    """What has been read so far."""

    dataset: Dataset
    chains: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[pa.RecordBatch] = field(default_factory=list)
    records: int = 0
    record_ids: dict[str, None] = field(default_factory=dict)
    label_rows: list[LabelRow] = field(default_factory=list)
    molecules: set[str] = field(default_factory=set)
    formats: dict[str, str] = field(default_factory=dict)
    used: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    account: Account = field(default_factory=Account)

    def read(
        self,
        file: str,
        workers: int,
        strict: bool,
        any_header: bool,
        most_numbered: float,
        told_only: bool,
        usual_species: str,
    ) -> None:
        """Read one file from end to end."""
        opened = read_records(file, self.dataset, any_header)
        self.formats[opened.path], self.used[opened.path] = opened.format, opened.used
        head, facts = survey(opened, self.dataset, any_header, usual_species)
        self.molecules |= facts.present
        builder = ChainBuilder(self.dataset, facts, self.account, workers, strict, most_numbered, told_only)
        progress = _Progress(opened)
        for batch in _batches(itertools.chain(head, opened.records), _BATCH):
            self._add(builder.build(batch), batch)
            progress.show(len(batch))
        for anchors in facts.anchors.values():
            anchors.check()
        self.notes += opened.notes + facts.notes

    def _add(self, outcomes: list[Chain | Rejection], batch: list[Record | Rejection]) -> None:
        chains = [outcome for outcome in outcomes if isinstance(outcome, Chain)]
        self.records += len(outcomes)
        self.chains.append(_chain_batch(chains))
        rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
        if rejections:
            self.rejected.append(_rejected_batch(rejections))
        if self.dataset.labels:
            records = [record for record in batch if isinstance(record, Record)]
            self.record_ids.update(dict.fromkeys(record.receptor_id for record in records))
            by_file = self.dataset.labels.path is None and self.dataset.labels.column == BY_FILE
            self.label_rows += [
                LabelRow(record.file, record.line, record.receptor_id, record.extra or {})
                for record in records
                if by_file or record.extra is not None
            ]

    def all_notes(self) -> list[str]:
        """What is said of many files in the same words is said once."""
        said: dict[str, list[str]] = {}
        for note in self.notes:
            path = next((path for path in self.formats if note.startswith(f"{path}: ")), "")
            said.setdefault(note[len(path) :], []).append(path)
        notes = [
            (f"{paths[0]} and {len(paths) - 1} more files" if len(paths) > 2 else path) + rest
            for rest, paths in said.items()
            for path in (paths[:1] if len(paths) > 2 else paths)
        ]
        changes = self.account.changes.items()
        return notes + [f"{what}: {counted(count, 'record')}" for what, count in changes if count]

    def gene_table(self) -> pd.DataFrame:
        rows = [
            (file, *change, count)
            for file, changes in self.account.genes.items()
            for change, count in sorted(changes.items(), key=lambda item: (item[0][0], -item[1], item[0]))
        ]
        return pd.DataFrame(rows, columns=list(GENE_COLUMNS))


def _batches(items: Iterable, size: int) -> Iterator[list]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


class _Progress:
    """A line about every ten seconds: how far a file is read, and how long it will take."""

    def __init__(self, opened: Input) -> None:
        self._opened, self._start, self._last, self._count = opened, time.monotonic(), time.monotonic(), 0

    def show(self, records: int) -> None:
        self._count += records
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        share = self._opened.source.share_read() if self._opened.source else 0.0
        left = f", {share:.0%} read, about {(now - self._start) * (1 - share) / share:,.0f} s left" if share else ""
        log.info("%s: %s records%s", self._opened.path, f"{self._count:,}", left)


def _chain_batch(chains: list[Chain]) -> pa.RecordBatch:
    fields = [chain.record.fields for chain in chains]
    bounds = [chain.bounds or {} for chain in chains]
    columns: dict[str, list] = {
        "receptor_id": [chain.record.receptor_id for chain in chains],
        "sequence_id": [f.get("sequence_id") or chain.record.id for f, chain in zip(fields, chains)],
        "locus": [chain.locus for chain in chains],
        "chain": [chain.chain for chain in chains],
        "sequence_aa": [chain.sequence_aa for chain in chains],
        "v_call": [chain.v_call for chain in chains],
        "j_call": [chain.j_call for chain in chains],
        "c_call": [chain.c_call for chain in chains],
        "junction_aa": [chain.junction_aa for chain in chains],
        "cdr3_aa": [_cdr3(chain) for chain in chains],
        "productive": [chain.productive for chain in chains],
        "numbered": [chain.bounds is not None and chain.regions_by != "cdrs_only" for chain in chains],
        "note": ["; ".join(chain.notes) or None for chain in chains],
        "file": [chain.record.file for chain in chains],
        "line": [chain.record.line for chain in chains],
        "regions_by": [chain.regions_by for chain in chains],
        "species": [_PLAIN.get(chain.told_species or "", chain.told_species) for chain in chains],
        "conflict": [chain.conflict for chain in chains],
    }
    for name in ("umi_count", "duplicate_count", "consensus_count"):
        columns[name] = [count_of(f[name]) if name in f else None for f in fields]
    for region in REGIONS:
        pairs = [b.get(region) for b in bounds]
        columns[f"{region}_start"] = [pair[0] if pair else None for pair in pairs]
        columns[f"{region}_end"] = [pair[1] if pair else None for pair in pairs]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name], _SCHEMA.field(name).type) for name in _SCHEMA.names], schema=_SCHEMA
    )


def _cdr3(chain: Chain) -> str | None:
    if chain.bounds and "cdr3" in chain.bounds:
        start, end = chain.bounds["cdr3"]
        return chain.sequence_aa[start:end]
    return chain.junction_aa[1:-1] if chain.junction_aa else None


def _rejected_batch(rejections: list[Rejection]) -> pa.RecordBatch:
    def cut(text: str) -> str:
        return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text):,} characters)"

    rows = [(r.file, r.line, cut(r.id), cut(r.reason), cut(r.value)) for r in rejections]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows), _REJECTED_SCHEMA)], schema=_REJECTED_SCHEMA
    )
