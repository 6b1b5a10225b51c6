"""What all models of the config share: names, and how a mistake is put into words."""

from __future__ import annotations

import difflib
import re
import typing
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from airrformer.receptors.tables import CHAIN_LOCI, REGIONS

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
RESERVED_NAMES = {".", "..", "encoders", "logs", "benchmarks", "folds", "residues", "baselines"} | {
    # files of ours beside which these folders stand
    "chains.parquet", "receptors.parquet", "rejected.tsv", "genes.tsv", "parse.json", "features.parquet", "map.tsv",
    "leaderboard.tsv", "comparisons.tsv", "pretraining.tsv", "report.html",
}  # fmt: skip

ChainName = Literal["TRA", "TRB", "TRG", "TRD", "heavy", "light"]
RegionName = Literal["fwr1", "cdr1", "fwr2", "cdr2", "fwr3", "cdr3", "fwr4"]
assert set(typing.get_args(ChainName)) == set(CHAIN_LOCI) and typing.get_args(RegionName) == REGIONS


def _check_name(name: str) -> str:
    # Names become folders, so a slash, a blank or ".." must never reach a path.
    if name in RESERVED_NAMES - {".", ".."}:
        raise ValueError(f"{name!r} is the name of a file or folder of airrformer's own; take another")
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise ValueError(f"{name!r} becomes a folder's name: use letters, digits, '_', '.' and '-'")
    return name


def _check_once(values: list) -> list:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} stands there twice; name it once")
    return values


Name = Annotated[str, AfterValidator(_check_name)]
Once = AfterValidator(_check_once)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def near(name: str, candidates: typing.Iterable[str]) -> str:
    candidates = list(candidates)
    near = difflib.get_close_matches(name, candidates, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is {', '.join(map(repr, candidates))}" if candidates else ""
