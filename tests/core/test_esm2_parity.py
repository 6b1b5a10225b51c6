"""ESM-2: our core equals fair-esm's own class on every layer, from both file formats, in every published size."""

from __future__ import annotations

import dataclasses

import esm
import pytest
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from reference_models import fair_esm_file, reference_esm2, token_batch
from safetensors.torch import save_file
from transformers import EsmConfig, EsmForMaskedLM

from airrformer.core import alphabet, weights
from airrformer.core.config import ESM2_NAMES, FAMILIES
from airrformer.core.transformer import Transformer
from airrformer.errors import UserError

TOKENS = token_batch()
VISIBLE = TOKENS != alphabet.PAD


def test_alphabet_is_that_of_fair_esm():
    assert tuple(Alphabet.from_architecture("ESM-1b").all_toks) == alphabet.TOKENS


@pytest.mark.parametrize("name", ["esm2_t6_8M_UR50D", "esm2_t12_35M_UR50D"])
def test_every_layer_and_the_logits_equal_fair_esm(name, tmp_path):
    reference = reference_esm2(name)
    fair_esm_file(reference, tmp_path / "model.pt")
    ours = weights.load_foreign(name, tmp_path / "model.pt")
    layers = range(FAMILIES[name].layers + 1)
    with torch.inference_mode():
        expected = reference(TOKENS, repr_layers=list(layers))
        hidden = ours.hidden_states(TOKENS)
        for layer in layers:
            torch.testing.assert_close(
                hidden[layer][VISIBLE], expected["representations"][layer][VISIBLE], atol=1e-5, rtol=0
            )
        torch.testing.assert_close(ours.logits(hidden[-1])[VISIBLE], expected["logits"][VISIBLE], atol=1e-5, rtol=1e-5)


def test_fair_esm_loader_reads_the_file_that_the_test_writes(tmp_path):
    """Our file is in fair-esm's format because fair-esm itself rebuilds the same model from it."""
    import argparse

    reference = reference_esm2("esm2_t6_8M_UR50D")
    fair_esm_file(reference, tmp_path / "esm2_t6_8M_UR50D.pt")
    with torch.serialization.safe_globals([argparse.Namespace]):
        rebuilt, _ = esm.pretrained.load_model_and_alphabet_core(
            "esm2_t6_8M_UR50D",
            torch.load(tmp_path / "esm2_t6_8M_UR50D.pt", weights_only=True),
            {
                "model": {
                    f"contact_head.regression.{k}": v for k, v in reference.contact_head.regression.state_dict().items()
                }
            },
        )
    for key, value in reference.state_dict().items():
        torch.testing.assert_close(rebuilt.state_dict()[key], value)


def test_hugging_face_file_equals_the_hugging_face_model(tmp_path):
    config = FAMILIES["esm2_t6_8M_UR50D"]
    torch.manual_seed(1)
    reference = EsmForMaskedLM(
        EsmConfig(
            vocab_size=33, hidden_size=config.width, num_hidden_layers=config.layers, num_attention_heads=config.heads,
            intermediate_size=config.feed_forward, position_embedding_type="rotary", emb_layer_norm_before=False,
            token_dropout=True, pad_token_id=alphabet.PAD, mask_token_id=alphabet.MASK, layer_norm_eps=1e-5,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    ).eval()  # fmt: skip
    state = {k: v.contiguous().clone() for k, v in reference.state_dict().items() if k != "lm_head.decoder.weight"}
    save_file(state, tmp_path / "model.safetensors")
    ours = weights.load_foreign("esm2_t6_8M_UR50D", tmp_path / "model.safetensors")
    with torch.inference_mode():
        expected = reference(TOKENS, attention_mask=VISIBLE.long(), output_hidden_states=True)
        hidden = ours.hidden_states(TOKENS)
    for layer, states in enumerate(expected.hidden_states):
        torch.testing.assert_close(hidden[layer][VISIBLE], states[VISIBLE], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.logits(hidden[-1])[VISIBLE], expected.logits[VISIBLE], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ESM2_NAMES)
def test_every_published_size_has_the_shapes_of_fair_esm(name):
    """Without memory for the weights: both models on the meta device, all names and shapes mapped."""
    config = FAMILIES[name]
    with torch.device("meta"):
        reference = ESM2(config.layers, config.width, config.heads, Alphabet.from_architecture("ESM-1b"))
        ours = Transformer(dataclasses.replace(config, contacts=True))
    mapped = weights._map_state(name, reference.state_dict())
    assert {k: v.shape for k, v in mapped.items()} == {k: v.shape for k, v in ours.state_dict().items()}


def test_rotary_frequencies_come_from_the_file(tmp_path):
    reference = reference_esm2("esm2_t6_8M_UR50D")
    for layer in reference.layers:
        layer.self_attn.rot_emb.inv_freq.mul_(0.5)
    fair_esm_file(reference, tmp_path / "model.pt")
    ours = weights.load_foreign("esm2_t6_8M_UR50D", tmp_path / "model.pt")
    with torch.inference_mode():
        expected = reference(TOKENS, repr_layers=[6])["representations"][6]
        torch.testing.assert_close(ours(TOKENS)[VISIBLE], expected[VISIBLE], atol=1e-5, rtol=0)


def test_weights_of_another_size_are_refused_in_one_sentence(tmp_path):
    fair_esm_file(reference_esm2("esm2_t6_8M_UR50D"), tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"model\.pt: not the weights of esm2_t12_35M_UR50D"):
        weights.load_foreign("esm2_t12_35M_UR50D", tmp_path / "model.pt")


def test_a_file_that_would_run_code_is_refused(tmp_path):
    torch.save({"model": Runs()}, tmp_path / "model.pt")
    with pytest.raises(UserError, match="refused, it holds more than tensors"):
        weights.load_foreign("esm2_t6_8M_UR50D", tmp_path / "model.pt")


class Runs:
    def __reduce__(self):
        return print, ("code from a checkpoint ran",)
