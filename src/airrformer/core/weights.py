"""Foreign checkpoints -> the core, by tables of names, and our own files (safetensors + JSON).

Every foreign key is renamed, transformed or named as dropped; anything else is an error, and the core is loaded
strictly. torch is imported only where tensors are touched, so that looking for a file costs no seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airrformer.core import alphabet
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.errors import UserError
from airrformer.paths import replacing, write_json

if TYPE_CHECKING:
    import torch

    from airrformer.core.transformer import Transformer

# {n} is a layer's number, {p} weight or bias. "[0]" to "[2]" name the third of the fused query, key and value rows.
# None: dropped on purpose.
_ESM2_FAIR: dict[str, str | None] = {
    "embed_tokens.weight": "encoder.embedding.tokens.weight",
    "layers.{n}.self_attn.q_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "layers.{n}.self_attn.k_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "layers.{n}.self_attn.v_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "layers.{n}.self_attn.out_proj.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "layers.{n}.self_attn.rot_emb.inv_freq": "encoder.positions.inv_freq",
    "layers.{n}.self_attn_layer_norm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "layers.{n}.fc1.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "layers.{n}.fc2.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "layers.{n}.final_layer_norm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "emb_layer_norm_after.{p}": "encoder.final_norm.{p}",
    "lm_head.dense.{p}": "head.dense.linear.{p}",
    "lm_head.layer_norm.{p}": "head.norm.{p}",
    "lm_head.weight": "head.output.weight",
    "lm_head.bias": "head.output.bias",
    "contact_head.regression.{p}": None,
}
_ESM2_HUGGING_FACE: dict[str, str | None] = {
    "embeddings.word_embeddings.weight": "encoder.embedding.tokens.weight",
    "embeddings.position_embeddings.weight": None,  # written by some versions, unused with rotary positions
    "embeddings.position_ids": None,
    "encoder.layer.{n}.attention.self.query.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "encoder.layer.{n}.attention.self.key.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "encoder.layer.{n}.attention.self.value.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "encoder.layer.{n}.attention.self.rotary_embeddings.inv_freq": "encoder.positions.inv_freq",
    "encoder.layer.{n}.attention.output.dense.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "encoder.layer.{n}.attention.LayerNorm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "encoder.layer.{n}.intermediate.dense.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "encoder.layer.{n}.output.dense.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "encoder.layer.{n}.LayerNorm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "encoder.emb_layer_norm_after.{p}": "encoder.final_norm.{p}",
    "rotary_embeddings.inv_freq": "encoder.positions.inv_freq",
    "lm_head.dense.{p}": "head.dense.linear.{p}",
    "lm_head.layer_norm.{p}": "head.norm.{p}",
    "lm_head.decoder.weight": "head.output.weight",
    "lm_head.decoder.bias": "head.output.bias",
    "lm_head.bias": "head.output.bias",
    "contact_head.regression.{p}": None,
    "pooler.dense.{p}": None,
}
_ANTIBERTY: dict[str, str | None] = {
    "bert.embeddings.position_ids": None,
    "bert.embeddings.word_embeddings.weight": "encoder.embedding.tokens.weight",
    "bert.embeddings.position_embeddings.weight": "encoder.positions.table.weight",
    "bert.embeddings.token_type_embeddings.weight": "encoder.embedding.segments.weight",
    "bert.embeddings.LayerNorm.{p}": "encoder.embedding.norm.{p}",
    "bert.encoder.layer.{n}.attention.self.query.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "bert.encoder.layer.{n}.attention.self.key.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "bert.encoder.layer.{n}.attention.self.value.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "bert.encoder.layer.{n}.attention.output.dense.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "bert.encoder.layer.{n}.attention.output.LayerNorm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "bert.encoder.layer.{n}.intermediate.dense.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "bert.encoder.layer.{n}.output.dense.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "bert.encoder.layer.{n}.output.LayerNorm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "bert.pooler.dense.{p}": None,
    "cls.predictions.transform.dense.{p}": "head.dense.linear.{p}",
    "cls.predictions.transform.LayerNorm.{p}": "head.norm.{p}",
    "cls.predictions.decoder.{p}": "head.output.{p}",
    "cls.predictions.bias": "head.output.bias",
    "cls.species.{p}": None,
    "cls.chain.{p}": None,
    "cls.graft.{p}": None,
}

# Source: antiberty 0.1.3, trained_models/vocab.txt
_ANTIBERTY_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet.AMINO_ACIDS)
_SPECIAL = {"<cls>": "[CLS]", "<pad>": "[PAD]", "<eos>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
# Row i of our alphabet is row _ANTIBERTY_ROWS[i] of theirs; a letter that they lack takes their [UNK] row.
_ANTIBERTY_ROWS = [
    _ANTIBERTY_TOKENS.index(name if name in _ANTIBERTY_TOKENS else "[UNK]")
    for name in (_SPECIAL.get(token, token) for token in alphabet.TOKENS)
]
_BY_TOKEN = ("encoder.embedding.tokens.weight", "head.output.weight", "head.output.bias")

_ESM2_URL = "https://dl.fbaipublicfiles.com/fair-esm/models/{name}.pt"
_SILENCE_SECONDS = 20  # a download is given up when no byte comes for so long; never by its total time


# ------------------------------------------------------------------------------------------------ foreign -> core


def load_foreign(name: str, path: str | Path) -> Transformer:
    """The published model ``name`` (a row of ``FAMILIES``) with the weights in ``path``, in eval mode on the CPU.

    Reads fair-esm ``.pt`` and Hugging Face ``.safetensors`` files of ESM-2, and AntiBERTy's ``pytorch_model.bin``.
    Raises ``UserError`` for a file that is no such checkpoint or belongs to another size.
    """
    from airrformer.core.transformer import Transformer

    config = FAMILIES[name]
    state = _read_tensors(path)
    try:
        if config.segments:
            mapped = _map_names(state, _ANTIBERTY)
            for key in _BY_TOKEN:
                mapped[key] = mapped[key][_ANTIBERTY_ROWS]
        else:
            mapped = _map_esm2(state)
        return _fill(Transformer, config, mapped)
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: not the weights of {name}: {reason}") from None


def _map_esm2(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if any("self_attn" in key for key in state):
        strip, table = r"^(encoder\.)?(sentence_encoder\.)?", _ESM2_FAIR
    else:
        strip, table = r"^(esm\.)?", _ESM2_HUGGING_FACE
    mapped = _map_names({re.sub(strip, "", key): value for key, value in state.items()}, table)
    # tied: files may leave the second name out
    mapped.setdefault("head.output.weight", mapped["encoder.embedding.tokens.weight"])
    return mapped


def _map_names(state: Mapping[str, torch.Tensor], table: dict[str, str | None]) -> dict[str, torch.Tensor]:
    """Rename every tensor by ``table``, join the thirds of the fused rows. Raises ``KeyError`` for an unknown key."""
    import torch

    rules = [
        (re.compile(re.escape(old).replace(r"\{n\}", r"(?P<n>\d+)").replace(r"\{p\}", r"(?P<p>weight|bias)")), new)
        for old, new in table.items()
    ]
    mapped: dict[str, torch.Tensor] = {}
    thirds: dict[str, dict[int, torch.Tensor]] = {}
    for key, tensor in state.items():
        match, new = next(((m, new) for rule, new in rules if (m := rule.fullmatch(key))), (None, None))
        if match is None:
            raise KeyError(f"tensor {key!r} has no place in this model")
        if new is None:
            continue
        new = new.format(**match.groupdict())
        if new.endswith("]"):
            thirds.setdefault(new[:-3], {})[int(new[-2])] = tensor
        else:
            mapped[new] = tensor
    for key, parts in thirds.items():
        mapped[key] = torch.cat([parts[i] for i in range(3)])
    return mapped


def _fill(factory: type[Transformer], config: ModelConfig, state: dict[str, torch.Tensor]) -> Transformer:
    import torch

    with torch.device("meta"):  # no time spent on an initialisation that is overwritten
        model = factory(config)
    for key in set(model.state_dict()) - set(state):
        if key.endswith("positions.inv_freq"):
            from airrformer.core.positions import Rotary

            state[key] = Rotary(config).inv_freq  # the file has none: the formula is the same
    model.load_state_dict({key: value.float() for key, value in state.items()}, strict=True, assign=True)
    model.tie()
    return model.eval().requires_grad_(False)


def _read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a ``.safetensors`` or a torch file. Never runs code from the file: ``weights_only=True``."""
    import argparse

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if Path(path).suffix == ".safetensors":
            return load_file(path)
        # fair-esm's files hold their training arguments as a Namespace, which is plain data.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path}: cannot read the weights: {error.strerror or error}") from None
    except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"{path}: no readable checkpoint: {' '.join(str(error).split())[:200]}") from None
    except Exception:  # pickle errors have no common class below Exception; torch's advice is to run the file's code
        raise UserError(f"{path}: refused, it holds more than tensors, or it is no checkpoint at all") from None
    if isinstance(content, Mapping) and isinstance(content.get("model"), Mapping):
        content = content["model"]
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
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
    except ValueError as error:
        raise UserError(f"{folder / 'config.json'}: not a model's config: {error}") from None
    state = _read_tensors(folder / "model.safetensors")
    if config.tied:
        stack = "encoder" if config.form == "encoder" else "decoder"
        rows = state.get(f"{stack}.embedding.tokens.weight")
        state |= {} if rows is None else {"head.output.weight": rows}
    try:
        return _fill(Transformer, config, state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{folder / 'model.safetensors'}: does not fit config.json: {reason}") from None


# ------------------------------------------------------------------------------------------- where weights lie


def torch_hub_file(name: str) -> Path:
    """Where torch hub, and so fair-esm, keeps the checkpoint ``name``."""
    home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
    return Path(home).expanduser() / "hub" / "checkpoints" / f"{name}.pt"


def find_local(name: str, weights: str | None = None) -> str | None:
    """The file with the weights of ``name`` on this machine, or None. A look at the disk alone, no network.

    ``weights``, where given, is the only place looked at. Else: torch hub's cache, the Hugging Face cache and, for
    AntiBERTy, the installed wheel (whose code is not imported).
    """
    if weights is not None:
        return weights if Path(weights).is_file() else None
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    hub = Path(hub).expanduser()
    candidates: list[Path] = []
    if FAMILIES[name].segments:
        spec = importlib.util.find_spec("antiberty")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            candidates.append(Path(folder) / "trained_models" / "AntiBERTy_md_smooth" / "pytorch_model.bin")
        candidates += sorted(hub.glob("models--*--AntiBERTy*/snapshots/*/pytorch_model.bin"))
    else:
        candidates.append(torch_hub_file(name))
        candidates += sorted(hub.glob(f"models--facebook--{name}/snapshots/*/model.safetensors"))
    return next((str(path) for path in candidates if path.is_file()), None)


def how_to_get(name: str, weights: str | None = None) -> str:
    """What to do when ``find_local`` found nothing: one sentence."""
    if weights is not None:
        return f"put the weights of {name} at {weights}"
    if FAMILIES[name].segments:
        return "install them with `pip install antiberty==0.1.3`, or name the file pytorch_model.bin under `weights:`"
    return (
        f"put {name}.pt ({_ESM2_URL.format(name=name)}) at {torch_hub_file(name)}, or name a fair-esm .pt or "
        "Hugging Face .safetensors file under `weights:`"
    )


def download(name: str) -> Path:
    """Fetch fair-esm's checkpoint ``name`` once into torch hub's cache, whole or not at all.

    Gives up when there is no connection or no byte comes for 20 s. Raises ``ConnectionError`` with the reason.
    """
    if FAMILIES[name].segments:
        raise ConnectionError(f"{name} comes inside a Python package, not as a download")
    target = torch_hub_file(name)
    try:
        with urllib.request.urlopen(_ESM2_URL.format(name=name), timeout=_SILENCE_SECONDS) as source:
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


def sha256(path: str | Path) -> str:
    """Hex digest of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
