"""The two tables that pass between the stages, their columns and the words for chains and regions.

``chains.parquet`` has one row a chain under AIRR Rearrangement names, ``receptors.parquet`` one row a receptor. Both
keep the order of the input. Region bounds count residues of ``sequence_aa`` from 0, half open, so that
``sequence_aa[start:end]`` is the region.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from airrformer.errors import UserError
from airrformer.paths import replacing

REGIONS: tuple[str, ...] = ("fwr1", "cdr1", "fwr2", "cdr2", "fwr3", "cdr3", "fwr4")
BOUND_COLUMNS: tuple[str, ...] = tuple(f"{region}_{end}" for region in REGIONS for end in ("start", "end"))
CHAIN_COLUMNS: tuple[str, ...] = (
    "receptor_id",
    "sequence_id",
    "locus",
    "chain",
    "sequence_aa",
    "v_call",
    "j_call",
    "junction_aa",
    "productive",
    "numbered",
    "note",
    *BOUND_COLUMNS,
)
REJECTED_COLUMNS: tuple[str, ...] = ("file", "line", "id", "reason", "value")

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


def write_chains(table: pd.DataFrame, path: str | Path) -> None:
    """Write ``chains.parquet`` with fixed column types, also where a column is empty throughout."""
    types = dict.fromkeys(CHAIN_COLUMNS, pa.string()) | {"productive": pa.bool_(), "numbered": pa.bool_()}
    types |= dict.fromkeys(BOUND_COLUMNS, pa.int32())
    _write_parquet(table, pa.schema(list(types.items())), path)


def write_receptors(table: pd.DataFrame, path: str | Path) -> None:
    """Write ``receptors.parquet``: receptor_id, ``label`` (list of class names, or float), a string column a group."""
    label = pa.float64() if pd.api.types.is_float_dtype(table["label"]) else pa.list_(pa.string())
    types = dict.fromkeys(table.columns, pa.string()) | {"label": label}
    _write_parquet(table, pa.schema(list(types.items())), path)


def _write_parquet(table: pd.DataFrame, schema: pa.Schema, path: str | Path) -> None:
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), temporary)


def _read_parquet(path: str | Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; run `airrformer parse`, or give the right --results") from None
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: not a whole Parquet file ({error}); run `airrformer parse` again") from None


def read_chains(path: str | Path) -> pd.DataFrame:
    """``chains.parquet`` with ``CHAIN_COLUMNS``; bounds are nullable integers."""
    table = _read_parquet(path)
    return table.astype({column: "Int32" for column in BOUND_COLUMNS})


def read_receptors(path: str | Path) -> pd.DataFrame:
    """``receptors.parquet``: receptor_id, ``label`` (a list of class names, or a float for regression), groups."""
    table = _read_parquet(path)
    if not pd.api.types.is_float_dtype(table["label"]):
        table["label"] = pd.Series([list(names) for names in table["label"]], index=table.index, dtype=object)
    return table
