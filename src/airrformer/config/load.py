"""Reading a config: every mistake in one go, each on a line with its path and a did-you-mean."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ValidationError

from airrformer.config.base import near
from airrformer.config.whole import Config
from airrformer.errors import UserError


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is a mistake; plain YAML takes the last one without a word."""

    def construct_mapping(self, node, deep=False):
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands there twice", key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Any:
    """What a YAML file holds. Raises ``UserError`` when it cannot be read or a key stands in it twice."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot read the config: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).replace('"<unicode string>", ', "")
        raise UserError(f"{path}: not valid YAML: {reason}") from None


def load_config(source: str | Path | dict, check_files: bool = False) -> Config:
    """Read a config from a YAML file, from JSON text (as ``Config.part`` writes it) or from a dict.

    Raises ``UserError`` that lists every mistake, each on a line of its own.
    """
    where = "the config"
    if isinstance(source, dict):
        values = source
    elif isinstance(source, str) and source.lstrip().startswith("{"):
        try:
            values = json.loads(source)
        except ValueError as error:
            raise UserError(f"the config: not valid JSON: {error}") from None
    else:
        where = str(source)
        values = read_yaml(source)
        if not isinstance(values, dict):
            raise UserError(f"{where}: the config is empty or not a mapping; see config/README.md")
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise _as_user_error(where, [_line(e) for e in _one_a_mistake(error.errors())]) from None
    lines = config.problems()
    if check_files and not lines:
        lines = config.loose_ends()
    lines += config.missing_files() if check_files else []
    if lines:
        raise _as_user_error(where, lines)
    return config


def _as_user_error(where: str, lines: list[str]) -> UserError:
    mistakes = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return UserError("\n".join([f"{where}: {mistakes} in the config:", *(f"  {line}" for line in lines)]))


def _one_a_mistake(errors: list[dict]) -> list[dict]:
    """Of a value that may be of two kinds pydantic tells what is wrong with it as either; here one says both.

    What is wrong with it as what it is, or with what is in it, says more than that it is nothing else.
    """
    places = [_place(error)[0] for error in errors]

    def of_other_kind(error: dict) -> bool:
        return error["type"].endswith("_type") or (error["type"] == "literal_error" and type(error["input"]) is not str)

    def told_elsewhere(place: list[str]) -> bool:
        return any(
            p[: len(place)] == place and (len(p) > len(place) or not of_other_kind(e)) for p, e in zip(places, errors)
        )

    kept: dict[tuple, dict] = {}
    for i, (place, error) in enumerate(zip(places, errors)):
        if not of_other_kind(error):
            kept[i, *place] = error
        elif not told_elsewhere(place):
            first = kept.setdefault(("", *place), dict(error))
            if first["msg"] != error["msg"]:
                first["msg"] += " or " + error["msg"].removeprefix("Input should be ")
    return list(kept.values())


def _place(error: dict) -> tuple[list[str], list[str]]:
    """The keys that lead to a pydantic error, without the tags that it puts into unions; what might be at the last."""
    path, fields = [], _fields_of(Config)
    model: Any = Config
    for depth, part in enumerate(error["loc"]):
        if (members := _plain_union(model)) and isinstance(part, str):  # a tag: which of them
            model = next((m for m in members if f"{_origin_name(m)}[" in part), None)
            continue
        inner = _step(model, part)
        unknown_key = error["type"] == "extra_forbidden" and depth == len(error["loc"]) - 1
        if inner is None and isinstance(part, str) and not unknown_key:
            # a discriminator's tag or a union member's name: no key of the user's file
            tagged = _member(model, part)
            model = tagged if tagged is not None else model
            continue
        path.append(str(part))
        fields = _fields_of(model)
        model = inner
    return path, fields


def _line(error: dict) -> str:
    """One pydantic error as 'path: what is wrong'."""
    path, fields = _place(error)
    where = ".".join(path) or "(top level)"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key{near(str(error['loc'][-1]), fields)}"
    if error["type"] == "missing":
        return f"{where}: missing; it is required"
    if error["type"] == "union_tag_not_found":
        return f"{where}.kind: missing; it is required"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    value = error.get("input")
    shown = f", not {value!r}" if isinstance(value, str | int | float | bool) and repr(value) not in message else ""
    quote = "; put it into quotes" if error["type"] == "string_type" and shown else ""
    return f"{where}: {message}{shown}{quote}"


def _fields_of(model: Any) -> list[str]:
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _unwrap(annotation: Any) -> Any:
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _options(annotation: Any) -> list[Any]:
    annotation = _unwrap(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [option for member in typing.get_args(annotation) for option in _options(member)]
    return [annotation]


def _plain_union(annotation: Any) -> list[Any]:
    """The members of a union of values that are no models, such as of a number and a mapping; else nothing."""
    members = [option for option in _options(annotation) if option is not types.NoneType]
    models = any(isinstance(member, type) and issubclass(member, BaseModel) for member in members)
    return members if len(members) > 1 and not models else []


def _origin_name(annotation: Any) -> str:
    return getattr(typing.get_origin(annotation), "__name__", "no container")


def _step(model: Any, part: str | int) -> Any:
    """The annotation that key or index ``part`` of ``model`` leads to, or None where there is no such key."""
    for option in _options(model):
        if isinstance(option, type) and issubclass(option, BaseModel):
            if part in option.model_fields:
                return option.model_fields[part].annotation
        elif typing.get_origin(option) is dict:
            return typing.get_args(option)[1]
        elif typing.get_origin(option) is list and isinstance(part, int):
            return typing.get_args(option)[0]
    return None


def _member(model: Any, tag: str) -> Any:
    """The member of a tagged union whose ``kind`` is ``tag``."""
    for option in _options(model):
        if isinstance(option, type) and issubclass(option, BaseModel):
            kind = option.model_fields.get("kind")
            if kind is not None and tag in typing.get_args(kind.annotation):
                return option
    return None
