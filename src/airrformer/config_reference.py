"""What ``config.yaml`` may hold, written out from the pydantic models: tables for config/README.md, and a JSON schema.

``python -m airrformer.config_reference [FOLDER]`` renews both in FOLDER (default: config). A test holds them current.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from airrformer.config import classifiers, datasets, encoders, evaluation, whole
from airrformer.core.config import ESM2_NAMES
from airrformer.paths import write_text

BEGIN, END = "<!-- keys: begin -->", "<!-- keys: end -->"

SECTIONS: list[tuple[str, list[type[BaseModel]]]] = [
    ("config.yaml", [whole.Config]),
    ("compute", [whole.Compute]),
    ("datasets: NAME", [datasets.Dataset]),
    ("datasets: NAME: labels", [datasets.Labels]),
    ("datasets: NAME: negatives", [datasets.Negatives]),
    ("encoders: NAME", list(typing.get_args(typing.get_args(encoders.Encoder)[0]))),
    ("encoders: NAME: model (kind: pretrain)", [encoders.ModelSettings]),
    ("encoders: NAME: train (kind: pretrain)", [encoders.TrainSettings]),
    ("poolings: NAME", list(typing.get_args(typing.get_args(encoders.Pooling)[0]))),
    ("classifiers: NAME", list(typing.get_args(typing.get_args(classifiers.Classifier)[0]))),
    (
        "classifiers: NAME: grid",
        [
            classifiers.LogisticGrid,
            classifiers.NeighborsGrid,
            classifiers.DensityGrid,
            classifiers.DensityStackGrid,
            classifiers.DistanceSvmGrid,
            classifiers.LinearSvmGrid,
            classifiers.RbfSvmGrid,
            classifiers.ForestGrid,
            classifiers.BoostingGrid,
            classifiers.MlpGrid,
            classifiers.CnnGrid,
            classifiers.RidgeGrid,
            classifiers.MultiKernelGrid,
        ],
    ),
    ("classifiers: NAME: distance", [classifiers.SequenceDistance]),
    ("classifiers: NAME: kernels: each entry", [classifiers.KernelPart]),
    ("classifiers: NAME: members: each entry", [classifiers.Member]),
    ("evaluation", [evaluation.Evaluation]),
    ("evaluation: cluster", [evaluation.ClusterSettings]),
    ("report", [whole.Report]),
    ("report: masked_example", [whole.MaskedExample]),
    ("targets: each entry", [whole.TargetRow]),
]


def key_tables() -> str:
    """Every key of every section: a Markdown table for each model."""
    blocks = []
    for title, models in SECTIONS:
        blocks.append(f"### {title}")
        for model in models:
            blocks += _paragraphs(model)
            rows = _rows(model)
            if rows:
                blocks.append("\n".join([_ROW.format("key", "values", "default", "meaning"), _RULE, *rows]))
    return "\n\n".join(blocks)


def schema() -> str:
    """The JSON schema of config.yaml, for editors."""
    return json.dumps(whole.Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def renewed(readme: str) -> str:
    """``readme`` with the tables between its two marks renewed."""
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{key_tables()}\n\n{END}{after}"


_ROW, _RULE = "| {} | {} | {} | {} |", "| --- | --- | --- | --- |"


def _paragraphs(model: type[BaseModel]) -> list[str]:
    """The model's docstring as Markdown, opened by the kind that it stands for."""
    kind = model.model_fields.get("kind")
    opening = [f"`kind: {typing.get_args(kind.annotation)[0]}`"] if kind else []
    text = [] if model is whole.Config else inspect.getdoc(model).replace("``", "`").split("\n\n")
    return opening + [" ".join(paragraph.split()) for paragraph in text]


def _rows(model: type[BaseModel]) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        if name == "kind":
            continue
        cells = (f"`{name}`", _values(field.annotation), _default(field), field.description or "")
        rows.append(_ROW.format(*(cell.replace("|", "\\|") for cell in cells)))
    return rows


def _values(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0])
    if origin is Literal:
        if arguments == ESM2_NAMES:
            return " | ".join(f"`{name}`" for name in ESM2_NAMES)
        return " | ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [_values(argument) for argument in arguments if argument is not type(None)]
        return " | ".join([*dict.fromkeys(kinds), *(["null"] if type(None) in arguments else [])])
    if origin is tuple:
        return f"{len(arguments)} of {_values(arguments[0])}"
    if origin is list:
        return f"list of {_values(arguments[0])}"
    if origin is dict:
        return "see below" if _is_model(arguments[1]) else f"name: {_values(arguments[1])}"
    if _is_model(annotation):
        return "see below"
    return {str: "text", int: "whole number", float: "number", bool: "true | false"}[annotation]


def _is_model(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (Annotated, typing.Union, types.UnionType):
        return _is_model(typing.get_args(annotation)[0])
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if isinstance(field.default, BaseModel) or field.default in ({}, [whole.TargetRow()]):
        return "all of all" if field.default == [whole.TargetRow()] else ""
    return f"`{json.dumps(field.default)}`".replace('"', "")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "config")
    if not folder.is_dir():
        sys.exit(f"usage: python -m airrformer.config_reference [FOLDER]; there is no folder {str(folder)!r}")
    write_text(folder / "config.schema.json", schema())
    write_text(folder / "README.md", renewed((folder / "README.md").read_text(encoding="utf-8")))
