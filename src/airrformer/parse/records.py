"""From files of any format to records under our names, one after the other, before anything is known about chains."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.columns import KNOWN, RESIDUES, SHORT_CDRS, plain
from airrformer.parse.fasta import FastaRecord, HeaderTemplate, SeenIds, first_word, read_fasta, read_fastq
from airrformer.parse.files import ASN_ALA_ASN, STDIN, Source, is_missing, is_missing_word, real_path, shown
from airrformer.parse.h5ad import read_h5ad
from airrformer.parse.layouts import Layout, layout_of, with_header, with_residues
from airrformer.parse.table import SEPARATORS, Table, read_table

# What concerns a whole file (its ids, its molecule, its convention for CDR3s) is told by so many of its records.
SAMPLE = 10_000

_NEEDED = ("v_call", "j_call", "receptor_id", "cell_id")
# A gene, or several of its kind: IGHV3-66*01,IGHV3-66*04
_GENE_IN_HEADER = re.compile(r"(?<![\w/-])((TR[ABGD]|IG[HKL])([VJ])\d[\w/.*-]*(?:,\2\3\d[\w/.*-]*)*)")


@dataclass(slots=True)
class Record:
    """One FASTA record, or one chain of a row of a table.

    Attributes:
        id: what the user knows it by.
        fields: our name -> value as in the file, without missing values; ``sequence`` and ``sequence_aa`` may hold
            either molecule.
        slot: which of the chains of a row it is.
        extra: columns that the dataset asks for beside ours (labels and groups).
    """

    file: str
    line: int
    id: str
    receptor_id: str
    fields: dict[str, str]
    slot: int = 0
    extra: dict[str, str] | None = None


@dataclass(slots=True)
class Rejection:
    """A record that is left out, and why: a row of rejected.tsv."""

    file: str
    line: int
    id: str
    reason: str
    value: str = ""


@dataclass
class Input:
    """One file, opened.

    Attributes:
        format: what the file is.
        used: our name -> the columns that it is read from; empty for FASTA.
        columns: for each slot, our name -> the first of these columns.
        records: to be read once; the notes are complete when it is.
    """

    path: str
    format: str
    records: Iterator[Record | Rejection]
    used: dict[str, list[str]] = field(default_factory=dict)
    columns: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    source: Source | None = None

    def close(self) -> None:
        """Let go of the file before its end."""
        if self.source:
            self.source.close()


def read_records(path: str, dataset: Dataset, any_header: bool = False) -> Input:
    """Open one file of any format and tell what it is by its content.

    Args:
        any_header: for new files of a trained model: where no header has the form that the dataset gives, or a table
            has not its columns, the first word and the usual names are taken instead; otherwise that is a mistake.
            Rows of a table that repeat a receptor's id are receptors of their own.

    Raises:
        UserError: here or while the records are read: nothing of the file can be read as what it should be.
    """
    if path != STDIN and _is_hdf5(path):
        return _from_h5ad(path, dataset)
    source = Source(path)
    kind = _kind_of(source)
    _check_format(source.path, kind, dataset)
    if kind == "table":
        return _from_table(source, dataset, any_header)
    return _from_fasta(source, kind, dataset, any_header)


def _check_format(path: str, kind: str, dataset: Dataset) -> None:
    """Raise ``UserError`` where the file is not of the kind that the dataset says it is."""
    declared = dataset.format
    of_records = declared.upper() if declared.upper() in ("FASTA", "FASTQ") else "table"
    if declared != "auto" and of_records != kind:
        raise UserError(f"{path}: a {kind} file, but the format is said to be {declared}; say auto, or the right one")


def _is_hdf5(path: str) -> bool:
    try:
        with open(real_path(path), "rb") as file:
            return file.read(8).startswith((b"\x89HDF\r\n\x1a\n", b"MuData"))
    except OSError:
        return False  # said where the file is opened for good


def _kind_of(source: Source) -> Literal["FASTA", "FASTQ", "table"]:
    """FASTA where the first line that is no comment begins with ``>``, FASTQ after ``@``; else a table with columns.

    Raises ``UserError`` for anything else, such as bare sequences without headers.
    """
    lines = [line.strip() for line in source.head if line.strip()]
    content = [line for line in lines if not line.startswith(("#", ";"))]
    first = content[0] if content else lines[0].removeprefix("#")
    headers = [line for line in content if line.startswith(">")]
    if first.startswith(">"):
        return "FASTA"
    if first.startswith("@") and any(line.startswith("+") for line in content[2:]):
        return "FASTQ"
    if first.startswith(("[", "{")) and not (first[0] == "{" and len(content) > 1 and "," in content[1]):
        raise UserError(f"{source.path}: JSON is not read; give the table (CSV or TSV) of the same records")
    marks = [mark for mark in SEPARATORS if mark in first]
    if marks and not (headers and not any(mark in headers[0] for mark in marks)):
        return "table"
    if headers:
        return "FASTA"  # whose reader names the line that does not belong to it
    if len(content) > 1 and plain(first) in KNOWN:
        return "table"  # of one column
    raise UserError(
        f"{source.path}: no FASTA header (a line that starts with '>') and no table with columns found; "
        f"the file starts with {first[:40]!r}"
    )


# ------------------------------------------------------------------------------------------------------------- FASTA


def _from_fasta(source: Source, kind: str, dataset: Dataset, any_header: bool) -> Input:
    records = read_fastq(source) if kind == "FASTQ" else read_fasta(source)
    head = list(itertools.islice(records, SAMPLE))
    if not head:
        raise UserError(f"{source.path}: no record is found; the file has nothing but comments and blank lines")
    template = HeaderTemplate(dataset.id) if dataset.id else None
    if template and not any(template.fields_of(record.header) for record in head):
        if not any_header:
            raise UserError(
                f"{source.path}: line {head[0].line}: no header has the form {template.template!r}; "
                f"the first is {head[0].header[:60]!r}"
            )
        source.notes.append(
            f"{source.path}: no header has the form {template.template!r}; the first word is taken as the receptor's id"
        )
        template = None
    if template is None and any(_GENE_IN_HEADER.search(record.header.partition(" ")[2]) for record in head):
        source.notes.append(f"{source.path}: V and J genes are taken from the headers")
    everything = itertools.chain(head, records)
    return Input(
        source.path,
        kind,
        _fasta_records(source, everything, template, dataset.repeated_ids == "rename"),
        notes=source.notes,
        source=source,
    )


def _fasta_records(
    source: Source, records: Iterable[FastaRecord], template: HeaderTemplate | None, rename: bool
) -> Iterator[Record | Rejection]:
    path, whole = source.path, template is not None
    seen = SeenIds(path)
    for line, header, sequence in records:
        name = first_word(header)
        new = seen.add(header if whole else name, line, header)
        if not header:
            yield Rejection(path, line, "", "header without an id")
            continue
        fields = {"sequence": sequence}
        receptor_id = name
        if template:
            found = template.fields_of(header)
            if found is None:
                yield Rejection(path, line, name, f"header has not the form {template.template}", header)
                continue
            fields.update((ours, value) for ours, value in found.items() if not is_missing(value))
            receptor_id = fields.get("receptor_id") or fields.get("cell_id") or name
        elif len(name) < len(header):
            for gene, _, segment in _GENE_IN_HEADER.findall(header[len(name) :]):
                fields.setdefault("v_call" if segment == "V" else "j_call", gene)
        if not new and rename:
            receptor_id = seen.rename(header if whole else name, receptor_id)
        yield Record(path, line, name, receptor_id, fields)
    if rename:
        source.notes += seen.renamed()
    else:
        seen.check(whole)


# ------------------------------------------------------------------------------------------------------------- table


def _from_table(source: Source, dataset: Dataset, any_header: bool) -> Input:
    table = read_table(source)
    headed = with_header(table)
    table = headed or table
    notes = table.notes
    columns = dataset.columns
    try:
        layout = layout_of(table, columns, dataset.format)
    except UserError:
        if not (any_header and columns):
            raise
        layout = layout_of(table)
        notes.append(f"{source.path}: has not the columns of the dataset; read as {layout.name}")
    if headed:
        layout = replace(layout, name="OLGA")
    rows = table.rows
    extra = _extra_columns(table, dataset)
    used = {i for chain in layout.chains for places in chain.positions.values() for i in places} | {i for _, i in extra}
    head = [(line, _lean(cells, used, table.header)) for line, cells in itertools.islice(rows, SAMPLE)]
    if not head:
        raise UserError(f"{source.path}: the table has a header and no rows")
    sample = [cells for _, cells in head]
    layout = with_residues(layout, table, sample)
    unique = [Path(file).name for file in dataset.files].count(Path(source.path).name) < 2
    identity = _identity(layout, sample)
    if identity is None:
        notes.append(
            f"{source.path}: no column receptor_id, cell_id or sequence_id with values of their own: each row is a "
            "receptor, its id the file's name and the line; name a column under columns if there is one"
        )
    source.notes, notes[:0] = notes, source.notes  # one list, which the readers below add to
    wide = len(layout.chains) > 1
    whole = identity in ("receptor_id", "cell_id") if wide else identity == "receptor_id" and len(dataset.chains) == 1
    names = _OwnNames(wide) if any_header and whole and not layout.split else None
    records = _table_records(table, itertools.chain(head, rows), layout, identity, extra, unique, names)
    first = [{ours: table.header[at[0]] for ours, at in chain.positions.items()} for chain in layout.chains]
    return Input(source.path, layout.name, records, layout.used, first, source.notes, source)


def _lean(cells: list[str], used: set[int], header: list[str]) -> list[str]:
    """A row without what is not used, which may be most of it: thousands of rows are held to tell what a file is."""
    return cells if cells == header else [cell if i in used else "" for i, cell in enumerate(cells)]


def _identity(layout: Layout, sample: list[list[str]]) -> str | None:
    """Which of our names holds the receptor's id, or None where each row is a receptor of its own.

    ``cell_id`` joins the chains of a cell, but bulk repertoires leave it empty; then a rearrangement is a receptor, if
    no id is there twice. In a row of several chains an id of one of them is not the receptor's.
    """
    if layout.rows_may_lack_id:
        return "receptor_id"
    for name in ("receptor_id", "cell_id", "sequence_id"):
        places = layout.chains[0].positions.get(name, ())
        if not places or any(chain.positions.get(name) != places for chain in layout.chains):
            continue
        values = [v for cells in sample if (v := _first_value(cells, places))]
        if values and (name != "sequence_id" or len(set(values)) == len(values)):
            return name
    return None


def _first_value(cells: list[str], places: tuple[int, ...]) -> str | None:
    return next((v.strip() for i in places if i < len(cells) and not is_missing(v := cells[i])), None)


def _extra_columns(table: Table, dataset: Dataset) -> list[tuple[str, int]]:
    """Columns of the table that hold labels and groups, where no other file has them."""
    at = {name: i for i, name in enumerate(table.header)}
    return [(name, at[name]) for name in _asked(dataset) if name in at]


def _asked(dataset: Dataset) -> list[str]:
    """The columns of labels and groups, where they stand in the sequence tables themselves."""
    if dataset.labels is None or dataset.labels.path is not None:
        return []
    return [name for name in (dataset.labels.column, dataset.labels.value, *dataset.groups.values()) if name]


def _table_records(
    table: Table,
    rows: Iterable[tuple[int, list[str]]],
    layout: Layout,
    identity: str | None,
    extra: list[tuple[str, int]],
    unique: bool,
    names: _OwnNames | None,
) -> Iterator[Record | Rejection]:
    path, width = table.path, len(table.header)
    name = Path(path).name if unique else path
    species = {"species": table.metadata["Species"]} if "Species" in table.metadata else {}
    needed = max(_last_needed(chain.positions) for chain in layout.chains)
    short, repeated = 0, 0
    line_of: dict[str, int] = {}
    for line, cells in rows:
        if cells == table.header:
            yield Rejection(path, line, f"{name}:{line}", "the header again", "\t".join(cells))
            continue
        if needed < len(cells) < width:
            short += 1
            cells = cells + [""] * (width - len(cells))
        if len(cells) != width:
            reason = f"row has {len(cells)} cells, the header {width}"
            yield Rejection(path, line, _any_id(cells, layout) or f"{name}:{line}", reason, "\t".join(cells))
            continue
        found = _chains_of_row(cells, layout, species)
        if not found:
            yield Rejection(path, line, _any_id(cells, layout) or f"{name}:{line}", "no sequence")
            continue
        words = ((column, cells[i].strip()) for column, i in extra)
        also = {column: word for column, word in words if not is_missing_word(word)} if extra else None
        if names and identity in found[0][1]:
            own = names.of(found[0][1], identity)
            for _, fields in found:
                fields[identity] = own
        for slot, fields in found:
            receptor_id = fields.get(identity) if identity else f"{name}:{line}"
            if receptor_id is None and layout.rows_may_lack_id:
                receptor_id = f"{name}:{line}"
            record_id = fields.get("sequence_id") or receptor_id or ""
            if receptor_id is None:
                yield Rejection(path, line, record_id, f"no {identity}")
                continue
            # an id that is there twice after all is none: the row is a receptor of its own
            if identity == "sequence_id" and line_of.setdefault(receptor_id, line) != line:
                repeated += 1
                receptor_id = f"{name}:{line}"
            yield Record(path, line, record_id, receptor_id + layout.chains[slot].suffix, fields, slot, also)
    if names and names.repeated:
        table.notes.append(f"{path}: {names.repeated:,} rows repeat an id; each is a receptor, named id_2, id_3, ...")
    if repeated:
        table.notes.append(f"{path}: {repeated:,} rows repeat a sequence_id; each is a receptor named by file and line")
    if short:
        table.notes.append(f"{path}: {short:,} rows are shorter than the header; what they lack is not needed")


class _OwnNames:
    """Names for rows that are receptors of their own: the id, and where it is there again id_2, id_3, ...

    ``wide``: a row holds all chains of a receptor; else one, and rows of other loci have the same id.
    """

    def __init__(self, wide: bool) -> None:
        self._wide, self._seen, self.repeated = wide, {}, 0

    def of(self, fields: dict[str, str], identity: str) -> str:
        given = fields[identity]
        locus = "" if self._wide else fields.get("locus") or (fields.get("v_call") or fields.get("j_call", ""))[:3]
        number = self._seen[locus, given] = self._seen.get((locus, given), 0) + 1
        if number == 1:
            return given
        self.repeated += 1
        while (locus, f"{given}_{number}") in self._seen:
            number += 1
        self._seen[locus, f"{given}_{number}"] = 1
        return f"{given}_{number}"


def _last_needed(positions: dict[str, tuple[int, ...]]) -> int:
    """A row that ends before this column is rejected: it has to have its genes, its ids and some residues."""
    first_residues = min((min(positions[name]) for name in RESIDUES if name in positions), default=0)
    return max([first_residues, *(i for name in _NEEDED for i in positions.get(name, ()))])


def _chains_of_row(cells: list[str], layout: Layout, species: dict[str, str]) -> list[tuple[int, dict[str, str]]]:
    """(slot, fields) of each chain of a row; in a row with a column for each chain those that are there."""
    found: list[tuple[int, dict[str, str]]] = []
    for slot, chain in enumerate(layout.chains):
        fields = {**species, **chain.fixed}
        for ours, places in chain.positions.items():
            for i in places:
                if not is_missing(value := cells[i]) or (ours in SHORT_CDRS and value.strip() == ASN_ALA_ASN):
                    fields[ours] = value.strip()
                    break
        if layout.adapt:
            fields = layout.adapt(fields)
        if layout.split:
            found += [(slot, part) for part in layout.split(fields)]
        elif len(layout.chains) == 1 or any(residues in fields for residues in RESIDUES):
            found.append((slot, fields))
    return found


def _any_id(cells: list[str], layout: Layout) -> str | None:
    places = layout.chains[0].positions
    ids = (_first_value(cells, places.get(name, ())) for name in ("receptor_id", "cell_id", "sequence_id"))
    return next(filter(None, ids), None)


# ------------------------------------------------------------------------------------------------------------ AnnData


def _from_h5ad(path: str, dataset: Dataset) -> Input:
    asked = _asked(dataset)

    def records() -> Iterator[Record | Rejection]:
        for row, fields in read_h5ad(path):
            cell = fields.get("cell_id", "")
            also = {name: fields[name] for name in asked if name in fields} or None
            if not any(name in fields for name in (*RESIDUES, "locus", "v_call", "j_call")):
                yield Rejection(shown(path), row, cell, "cell without a receptor")
            else:
                yield Record(shown(path), row, fields.get("sequence_id", cell), cell, fields, extra=also)

    return Input(shown(path), "AnnData", records())
