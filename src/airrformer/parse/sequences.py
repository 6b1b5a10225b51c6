"""The sequences of one file and nothing more: for embedding by hand, where no receptor is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.nucleotides import translate
from airrformer.parse.records import Rejection, read_records
from airrformer.parse.residues import Rejected, clean_residues
from airrformer.receptors.tables import REJECTED_COLUMNS


@dataclass(frozen=True)
class Sequences:
    """``sequences[i]`` (residues) belongs to ``ids[i]``, in the order of the file; ``rejected`` is the rest."""

    ids: list[str]
    sequences: list[str]
    rejected: pd.DataFrame
    notes: list[str]


def read_sequences(path: str | Path) -> Sequences:
    """Read a FASTA file or a table, plain or gzipped; nucleotides are translated, residues cleaned as ever.

    Raises ``UserError`` when the file cannot be read or nothing of it is left.
    """
    # Only how the file is read matters here; which receptor and chains it holds is not asked.
    found = read_records(str(path), Dataset(sequences=str(path), receptor="TCR", chains=["TRB"]))
    ids, sequences, rejected = [], [], list(found.rejected)
    for record in found.records:
        text = record.sequence or record.fields.get("junction_aa") or record.fields.get("cdr3_aa")
        try:
            if record.molecule == "nucleotide" and record.sequence:
                sequences.append(translate(text).sequence)
            else:
                sequences.append(clean_residues(text).sequence)
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
    return Sequences(ids, sequences, table, found.notes)
