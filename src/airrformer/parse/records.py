"""From files of any format to records under our names, before anything is known about chains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.fasta import FastaRecord, HeaderTemplate, check_unique, read_fasta
from airrformer.parse.files import Text, is_missing, kind_of, read_text
from airrformer.parse.nucleotides import MINIMUM_LETTERS, letters_of, looks_like_nucleotides
from airrformer.parse.table import Table, read_table

Molecule = Literal["protein", "nucleotide"]


@dataclass(frozen=True)
class Record:
    """One FASTA record or one row of a table. ``fields`` holds no missing values; ``sequence`` is as in the file."""

    file: str
    line: int
    id: str
    receptor_id: str
    fields: dict[str, str]
    sequence: str | None
    molecule: Molecule
    rebuild: bool = False  # the table has V and J genes: a chain without residues can be rebuilt


@dataclass(frozen=True)
class Rejection:
    """A record that is left out, and why: a row of rejected.tsv."""

    file: str
    line: int
    id: str
    reason: str
    value: str = ""


@dataclass
class Input:
    """What the files hold: ``len(records) + len(rejected)`` is the number of records in them."""

    records: list[Record] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_records(path: str, dataset: Dataset, any_header: bool = False) -> Input:
    """Read one FASTA, CSV or TSV file.

    Args:
        any_header: for new files of a trained model: where no header has the form that the dataset gives, or a table
            has not its columns, the first word and AIRR names are taken instead; otherwise that is a mistake.

    Raises:
        UserError: nothing of the file can be read as what it should be.
    """
    source = read_text(path)
    reader = _from_fasta if kind_of(source) == "fasta" else _from_table
    found = reader(source, dataset, any_header)
    found.notes[:0] = source.notes
    return found


# ------------------------------------------------------------------------------------------------------------- FASTA


def _from_fasta(source: Text, dataset: Dataset, any_header: bool) -> Input:
    found = Input()
    fasta = read_fasta(source)
    template = HeaderTemplate(dataset.id) if dataset.id else None
    if template and not any(template.fields_of(record.header) for record in fasta):
        if not any_header:
            raise UserError(
                f"{source.path}: line {fasta[0].line}: no header has the form {template.template!r}; "
                f"the first is {fasta[0].header[:60]!r}"
            )
        found.notes.append(
            f"{source.path}: no header has the form {template.template!r}; the first word is taken as the receptor's id"
        )
        template = None
    check_unique(source, fasta, whole_header=template is not None)
    molecule = _molecule_of(
        source.path, [(r.line, r.first_word, r.sequence) for r in fasta], dataset.molecule, found.notes
    )
    for record in fasta:
        fields = template.fields_of(record.header) if template else {"receptor_id": record.first_word}
        if not record.header:
            found.rejected.append(Rejection(source.path, record.line, "", "header without an id"))
        elif fields is None:
            reason = f"header has not the form {template.template}"
            found.rejected.append(Rejection(source.path, record.line, record.first_word, reason, record.header))
        else:
            found.records.append(_fasta_record(source.path, record, fields, molecule))
    return found


def _fasta_record(path: str, record: FastaRecord, fields: dict[str, str], molecule: Molecule) -> Record:
    fields = {name: value for name, value in fields.items() if not is_missing(value)}
    receptor_id = fields.get("receptor_id") or fields.get("cell_id") or record.first_word
    return Record(path, record.line, record.first_word, receptor_id, fields, record.sequence, molecule)


# ------------------------------------------------------------------------------------------------------------- table


def _from_table(source: Text, dataset: Dataset, any_header: bool) -> Input:
    table, columns = _read_under_our_names(source, dataset, any_header)
    rows = [row.values for row in table.rows if row.values is not None]
    # cell_id joins the chains of a cell, but bulk repertoires leave it empty; then a rearrangement is a receptor.
    names = [name for name in ("receptor_id", "cell_id", "sequence_id") if any(name in row for row in rows)]
    if not table.rows:
        raise UserError(f"{source.path}: the table has a header and no rows")
    column, molecule, notes = _sequence_column(table, rows, dataset)
    if columns != (dataset.columns or {}):
        notes.append(f"{source.path}: has not the columns of the dataset; read under AIRR names")
    if not names:
        notes.append(
            f"{source.path}: no column receptor_id, cell_id or sequence_id with values: each row is a receptor, its id "
            "the file's name and the line; name a column under columns if there is one"
        )
    rebuild = {"v_call", "j_call"} <= set(table.header)
    found = Input(notes=notes)
    for row in table.rows:
        if row.values is None:
            reason = f"row has {len(row.cells)} cells, the header {len(table.header) - len(columns)}"
            found.rejected.append(Rejection(source.path, row.line, row.cells[0], reason, "\t".join(row.cells)[:200]))
            continue
        receptor_id = row.values.get(names[0]) if names else f"{Path(source.path).name}:{row.line}"
        identity = row.values.get("sequence_id") or receptor_id or ""
        if receptor_id is None:
            found.rejected.append(Rejection(source.path, row.line, identity, f"no {names[0]}"))
            continue
        sequence, kind = row.values.get(column), molecule
        if sequence is None and column == "sequence_aa" and "sequence" in row.values:
            sequence, kind = row.values["sequence"], "nucleotide"
        found.records.append(Record(source.path, row.line, identity, receptor_id, row.values, sequence, kind, rebuild))
    return found


def _read_under_our_names(source: Text, dataset: Dataset, any_header: bool) -> tuple[Table, dict[str, str]]:
    """The table and the column map that it was read with: a new file may have AIRR names instead of the dataset's."""
    columns = dataset.columns or {}
    try:
        return read_table(source, columns), columns
    except UserError:
        if not (any_header and columns):
            raise
        return read_table(source), {}


def _sequence_column(table: Table, rows: list[dict[str, str]], dataset: Dataset) -> tuple[str, Molecule, list[str]]:
    """The column that holds the chains and what it holds; sequence_aa before sequence, as AIRR means them."""
    notes: list[str] = []
    for column in ("sequence_aa", "sequence"):
        cells = [
            (row.line, row.values.get("sequence_id", ""), row.values[column])
            for row in table.rows
            if row.values and column in row.values
        ]
        if cells:
            return column, _molecule_of(table.path, cells, dataset.molecule, notes), notes
    if not any("junction_aa" in row or "cdr3_aa" in row for row in rows):
        raise UserError(
            f"{table.path}: no column sequence_aa, sequence, junction_aa or cdr3_aa with values; "
            f"name it under columns; there is {', '.join(filter(None, table.header))}"
        )
    return "sequence_aa", "protein", notes


# ---------------------------------------------------------------------------------------------------------- molecule


def _molecule_of(path: str, sequences: list[tuple[int, str, str]], declared: str, notes: list[str]) -> Molecule:
    """What the file holds, by the letters of all its sequences, or as declared if the letters allow it.

    ``sequences``: (line, id, letters).
    """
    nucleotides, letters = looks_like_nucleotides(text for _, _, text in sequences)
    if declared == "protein":
        if nucleotides and letters >= MINIMUM_LETTERS:
            raise UserError(
                f"{path}: residues were declared (molecule: protein), but all {letters} letters are nucleotides; "
                "say molecule: nucleotide or auto"
            )
        return "protein"
    if declared == "nucleotide":
        counts = Counter(looks_like_nucleotides([text])[0] for _, _, text in sequences if letters_of(text))
        if counts[False] > counts[True]:
            line, name, text = next(s for s in sequences if letters_of(s[2]) and not looks_like_nucleotides([s[2]])[0])
            raise UserError(
                f"{path}: line {line}: nucleotides were declared (molecule: nucleotide), but {name!r} holds "
                f"{letters_of(text)[:20]!r}; say molecule: protein or auto"
            )
        return "nucleotide"
    if nucleotides and letters < MINIMUM_LETTERS:
        notes.append(
            f"{path}: all letters could be nucleotides, but {letters} are too few to tell: kept as residues; "
            "say molecule: nucleotide if they are not"
        )
        return "protein"
    return "nucleotide" if nucleotides else "protein"
