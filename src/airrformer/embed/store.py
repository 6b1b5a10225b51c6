"""Features on disk: one parquet table, one row a receptor, ids beside the numbers. No torch here.

Dense features have one float32 column a number. Counts are sparse: each row keeps the indices and values of its
non-zero columns, and the schema's metadata keeps their names and number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from airrformer.errors import UserError
from airrformer.paths import replacing

_METADATA_KEY = b"airrformer"


@dataclass(frozen=True)
class Features:
    """``matrix`` (n, D), float32, dense array or ``csr_array``; row i belongs to ``receptor_ids[i]``."""

    receptor_ids: list[str]
    matrix: np.ndarray | sparse.csr_array
    names: list[str]

    def __post_init__(self) -> None:
        if self.matrix.shape != (len(self.receptor_ids), len(self.names)):
            raise ValueError(f"{self.matrix.shape} features, {len(self.receptor_ids)} ids, {len(self.names)} names")


def write_features(features: Features, path: str | Path) -> None:
    """Write as parquet, whole or not at all."""
    matrix = features.matrix
    columns = {"receptor_id": pa.array(features.receptor_ids, pa.string())}
    metadata: dict = {"sparse": sparse.issparse(matrix)}
    if sparse.issparse(matrix):
        matrix = matrix.tocsr().sorted_indices()
        offsets = pa.array(matrix.indptr.astype(np.int32))
        columns["indices"] = pa.ListArray.from_arrays(offsets, pa.array(matrix.indices.astype(np.int32)))
        columns["values"] = pa.ListArray.from_arrays(offsets, pa.array(matrix.data.astype(np.float32)))
        metadata |= {"n_features": matrix.shape[1], "names": features.names}
    else:
        columns |= {name: pa.array(matrix[:, i]) for i, name in enumerate(features.names)}
    table = pa.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(metadata)})
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def read_features(path: str | Path) -> Features:
    """Read what ``write_features`` wrote. Raises ``UserError`` for another parquet file."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: no features table: {error}") from None
    metadata = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b"null"))
    if metadata is None:
        raise UserError(f"{path}: no features table of airrformer; make it with `airrformer embed`")
    ids = table.column("receptor_id").to_pylist()
    if metadata["sparse"]:
        indices, values = (table.column(name).combine_chunks() for name in ("indices", "values"))
        matrix = sparse.csr_array(
            (values.values.to_numpy(), indices.values.to_numpy(), indices.offsets.to_numpy()),
            shape=(len(ids), metadata["n_features"]),
        )
        return Features(ids, matrix, metadata["names"])
    names = [name for name in table.column_names if name != "receptor_id"]
    matrix = np.empty((len(ids), len(names)), dtype=np.float32)
    for i, name in enumerate(names):
        matrix[:, i] = table.column(name).to_numpy()
    return Features(ids, matrix, names)
