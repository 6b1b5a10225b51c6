"""A dataset of the config, or one new file, parsed from end to end."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.chains import Chain, build_chains
from airrformer.parse.labels import read_labels, receptor_table
from airrformer.parse.pairing import pair_chains
from airrformer.parse.records import Input, Rejection, read_records
from airrformer.paths import write_json
from airrformer.receptors.tables import (
    BOUND_COLUMNS,
    CHAIN_COLUMNS,
    REGIONS,
    REJECTED_COLUMNS,
    write_chains,
    write_receptors,
    write_table,
)
from airrformer.versions import STAGE_VERSIONS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parsed:
    """What the files hold. ``len(chains) + len(rejected)`` is the number of records in them.

    Attributes:
        chains: ``CHAIN_COLUMNS``, in the order of the input.
        receptor_ids: receptors that have their chains, in the order of first appearance.
        rejected: ``REJECTED_COLUMNS``.
        notes: sentences on what was changed or is worth knowing.
        record_ids: receptor ids of all records, kept or not, in the order of the input.
        regions_by: how the regions were found: genes, numbering, cdr3_only or none -> chains.
    """

    chains: pd.DataFrame
    receptor_ids: list[str]
    rejected: pd.DataFrame
    notes: list[str]
    record_ids: dict[str, None]
    molecules: list[str]
    regions_by: dict[str, int]


def parse_dataset(dataset: Dataset, output: str | Path, workers: int = 1, strict: bool = False) -> dict:
    """Parse a dataset and write chains.parquet, receptors.parquet, rejected.tsv and parse.json into ``output``.

    Args:
        workers: threads for the numbering; changes nothing but the time.
        strict: stop at the first record that would be left out or mended.

    Returns:
        The summary that is in parse.json.

    Raises:
        UserError: see ``parse_files`` and ``labels.read_labels``. Nothing is written then.
    """
    parsed = parse_files(dataset.files, dataset, workers, strict)
    labels = read_labels(dataset, parsed.record_ids) if dataset.labels else None
    receptors = receptor_table(parsed.receptor_ids, dataset, labels)
    notes = parsed.notes + (labels.notes if labels else [])
    if dataset.labels:
        without = int(
            (receptors["label"].isna() if dataset.task == "regression" else ~receptors["label"].astype(bool)).sum()
        )
        if without:
            what = " of the classes asked for" if dataset.labels.classes else ""
            notes.append(f"{without} of {len(receptors)} receptors have no label{what}; they are kept unlabelled")
    classes: Counter[str] = Counter()
    if dataset.task == "classification":
        order = (dataset.labels.classes if dataset.labels else None) or []
        classes.update(dict.fromkeys(order, 0))
        for names in receptors["label"]:
            classes.update(names)
    summary = {
        "version": STAGE_VERSIONS["parse"],
        "files": dataset.files,
        "molecule": " and ".join(parsed.molecules),
        "records": len(parsed.chains) + len(parsed.rejected),
        "chains": len(parsed.chains),
        "receptors": len(receptors),
        "rejected": {str(k): int(v) for k, v in parsed.rejected["reason"].value_counts().items()},
        "notes": notes,
        "labels": labels.summary if labels else None,
        "classes": dict(classes),
        "numbered": {"by": parsed.regions_by},
    }
    for note in notes:
        log.info("%s", note)
    output = Path(output)
    write_chains(parsed.chains, output / "chains.parquet")
    write_receptors(receptors, output / "receptors.parquet")
    write_table(parsed.rejected, output / "rejected.tsv")
    write_json(output / "parse.json", summary)
    log.info(
        "%d records: %d receptors with %d chains, %d rejected",
        summary["records"], len(receptors), len(parsed.chains), len(parsed.rejected),
    )  # fmt: skip
    return summary


def parse_input(path: str | Path, dataset: Dataset, workers: int | None = None, strict: bool = False) -> Parsed:
    """Parse new sequences as those of ``dataset`` (its receptor, chains, header template and columns), unlabelled.

    A FASTA file whose headers have not the template's form is read too: the first word is then the receptor's id. A
    table that lacks the dataset's own columns is read under AIRR names. ``workers``: default, all CPUs.
    """
    return parse_files([str(path)], dataset, workers or os.cpu_count() or 1, strict, any_header=True)


def parse_files(
    files: list[str], dataset: Dataset, workers: int = 1, strict: bool = False, any_header: bool = False
) -> Parsed:
    """Files to chains of receptors.

    Raises:
        UserError: a file cannot be read, ids repeat, the molecule is not what was declared, or no receptor is left.
    """
    found = Input()
    for file in files:
        one = read_records(file, dataset, any_header)
        found.records += one.records
        found.rejected += one.rejected
        found.notes += one.notes
    chains, rejected, notes = build_chains(found.records, dataset, workers, strict)
    chains, unpaired = pair_chains(chains, dataset)
    everything = found.rejected + rejected + unpaired
    total = len(found.records) + len(found.rejected)
    assert total == len(chains) + len(everything), "a record was lost"
    order = {file: i for i, file in enumerate(files)}
    everything.sort(key=lambda r: (order[r.file], r.line))
    if strict and everything:
        first = everything[0]
        raise UserError(
            f"{first.file}: line {first.line}: {first.id!r}: {first.reason} "
            f"({len(everything)} of {total} records would be left out; --strict)"
        )
    if not chains:
        raise UserError(_nothing_left(files, everything, total))
    return Parsed(
        chains=_chain_table(chains),
        receptor_ids=list(dict.fromkeys(chain.record.receptor_id for chain in chains)),
        rejected=pd.DataFrame([asdict(r) for r in everything], columns=list(REJECTED_COLUMNS)),
        notes=found.notes + notes,
        record_ids=dict.fromkeys(record.receptor_id for record in found.records),
        molecules=sorted({record.molecule for record in found.records}),
        regions_by={
            how: sum(chain.regions_by == how for chain in chains) for how in ("genes", "numbering", "cdr3_only", "none")
        },
    )


def _nothing_left(files: list[str], rejected: list[Rejection], total: int) -> str:
    counts = Counter(rejection.reason for rejection in rejected).most_common(3)
    reasons = "; ".join(f"{reason} ({count})" for reason, count in counts)
    first = f"the first is {rejected[0].id!r} on line {rejected[0].line}"
    return f"{', '.join(files)}: no receptor is left of {total} records: {reasons}; {first}"


def _chain_table(chains: list[Chain]) -> pd.DataFrame:
    columns: dict[str, list] = {name: [] for name in CHAIN_COLUMNS}
    for chain in chains:
        bounds = chain.bounds or {}
        values = {
            "receptor_id": chain.record.receptor_id,
            "sequence_id": chain.record.fields.get("sequence_id", chain.record.id),
            "locus": chain.locus,
            "chain": chain.chain,
            "sequence_aa": chain.sequence_aa,
            "v_call": chain.v_call,
            "j_call": chain.j_call,
            "junction_aa": chain.junction_aa,
            "productive": chain.productive,
            "numbered": chain.bounds is not None,
            "note": "; ".join(chain.notes) or None,
        }
        for region in REGIONS:
            start, end = bounds.get(region, (None, None))
            values |= {f"{region}_start": start, f"{region}_end": end}
        for name in CHAIN_COLUMNS:
            columns[name].append(values[name])
    types = dict.fromkeys(BOUND_COLUMNS, "Int32") | {"productive": "boolean", "numbered": bool}
    return pd.DataFrame({name: pd.Series(values, dtype=types.get(name, object)) for name, values in columns.items()})
