"""Foreign checkpoints -> the core, by the tables of published.py, and our own files (safetensors + JSON).

No code knows a model's name. Every foreign key is renamed, transformed or named as dropped; anything else is
an error, and the core is loaded strictly. torch is imported only where tensors are touched, so that looking for a file
costs no seconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airrformer.core import alphabet
from airrformer.core.config import FAMILIES, TAGS, ModelConfig
from airrformer.core.published import CHECKPOINTS, Checkpoint, Names
from airrformer.errors import UserError
from airrformer.paths import replacing, write_json

if TYPE_CHECKING:
    import torch

    from airrformer.core.transformer import Transformer

logger = logging.getLogger(__name__)

_BY_TOKEN = ("encoder.embedding.tokens.weight", "head.output.weight", "head.output.bias")


# ------------------------------------------------------------------------------------------------ foreign -> core


def load_foreign(name: str, path: str | Path) -> Transformer:
    """The published model ``name`` (a row of ``FAMILIES``) with the weights in ``path``, in eval mode on the CPU.

    ``path`` is a file in a format of its publisher's (fair-esm's ``.pt``, Hugging Face's ``.safetensors``, AntiBERTy's
    ``pytorch_model.bin``, AbLang's ``amodel.pt`` or ``model.pt``), or the folder that holds it. ``config.contacts`` is
    set where the contact regression is at hand, in the file or in ``STEM-contact-regression.pt`` beside it. Raises
    ``UserError`` for what is no such checkpoint or belongs to another size.
    """
    path = weights_file(path, name)
    try:
        return _build(name, path, _read_with_contacts(path))
    except _Misfit as error:
        raise UserError(f"{path}: not the weights of {name}: {error}") from None


def identify(path: str | Path) -> tuple[list[str], Transformer]:
    """The published models that the file or folder ``path`` fits by its names and sizes, and the first one, loaded.

    Several come out where only their numbers differ. Raises ``UserError`` that says what it is like, where none fits.
    """
    path = weights_file(path)
    state = _read_with_contacts(path)
    fitting: dict[str, Transformer] = {}
    misfits: dict[str, _Misfit] = {}
    for name in CHECKPOINTS:
        try:
            fitting[name] = _build(name, path, state)
        except _Misfit as error:
            misfits[name] = error
    if fitting:
        return list(fitting), next(iter(fitting.values()))
    nearest = max(misfits, key=lambda name: misfits[name].known)
    if misfits[nearest].known == 0:
        raise UserError(f"{path}: no published model that is known here: no tensor of it has a name of theirs")
    raise UserError(f"{path}: none of the published models; nearest is {nearest}, but {misfits[nearest]}")


class _Misfit(ValueError):
    """A file that is not that model's. ``known``: how many of its tensors have a place in it; inf: all of them."""

    def __init__(self, reason: str, known: float = 0) -> None:
        super().__init__(reason)
        self.known = known


def _build(name: str, path: Path, state: Mapping[str, torch.Tensor]) -> Transformer:
    """``name`` with the tensors ``state`` of ``path``. Raises ``_Misfit``."""
    from airrformer.core.transformer import Transformer

    config = FAMILIES[name]
    mapped = _map_state(name, state)
    layers = {key.split(".")[2] for key in mapped if key.startswith("encoder.blocks.")}
    width = mapped[_BY_TOKEN[0]].shape[-1] if _BY_TOKEN[0] in mapped else config.width
    if (len(layers), width) != (config.layers, config.width):
        expected = f"where {config.layers} of width {config.width} are expected"
        raise _Misfit(f"it has {len(layers)} layers of width {width}, {expected}", math.inf)
    config = dataclasses.replace(config, contacts="contact_head.regression.weight" in mapped)
    _check_settings(path.with_name("hparams.json"), CHECKPOINTS[name].settings, config)
    return _fill(Transformer, config, mapped)


def _map_state(name: str, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A foreign file's tensors under our names, with our alphabet's rows. Raises ``_Misfit``."""
    import torch

    checkpoint = CHECKPOINTS[name]
    stripped = [
        ({re.sub(f"^{prefix}", "", key): value for key, value in state.items()}, table)
        for prefix, table in checkpoint.names.items()
    ]
    mapped = _map_names(*max(stripped, key=lambda kind: len(_placed(*kind))))
    if FAMILIES[name].tied and _BY_TOKEN[0] in mapped:  # files may leave the second name out
        mapped.setdefault("head.output.weight", mapped[_BY_TOKEN[0]])

    ours = (*alphabet.TOKENS, *TAGS)[: FAMILIES[name].alphabet_size]
    rows = torch.tensor([checkpoint.tokens.index(t if t in checkpoint.tokens else checkpoint.unknown) for t in ours])
    zeroed = [alphabet.ID[token] for token in checkpoint.zeroed]
    for key in _BY_TOKEN:
        tensor = mapped.get(key)
        if tensor is not None and len(tensor) != len(checkpoint.tokens):
            raise _Misfit(f"its alphabet has {len(tensor)} tokens, not {len(checkpoint.tokens)}", len(mapped))
        if tensor is not None and checkpoint.tokens != ours:
            mapped[key] = tensor[rows.to(tensor.device)]
        if tensor is not None and zeroed and key.endswith("weight"):
            mapped[key] = mapped[key].index_fill(0, torch.tensor(zeroed, device=tensor.device), 0.0)
    return mapped


def _placed(state: Mapping[str, torch.Tensor], table: Names) -> dict[str, tuple[str, ...]]:
    """Their names -> ours, for those that ``table`` knows."""
    rules = [
        (
            re.compile(re.escape(old).replace(r"\{n\}", r"(?P<n>\d+)").replace(r"\{p\}", r"(?P<p>weight|bias)")),
            (new,) if isinstance(new, str) else new or (),
        )
        for old, new in table.items()
    ]
    found: dict[str, tuple[str, ...]] = {}
    for key in state:
        for rule, new in rules:
            if match := rule.fullmatch(key):
                found[key] = tuple(target.format(**match.groupdict()) for target in new)
                break
    return found


_TARGET = re.compile(r"(?P<name>[^\[]+)(\[(?P<third>\d)\]|\[(?P<first>\d+):\])?")


def _map_names(state: Mapping[str, torch.Tensor], table: Names) -> dict[str, torch.Tensor]:
    """Rename every tensor by ``table``; cut, join and drop rows. Raises ``_Misfit`` for a name that it lacks."""
    import torch

    placed = _placed(state, table)
    if unknown := next((key for key in state if key not in placed), None):
        raise _Misfit(f"its tensor {unknown!r} has no place in this model", len(placed))
    mapped: dict[str, torch.Tensor] = {}
    thirds: dict[str, dict[int, torch.Tensor]] = {}
    for key, targets in placed.items():
        if targets and state[key].ndim == 0:
            raise _Misfit(f"its tensor {key!r} is a single number", len(placed))
        for target, rows in zip(targets, state[key].chunk(len(targets)) if targets else ()):
            name, third, first = _TARGET.fullmatch(target).group("name", "third", "first")
            if third is not None:
                thirds.setdefault(name, {})[int(third)] = rows
                continue
            rows = rows[int(first or 0) :]
            if name in mapped and not _same(mapped[name], rows):
                raise _Misfit(f"its tensor {key!r} should hold the same numbers as another, but does not", len(placed))
            mapped[name] = rows
    for name, found in thirds.items():
        if len(found) < 3:
            raise _Misfit(f"it has only {len(found)} of the three tensors that make up {name}", len(placed))
        mapped[name] = torch.cat([found[i] for i in range(3)])
    return mapped


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    return one.shape == other.shape and (one.is_meta or torch.equal(one, other))


def _check_settings(file: Path, settings: Mapping[str, str], config: ModelConfig) -> None:
    """What shapes do not show, such as the number of heads, where the publisher's hparams.json is there."""
    try:
        theirs = json.loads(file.read_text(encoding="utf-8")) if settings else {}
    except (OSError, ValueError):
        return
    for key, field in settings.items() if isinstance(theirs, Mapping) else ():
        if key in theirs and theirs[key] != getattr(config, field):
            raise _Misfit(f"{file.name} says {key} {theirs[key]!r}, where {getattr(config, field)!r} is expected")


def _fill(factory: type[Transformer], config: ModelConfig, state: dict[str, torch.Tensor]) -> Transformer:
    import torch

    try:
        with torch.device("meta"):  # no time spent on an initialisation that is overwritten
            model = factory(config)
    except (RuntimeError, OverflowError):  # torch's, of a tensor with more bytes than it can count
        raise _Misfit("no computer holds a model of the sizes that are named there") from None
    expected = model.state_dict()
    for key in set(expected) - set(state):
        if key.endswith("positions.inv_freq"):
            from airrformer.core.positions import Rotary

            state[key] = Rotary(config).inv_freq  # the file has none: the formula is the same
    for key in [*expected, *state]:
        theirs, ours = (tuple(s[key].shape) if key in s else None for s in (state, expected))
        if theirs != ours:
            reason = f"its {key} is {theirs or 'missing'}, where {ours or 'nothing'} is expected"
            raise _Misfit(reason, math.inf)
    model.load_state_dict({key: value.float() for key, value in state.items()}, strict=True, assign=True)
    model.tie()
    return model.eval().requires_grad_(False)


def _read_with_contacts(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of ``path``, and those of fair-esm's contact regression where it lies beside it."""
    state = _read_tensors(path)
    beside = _contacts_beside(path)
    return state | _read_tensors(beside) if beside.is_file() else state


def _contacts_beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}-contact-regression.pt")


def weights_file(path: str | Path, name: str | None = None) -> Path:
    """``path``, or where it is a folder the file in it that holds weights of ``name``; None: of any published model."""
    path = Path(path)
    if not path.is_dir():
        return path
    names = CHECKPOINTS if name is None else (name,)
    files = dict.fromkeys(file for name in names for file in _filled(name, CHECKPOINTS[name].files))
    found = next((path / file for file in files if (path / file).is_file()), None)
    if found is None:
        raise UserError(f"{path}: this folder holds none of {', '.join(files)}; name the weights file")
    return found


def _read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a ``.safetensors`` or a torch file. Never runs code from the file: ``weights_only=True``."""
    import argparse

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise UserError(f"{path}: cannot read the weights: {error.strerror or error}") from None
    try:
        if Path(path).suffix == ".safetensors":
            return load_file(path)
        # fair-esm's files hold their training arguments as a Namespace, which is plain data.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    # An OSError here: torch has looked for something beyond the end of a file that was cut short.
    except (SafetensorError, RuntimeError, EOFError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200] or "it ends too early"
        raise UserError(f"{path}: no readable checkpoint: {reason}") from None
    except Exception:  # pickle errors have no common class below Exception; torch's advice is to run the file's code
        raise UserError(f"{path}: refused, it holds more than tensors, or it is no checkpoint at all") from None
    if isinstance(content, Mapping) and isinstance(content.get("model"), Mapping):
        content = content["model"]
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    ):
        raise UserError(f"{path}: no checkpoint: a table of tensors was expected")
    return dict(content)


# ------------------------------------------------------------------------------------------------------ our files


def save(model: Transformer, folder: str | Path) -> None:
    """Write ``model.safetensors`` and ``config.json`` (the ``ModelConfig``) into ``folder``."""
    from safetensors.torch import save_file

    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    if model.config.tied:
        del state["head.output.weight"]  # safetensors holds no tensor twice
    with replacing(Path(folder) / "model.safetensors") as temporary:
        save_file(state, temporary)
    write_json(Path(folder) / "config.json", model.config.to_dict())


def load_own(folder: str | Path) -> Transformer:
    """The model that ``save`` wrote into ``folder``, in eval mode on the CPU. Raises ``UserError`` if it is not one."""
    from airrformer.core.transformer import Transformer

    folder = Path(folder)
    try:
        config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{folder / 'config.json'}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.json'}: not a model's config: {error}") from None
    state = _read_tensors(folder / "model.safetensors")
    stack = "encoder" if config.form == "encoder" else "decoder"
    if config.tied:
        rows = state.get(f"{stack}.embedding.tokens.weight")
        state |= {} if rows is None else {"head.output.weight": rows}
    try:
        # First of all the number of blocks: to build a million of them, only to find none in the file, takes hours.
        blocks = {key.split(".")[2] for key in state if key.startswith(f"{stack}.blocks.")}
        if len(blocks) != config.depth:
            raise _Misfit(f"it has {len(blocks)} {stack} layers, where {config.depth} are expected")
        return _fill(Transformer, config, state)
    except _Misfit as error:
        raise UserError(f"{folder / 'model.safetensors'}: does not fit config.json: {error}") from None


# ------------------------------------------------------------------------------------------- where weights lie


def kept_file(name: str) -> Path:
    """Where a download of ``name`` is kept: torch hub's cache, which fair-esm uses too."""
    home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
    folder = Path(home).expanduser() / "hub" / "checkpoints"
    checkpoint = CHECKPOINTS[name]
    return folder / name / checkpoint.files[0] if _is_archive(checkpoint) else folder / f"{name}.pt"


def find_local(name: str, weights: str | None = None) -> str | None:
    """The file with the weights of ``name`` on this machine, or None. A look at the disk alone, no network.

    ``weights``, where given, is the only place looked at; it may be a folder. Else: installed packages that bring
    weights (whose code is not imported), torch hub's cache and the Hugging Face cache.
    """
    if weights is None:
        return next((str(path) for path in _places(name) if path.is_file()), None)
    try:
        path = weights_file(weights, name)
    except UserError:
        return None
    return str(path) if path.is_file() else None


def _places(name: str) -> Iterator[Path]:
    checkpoint = CHECKPOINTS[name]
    for place in checkpoint.packages:
        package, _, inside = place.partition("/")
        spec = importlib.util.find_spec(package)
        yield from (Path(folder) / inside for folder in (spec.submodule_search_locations or []) if spec) if spec else ()
    yield kept_file(name)
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    for pattern in _filled(name, checkpoint.hugging_face):
        yield from sorted(Path(hub).expanduser().glob(pattern))


def how_to_get(name: str, weights: str | None = None) -> str:
    """What to do when ``find_local`` found nothing: one sentence."""
    if weights is not None:
        return f"put the weights of {name} at {weights}"
    return CHECKPOINTS[name].how.format(name=name, url=url_of(name), file=kept_file(name))


def url_of(name: str) -> str | None:
    """Where ``download`` gets the weights of ``name`` from; None: from nowhere, they come inside a package."""
    url = CHECKPOINTS[name].url
    return None if url is None else url.format(name=name)


def download(name: str) -> Path:
    """Fetch the published weights of ``name`` once into torch hub's cache, whole or not at all.

    Gives up when there is no connection or no byte comes for 20 s. Raises ``ConnectionError`` with the reason.
    """
    checkpoint, target, url = CHECKPOINTS[name], kept_file(name), url_of(name)
    if url is None:
        raise ConnectionError(f"{name} comes inside a Python package, not as a download")
    if _is_archive(checkpoint):
        with tempfile.TemporaryDirectory() as folder:
            _unpack(_fetch(url, Path(folder) / "archive"), target)
        return target
    _fetch(url, target)
    if checkpoint.contacts_url is not None:
        try:
            _fetch(checkpoint.contacts_url.format(name=name), _contacts_beside(target))
        except ConnectionError as error:
            logger.warning("%s: no contact regression (%s); all but contacts works without it", name, error)
    return target


_SILENCE_SECONDS = 20  # a download is given up when no byte comes for so long; never by its total time


def _fetch(url: str, target: Path) -> Path:
    try:
        with urllib.request.urlopen(url, timeout=_SILENCE_SECONDS) as source:
            expected = source.headers.get("Content-Length")
            with replacing(target) as temporary, temporary.open("wb") as sink:
                while chunk := source.read(1 << 20):
                    sink.write(chunk)
                if expected is not None and sink.tell() != int(expected):
                    raise ConnectionError(f"{sink.tell()} of {expected} bytes came")
    except urllib.error.URLError as error:
        raise ConnectionError(str(error.reason)) from None
    except TimeoutError:
        raise ConnectionError(f"no byte for {_SILENCE_SECONDS} s") from None
    return target


def _unpack(archive: Path, target: Path) -> None:
    """Write the plain files of ``archive`` that we read to the folder of ``target``, ``target`` itself last.

    Only the last part of a member's name is used, so that nothing is written anywhere else.
    """
    try:
        with tarfile.open(archive) as content:
            members = {Path(member.name).name: member for member in content if member.isfile()}
            if target.name not in members:
                raise ConnectionError(f"the archive that came holds no {target.name}")
            for file in ("hparams.json", target.name):
                if file in members:
                    with replacing(target.with_name(file)) as temporary, temporary.open("wb") as sink:
                        shutil.copyfileobj(content.extractfile(members[file]), sink)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ConnectionError(f"what came is no whole archive: {error}") from None


def _is_archive(checkpoint: Checkpoint) -> bool:
    return (checkpoint.url or "").endswith(".tar.gz")


def _filled(name: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pattern.format(name=name) for pattern in patterns)


def sha256(path: str | Path) -> str:
    """Hex digest of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
