"""The sequences of one file and nothing more: for embedding by hand, where no receptor is asked for."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.nucleotides import translate
from airrformer.parse.records import Record, Rejection, read_records
from airrformer.parse.residues import Rejected, clean_residues
from airrformer.parse.survey import Facts, survey
from airrformer.receptors.tables import REJECTED_COLUMNS


@dataclass(frozen=True)
class Sequences:
    """``sequences[i]`` (residues) belongs to ``ids[i]``, in the order of the file; ``rejected`` is the rest."""

    ids: list[str]
    sequences: list[str]
    rejected: pd.DataFrame
    notes: list[str]


def read_sequences(path: str | Path) -> Sequences:
    """Read a FASTA file or a table, plain or compressed; nucleotides are translated, residues cleaned as ever.

    Raises ``UserError`` when the file cannot be read or nothing of it is left.
    """
    # Only how the file is read matters here; which receptor and chains it holds is not asked.
    dataset = Dataset(sequences=str(path), receptor="TCR", chains=["TRB"])
    opened = read_records(str(path), dataset)
    head, facts = survey(opened, dataset)
    ids, sequences, rejected = [], [], []
    for record in itertools.chain(head, opened.records):
        if isinstance(record, Rejection):
            rejected.append(record)
            continue
        try:
            sequences.append(residues_of(record, facts))
            ids.append(record.id)
        except Rejected as reason:
            rejected.append(Rejection(record.file, record.line, record.id, reason.reason, reason.value))
    if not ids:
        first = rejected[0]
        raise UserError(
            f"{path}: no sequence is left of {len(rejected)}; line {first.line}: {first.id}: {first.reason}"
        )
    rejected.sort(key=lambda r: r.line)
    table = pd.DataFrame([asdict(r) for r in rejected], columns=list(REJECTED_COLUMNS))
    return Sequences(ids, sequences, table, opened.notes + facts.notes)


def residues_of(record: Record, facts: Facts) -> str:
    """The residues of a record, or else its junction or CDR3 as given. Raises ``Rejected``."""
    fields = record.fields
    for name in ("sequence_aa", "sequence", "aligned", "junction_aa", "cdr3_aa", "junction"):
        if name in fields:
            nucleotides = name in ("aligned", "junction") or facts.molecules.get(name) == "nucleotide"
            return translate(fields[name]).sequence if nucleotides else clean_residues(fields[name]).sequence
    raise Rejected("no sequence")
