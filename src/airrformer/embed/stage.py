"""The embed stage: a dataset and an encoder of the config -> ``features.parquet`` of every pooling, in one job.

And by hand: one file, one encoder, one pooling -> one table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from airrformer.config import TRAIN_FOLDS, Config
from airrformer.embed.encoders import ResidueEncoder, load
from airrformer.embed.features import dataset_features
from airrformer.embed.store import Features, write_features
from airrformer.errors import UserError
from airrformer.parse.sequences import Sequences, read_sequences
from airrformer.paths import Results, check_output, replacing
from airrformer.receptors.tables import read_chains, read_receptors, write_table

logger = logging.getLogger(__name__)


def embed_dataset(
    config: Config, dataset: str, encoder: str, results: Results, device: str = "auto", precision: str = "auto"
) -> None:
    """Write the features of every pooling in ``config`` that fits, and the residues where they are to be kept.

    With ``corpus: train_folds`` also those of each fold's encoder, for the classifiers that are tested in that fold.
    """
    settings = config.encoders[encoder]
    poolings = {
        name: pooling
        for name, pooling in config.poolings.items()
        if config.fits(dataset, encoder, name) and pooling.kind != "residues"
    }
    chains, receptors = read_chains(results.chains(dataset)), read_receptors(results.receptors(dataset))
    ids = receptors["receptor_id"].tolist()

    def features(loaded: ResidueEncoder | None) -> dict[str, Features]:
        return dataset_features(chains, ids, config.datasets[dataset], settings, poolings, loaded)

    loaded = load_encoder(settings.kind, results, encoder, device, precision)
    for name, made in features(loaded).items():
        path = results.features(dataset, encoder, name)
        write_features(made, path)
        logger.info("%s: %d receptors x %d features; open with pandas.read_parquet", path, *made.matrix.shape)
    if config.keep_residues and loaded is not None:
        _write_residues(loaded, chains["sequence_aa"].tolist(), settings, results.residues(dataset, encoder))
    if getattr(settings, "corpus", None) == TRAIN_FOLDS:
        for folder in sorted(model.parent for model in results.fold_encoders(encoder).glob("*/model.safetensors")):
            for name, made in features(load(folder, None, device, precision)).items():
                write_features(made, results.fold_features(dataset, encoder, folder.name, name))
            logger.info("fold %s: features from its own encoder", folder.name)


def embed_file(
    input: str | Path,
    encoder: str,
    output: str | Path,
    weights: str | Path | None = None,
    pooling: str = "mean",
    layer: int = -1,
    device: str = "auto",
    precision: str = "auto",
) -> None:
    """Vectors of the sequences in ``input``: a row a record, in its order, with ``sequence_id`` beside the numbers.

    ``output`` ends in .parquet or .csv (columns sequence_id, <encoder>_0, ...) or .npz (arrays ids, X). What could
    not be read is listed in ``FILE.rejected.tsv`` beside it.
    """
    output = check_output(output, input)
    rejected = check_output(output.with_suffix(".rejected.tsv"), input)
    if output.suffix not in _FORMATS:
        raise UserError(f"{output}: the ending says the format: {', '.join(_FORMATS)}")
    found = read_sequences(input)
    for note in found.notes:
        logger.info("%s", note)
    loaded = load(encoder, weights, device, precision)
    loaded.check_lengths(found.ids, found.sequences)
    write, how = _FORMATS[output.suffix]
    with replacing(output) as temporary:
        write(_blocks(loaded, found, pooling, layer), temporary)
    logger.info("%s: vectors of %d sequences; open with %s", output, len(found.ids), how)
    write_table(found.rejected, rejected)
    if left_out := len(found.rejected):
        logger.warning("%d of %d records were left out; see %s", left_out, left_out + len(found.ids), rejected)


# Sequences that are embedded and written together, and their numbers: memory stays flat, and batches are full.
_BLOCK, _NUMBERS = 50_000, 2**25


def _blocks(encoder: ResidueEncoder, found: Sequences, pooling: str, layer: int) -> Iterator[pd.DataFrame]:
    """Tables of the ids and vectors of some sequences after the other, in the order of the file."""
    rows = max(1, min(_BLOCK, _NUMBERS // encoder.width))
    for start in range(0, len(found.ids), rows):
        ids, sequences = (part[start : start + rows] for part in (found.ids, found.sequences))
        vectors = encoder.embed(sequences, pooling, layer, names=ids)
        table = pd.DataFrame(vectors, columns=[f"{encoder.name}_{i}" for i in range(vectors.shape[1])])
        table.insert(0, "sequence_id", ids)
        yield table


def _write_csv(blocks: Iterable[pd.DataFrame], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for i, table in enumerate(blocks):
            table.to_csv(file, index=False, lineterminator="\n", header=i == 0)


def _write_parquet(blocks: Iterable[pd.DataFrame], path: Path) -> None:
    tables = (pa.Table.from_pandas(table, preserve_index=False) for table in blocks)
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _write_npz(blocks: Iterable[pd.DataFrame], path: Path) -> None:
    table = pd.concat(blocks, ignore_index=True)
    ids = np.array(table.pop("sequence_id").tolist())
    with path.open("wb") as file:
        np.savez(file, ids=ids, X=table.to_numpy(dtype=np.float32))


# Ending -> how it is written, and how it is opened again.
_FORMATS = {
    ".parquet": (_write_parquet, "pandas.read_parquet"),
    ".csv": (_write_csv, "pandas.read_csv"),
    ".npz": (_write_npz, "numpy.load"),
}


def load_encoder(kind: str, results: Results, encoder: str, device: str, precision: str) -> ResidueEncoder | None:
    """What turns residues into vectors for an encoder of the config; None for kinds that count."""
    if kind == "kmer":
        return None
    where = results.encoder(encoder)
    if kind == "blosum62" or (kind == "mini" and not where.exists()):  # comes with airrformer: nothing need be fetched
        where = {"blosum62": "blosum62", "mini": "airrformer-mini"}[kind]
    return load(where, None, device, precision)


def _write_residues(encoder: ResidueEncoder, sequences: list[str], settings, folder) -> None:
    """One shard {values (sum L, D), offsets (n + 1)} in the order of chains.parquet, as a file that can be mapped."""
    residues = encoder.embed_residues(sequences, getattr(settings, "layer", -1))
    offsets = np.cumsum([0, *map(len, residues)], dtype=np.int64)
    with replacing(folder / "00000.safetensors") as temporary:
        save_file({"values": np.concatenate(residues), "offsets": offsets}, temporary)
