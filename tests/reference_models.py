"""Reference models with random weights, and token batches with unequal lengths and one hidden residue."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import types
from pathlib import Path

import ablang2
import pytest
import torch
from ablang2.models.ablang2 import ablang as ablang2_model
from ablang2.models.ablang2.vocab import ablang_vocab
from esm.data import Alphabet
from esm.model.esm1 import ProteinBertModel
from esm.model.esm2 import ESM2

from airrformer.core import alphabet
from airrformer.core.config import FAMILIES, ModelConfig

SEQUENCES = (
    "CASSIRSSYEQYF",
    "DGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYLCASSIRSSYEQYF",
    "CAXBUZOF",
)


def reference_esm2(name: str) -> ESM2:
    """fair-esm's own class at the size of ``name``, random weights; weights small enough that fp32 keeps 1e-5."""
    config = FAMILIES[name]
    torch.manual_seed(0)
    model = ESM2(config.layers, config.width, config.heads, Alphabet.from_architecture("ESM-1b"), token_dropout=True)
    torch.nn.init.normal_(model.embed_tokens.weight, std=0.1)
    return model.eval().requires_grad_(False)


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give every trained tensor numbers that matter, also biases and norms, which most models start at 0 and 1.

    Libraries start so small (std 0.02) that attention is even, and a wrong position or mask would hardly show.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter.ndim > 1:
                parameter.normal_(0.0, max(parameter.shape) ** -0.5, generator=generator)
            else:
                parameter.normal_(float(name.endswith("weight")), 0.1, generator=generator)
    return model


def fair_esm_file(model: ESM2, path) -> None:
    """Write ``model`` as fair-esm's published checkpoints are: prefixed names and a Namespace beside the tensors."""
    state = {
        f"encoder.{'' if key.startswith('lm_head') else 'sentence_encoder.'}{key}": value
        for key, value in model.state_dict().items()
        if not key.startswith("contact_head")
    }
    arguments = argparse.Namespace(
        encoder_layers=model.num_layers,
        encoder_embed_dim=model.embed_dim,
        encoder_attention_heads=model.attention_heads,
        token_dropout=model.token_dropout,
    )
    torch.save({"cfg": {"model": arguments}, "model": state}, path)


def token_batch(sequences=SEQUENCES, hidden: int = 5) -> torch.Tensor:
    """(B, L) ids, padded on the right; position ``hidden`` of the first row is ``<mask>``."""
    rows = [torch.tensor(alphabet.encode(sequence)) for sequence in sequences]
    rows[0][hidden] = alphabet.MASK
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=alphabet.PAD)


@pytest.fixture(scope="session")
def tokens() -> torch.Tensor:
    return token_batch()


# ------------------------------------------------------------------------------------- ESM-1b, AbLang and AbLang2


def small_family(monkeypatch, name: str, **size) -> ModelConfig:
    """Make the published model ``name`` small for one test: its row of ``FAMILIES`` with other sizes, no more."""
    if FAMILIES[name].attn_scale is not None:
        size["attn_scale"] = size["heads"] / size["width"]  # of AbLang2, which divides by the head's width
    monkeypatch.setitem(FAMILIES, name, dataclasses.replace(FAMILIES[name], **size))
    return FAMILIES[name]


def reference_esm1b(config: ModelConfig) -> ProteinBertModel:
    """fair-esm's own class of ESM-1b at the size of ``config``, random weights."""
    model = ProteinBertModel(
        argparse.Namespace(
            arch="roberta_large", layers=config.layers, embed_dim=config.width, ffn_embed_dim=config.feed_forward,
            attention_heads=config.heads, max_positions=config.max_length, token_dropout=True,
            emb_layer_norm_before=True,
        ),
        Alphabet.from_architecture("ESM-1b"),
    )  # fmt: skip
    return model if model.embed_tokens.weight.is_meta else randomise(model).eval().requires_grad_(False)


def fair_esm1b_file(model: ProteinBertModel, path) -> None:
    """Write ``model`` as fair-esm's ESM-1b checkpoint is: prefixed names, and arguments whose names have one too."""
    state = {
        f"encoder.{'' if key.startswith('lm_head') else 'sentence_encoder.'}{key}": value
        for key, value in model.state_dict().items()
        if not key.startswith("contact_head")
    }
    plain = {"arch", "max_positions", "token_dropout"}
    arguments = {key if key in plain else f"encoder_{key}": value for key, value in vars(model.args).items()}
    torch.save({"args": argparse.Namespace(**arguments), "model": state}, path)


def contact_regression_file(model: torch.nn.Module, checkpoint: Path) -> None:
    """Write the contact regression of fair-esm's ``model`` where fair-esm looks for it: beside ``checkpoint``."""
    state = {f"contact_head.regression.{k}": v for k, v in model.contact_head.regression.state_dict().items()}
    torch.save({"model": state}, checkpoint.with_name(f"{checkpoint.stem}-contact-regression.pt"))


def reference_ablang1(config: ModelConfig):
    """AbLang's own class at the size of ``config``, random weights, and its hparams."""
    hparams = dict(
        vocab_size=24, hidden_size=config.width, num_hidden_layers=config.layers, num_attention_heads=config.heads,
        intermediate_size=config.feed_forward, max_position_embeddings=config.max_length + 1, pad_token_id=21,
        layer_norm_eps=1e-12, hidden_act="gelu", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        initializer_range=0.02,
    )  # fmt: skip
    model = ablang1("model").AbLang(argparse.Namespace(**hparams))
    return randomise(model).eval().requires_grad_(False), hparams


def ablang1(module: str):
    """A module of AbLang, which ablang2 brings too; its package is not run, because that imports a compiler."""
    package = types.ModuleType("ablang1_of_ablang2")
    package.__path__ = [str(Path(ablang2.__path__[0]) / "models" / "ablang1")]
    sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(f"{package.__name__}.{module}")


def reference_ablang2(config: ModelConfig):
    """AbLang2's own class at the size of ``config``, random weights, and its hparams."""
    hparams = dict(
        vocab_size=26, hidden_embed_size=config.width, n_attn_heads=config.heads, n_encoder_blocks=config.layers,
        layer_norm_eps=1e-12, a_fn="swiglu",
    )  # fmt: skip
    model = ablang2_model.AbLang(**hparams, padding_tkn=21, mask_tkn=23)
    return randomise(model).eval().requires_grad_(False), hparams | {"pad_tkn": 21, "mask_tkn": 23}


def ablang_folder(model: torch.nn.Module, hparams: dict, folder: Path, file: str) -> Path:
    """Write ``model`` as the archives of AbLang and AbLang2 are once unpacked: weights, hparams.json, vocab.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / file)
    (folder / "hparams.json").write_text(json.dumps(hparams), encoding="utf-8")
    vocabulary = {k: v for k, v in ablang_vocab.items() if v < hparams["vocab_size"]}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder
