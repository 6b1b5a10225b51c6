"""The two tables that pass between the stages, their columns and the words for chains and regions.

``chains.parquet`` has one row a chain under AIRR Rearrangement names, ``receptors.parquet`` one row a receptor. Both
keep the order of the input. Region bounds count residues of ``sequence_aa`` from 0, half open, so that
``sequence_aa[start:end]`` is the region.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from airrformer.errors import UserError
from airrformer.paths import replacing

REGIONS: tuple[str, ...] = ("fwr1", "cdr1", "fwr2", "cdr2", "fwr3", "cdr3", "fwr4")
BOUND_COLUMNS: tuple[str, ...] = tuple(f"{region}_{end}" for region in REGIONS for end in ("start", "end"))
# Column -> type. What is not AIRR's: chain (as the config names it), numbered (whether there are regions), note, and
# the file and line that the record stands on.
CHAIN_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("receptor_id", "sequence_id", "locus", "chain", "sequence_aa")]
    + [(name, pa.string()) for name in ("v_call", "j_call", "c_call", "junction_aa", "cdr3_aa")]
    + [(name, pa.int64()) for name in ("umi_count", "duplicate_count", "consensus_count")]
    + [("productive", pa.bool_()), ("numbered", pa.bool_()), ("note", pa.string())]
    + [("file", pa.string()), ("line", pa.int64())]
    + [(name, pa.int32()) for name in BOUND_COLUMNS]
)
CHAIN_COLUMNS: tuple[str, ...] = tuple(CHAIN_SCHEMA.names)
_ROW_GROUP = 100_000
REJECTED_COLUMNS: tuple[str, ...] = ("file", "line", "id", "reason", "value")
GENE_COLUMNS: tuple[str, ...] = ("file", "column", "given", "kept", "reason", "records")

# The chain names of the config and the loci that each stands for.
CHAIN_LOCI: dict[str, tuple[str, ...]] = {
    "TRA": ("TRA",),
    "TRB": ("TRB",),
    "TRG": ("TRG",),
    "TRD": ("TRD",),
    "heavy": ("IGH",),
    "light": ("IGK", "IGL"),
}
CHAIN_OF_LOCUS: dict[str, str] = {locus: chain for chain, loci in CHAIN_LOCI.items() for locus in loci}


def write_table(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table as parquet or, by its ending, as TSV; whole or not at all."""
    with replacing(path) as temporary:
        if Path(path).suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def write_chains(table: pa.Table | pd.DataFrame, path: str | Path) -> None:
    """Write ``chains.parquet`` with fixed column types, also where a column is empty throughout."""
    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, schema=CHAIN_SCHEMA, preserve_index=False)
    # A batch at a time: columns that are dictionaries in memory are much larger as plain text.
    with replacing(path) as temporary, pq.ParquetWriter(temporary, CHAIN_SCHEMA) as writer:
        for batch in table.to_batches(max_chunksize=_ROW_GROUP):
            writer.write_table(pa.Table.from_batches([batch]).cast(CHAIN_SCHEMA))


def write_receptors(table: pd.DataFrame, path: str | Path) -> None:
    """Write ``receptors.parquet``; columns as ``read_receptors`` gives them."""
    names = pa.list_(pa.string())
    label = pa.float64() if pd.api.types.is_float_dtype(table["label"]) else names
    types = {"label": label, "not_label": names, "occurrences": pa.int64()}
    schema = pa.schema([(column, types.get(column, pa.string())) for column in table.columns])
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), temporary)


def _read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=None if columns is None else list(columns))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; run `airrformer parse`, or give the right --results") from None
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: not a whole Parquet file ({error}); run `airrformer parse` again") from None


def read_chains(path: str | Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """``chains.parquet`` with ``CHAIN_COLUMNS``, or some of them; bounds and counts are nullable integers."""
    return with_chain_types(_read_parquet(path, columns))


def with_chain_types(table: pd.DataFrame) -> pd.DataFrame:
    """A table of chains with nullable types for what may be missing."""
    counts = dict.fromkeys(("umi_count", "duplicate_count", "consensus_count"), "Int64")
    bounds = dict.fromkeys(BOUND_COLUMNS, "Int32")
    return table.astype({name: kind for name, kind in (counts | bounds).items() if name in table.columns})


def read_receptors(path: str | Path) -> pd.DataFrame:
    """``receptors.parquet``, one row a receptor in the order of the input.

    Columns: receptor_id; ``label``, the list of the classes that it is of, or a float (NaN: not known) for regression;
    ``not_label``, the list of the classes that it is said not to be of; ``occurrences``, how many rows of the input are
    this receptor or one of the same chains and genes; a string a group; chain_status.
    """
    table = _read_parquet(path)
    missing = [name for name in ("not_label", "occurrences") if name not in table.columns]
    if missing:
        raise UserError(
            f"{path}: has no column {missing[0]}: it was written by an earlier version; run `airrformer parse` again"
        )
    for column in ("label", "not_label"):
        if not pd.api.types.is_float_dtype(table[column]):
            table[column] = pd.Series([list(names) for names in table[column]], index=table.index, dtype=object)
    return table


def kind_of_reason(reason: str) -> str:
    """A reason without what is particular to a record.

    >>> kind_of_reason("illegal character '1' at position 4")
    'illegal character'
    >>> kind_of_reason("chain cannot be rebuilt: no J gene given")
    'chain cannot be rebuilt'
    """
    general = re.sub(r" '.*?'| at position \d+", "", reason.partition(": ")[0])
    return re.sub(r"^locus .* is not known$", "locus is not known", general)
