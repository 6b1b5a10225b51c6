"""Where every stage reads and writes: the one place that knows the layout of ``results/``.

Stages, the command line and the workflow's rules all take their paths from here, so that the contract between them
is one file.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airrformer.errors import UserError

# What is wrong with the place that was named, or with the disk: the user can mend it, and we cannot.
_PLACES = {
    errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC,
    errno.EDQUOT, errno.ENAMETOOLONG,
}  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The layout below one results folder.

    >>> Results("results").features("sars2_tcr", "scratch", "mean").as_posix()
    'results/sars2_tcr/scratch/mean/features.parquet'
    """

    root: str | Path = "results"

    def dataset(self, dataset: str) -> Path:
        return Path(self.root) / dataset

    def chains(self, dataset: str) -> Path:
        return self.dataset(dataset) / "chains.parquet"

    def receptors(self, dataset: str) -> Path:
        return self.dataset(dataset) / "receptors.parquet"

    def rejected(self, dataset: str) -> Path:
        return self.dataset(dataset) / "rejected.tsv"

    def genes(self, dataset: str) -> Path:
        return self.dataset(dataset) / "genes.tsv"

    def parse_summary(self, dataset: str) -> Path:
        return self.dataset(dataset) / "parse.json"

    def encoder(self, encoder: str) -> Path:
        return Path(self.root) / "encoders" / encoder

    def encoder_status(self, encoder: str) -> Path:
        return self.encoder(encoder) / "status.json"

    def masked(self, encoder: str) -> Path:
        return self.encoder(encoder) / "masked.tsv"

    def generated(self, encoder: str) -> Path:
        """Its numbers stand beside it, in generated.json."""
        return self.encoder(encoder) / "generated.fasta"

    def embedding(self, dataset: str, encoder: str) -> Path:
        return self.dataset(dataset) / encoder

    def residues(self, dataset: str, encoder: str) -> Path:
        return self.embedding(dataset, encoder) / "residues"

    def features(self, dataset: str, encoder: str, pooling: str) -> Path:
        return self.embedding(dataset, encoder) / pooling / "features.parquet"

    # With `corpus: train_folds` there is an encoder for each fold, which never saw the receptors tested in it.

    def fold_encoders(self, encoder: str) -> Path:
        return self.encoder(encoder) / "folds"

    def folds(self, dataset: str, encoder: str) -> Path:
        return self.embedding(dataset, encoder) / "folds"

    def fold_features(self, dataset: str, encoder: str, fold: str, pooling: str) -> Path:
        return self.folds(dataset, encoder) / fold / f"{pooling}.parquet"

    def map(self, dataset: str, encoder: str, pooling: str) -> Path:
        return self.embedding(dataset, encoder) / pooling / "map.tsv"

    def classifier(self, dataset: str, encoder: str, pooling: str, classifier: str) -> Path:
        return self.embedding(dataset, encoder) / pooling / classifier

    def baselines(self, dataset: str) -> Path:
        """How the shortcuts and the plain models do on a dataset, and what leaks in it."""
        return self.dataset(dataset) / "baselines"

    def comparisons(self, dataset: str) -> Path:
        return self.dataset(dataset) / "comparisons.tsv"

    @property
    def pretraining(self) -> Path:
        return Path(self.root) / "pretraining.tsv"

    @property
    def leaderboard(self) -> Path:
        return Path(self.root) / "leaderboard.tsv"

    @property
    def report(self) -> Path:
        return Path(self.root) / "report.html"


def fold_name(split: str, seed: int, fold: int) -> str:
    """The folder of one fold's encoder and of its features.

    >>> fold_name("group", 1, 0)
    'group_1_0'
    """
    return f"{split}_{seed}_{fold}"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success it becomes ``path`` in one step, on failure it is removed.

    A reader never sees half a file, and a failed job leaves nothing under the final name. Raises ``UserError`` when
    nothing can be written there.
    """
    path = Path(path)
    if not path.name:
        raise UserError(f"{path}: this is a folder; name a file to write")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _PLACES:
            raise
        raise UserError(
            f"{path}: cannot be written: {os.strerror(error.errno)}; name another output or mend the folder"
        ) from error


def check_output(output: str | Path, input: str | Path) -> Path:
    """``output`` as a path. Raises ``UserError`` when it is a folder, or the input, which would be written over."""
    output = Path(output)
    if output.is_dir():
        raise UserError(f"{output}: this is a folder; name a file to write")
    if output.resolve() == Path(input).resolve():
        raise UserError(f"{output}: the output would be written over the input; name another file")
    return output


def read_status(folder: str | Path) -> dict:
    """``status.json`` of an encoder's folder. Raises ``UserError`` for a file that is none."""
    path = Path(folder) / "status.json"
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); run the encoder's stage again") from None
    if not isinstance(status, dict) or status.get("status") not in ("ready", "skipped"):
        raise UserError(f"{path}: says neither ready nor skipped; run the encoder's stage again")
    return status


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: object) -> None:
    """Write ``value`` as indented JSON with a final newline, whole or not at all. NaN raises: JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
