"""Reference models with random weights, and token batches with unequal lengths and one hidden residue."""

from __future__ import annotations

import argparse

import pytest
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2

from airrformer.core import alphabet
from airrformer.core.config import FAMILIES

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
