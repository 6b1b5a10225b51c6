"""ESM-1b: our core equals fair-esm's own class on every layer and in its contacts, from both file formats."""

from __future__ import annotations

import argparse
import dataclasses

import esm
import pytest
import torch
from reference_models import contact_regression_file, fair_esm1b_file, reference_esm1b, small_family, token_batch
from safetensors.torch import save_file
from transformers import EsmConfig, EsmForMaskedLM

from airrformer.core import alphabet, weights
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.transformer import Transformer
from airrformer.embed.encoders import TransformerEncoder

NAME = "esm1b_t33_650M_UR50S"
TOKENS = token_batch()
VISIBLE = TOKENS != alphabet.PAD
RESIDUES = VISIBLE & (TOKENS != alphabet.CLS) & (TOKENS != alphabet.EOS)


@pytest.fixture
def config(monkeypatch) -> ModelConfig:
    return small_family(monkeypatch, NAME, layers=3, width=32, heads=4, feed_forward=64)


@pytest.fixture
def fair_esm(config, tmp_path):
    """A file as published, its contact regression beside it, and the model that fair-esm itself loads from both."""
    file = tmp_path / f"{NAME}.pt"
    written = reference_esm1b(config)
    written.contact_head.regression.weight.mul_(20)  # far from 1/2 everywhere
    assert written.embed_tokens.weight[alphabet.MASK].norm() > 0  # as in the file that is published
    fair_esm1b_file(written, file)
    contact_regression_file(written, file)
    with torch.serialization.safe_globals([argparse.Namespace]):
        content, regression = (
            torch.load(path, weights_only=True) for path in (file, tmp_path / f"{NAME}-contact-regression.pt")
        )
    return file, esm.pretrained.load_model_and_alphabet_core(NAME, content, regression)[0].eval()


def hugging_face(config: ModelConfig) -> EsmForMaskedLM:
    return EsmForMaskedLM(
        EsmConfig(
            vocab_size=33, hidden_size=config.width, num_hidden_layers=config.layers, num_attention_heads=config.heads,
            intermediate_size=config.feed_forward, position_embedding_type="absolute", emb_layer_norm_before=True,
            max_position_embeddings=1026, token_dropout=True, pad_token_id=alphabet.PAD, mask_token_id=alphabet.MASK,
            layer_norm_eps=1e-5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    ).eval()  # fmt: skip


def test_every_layer_and_the_logits_equal_fair_esm(fair_esm, config):
    file, reference = fair_esm
    ours = weights.load_foreign(NAME, file)
    with torch.inference_mode():
        expected = reference(TOKENS, repr_layers=range(config.layers + 1))
        hidden = ours.hidden_states(TOKENS)
        for layer, states in enumerate(hidden):
            torch.testing.assert_close(states[VISIBLE], expected["representations"][layer][VISIBLE], atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.logits(hidden[-1])[VISIBLE], expected["logits"][VISIBLE], atol=1e-5, rtol=1e-5)


def test_contacts_equal_fair_esm_whatever_the_batch_mates(fair_esm):
    file, reference = fair_esm
    ours = weights.load_foreign(NAME, file)
    with torch.inference_mode():
        expected = reference.predict_contacts(TOKENS)  # without the rows of start and end
        found = ours.contacts(TOKENS, RESIDUES)[:, 1:-1, 1:-1]
    assert expected[1].std() > 0.01  # maps that are all alike would agree whatever the head does
    for row, length in enumerate(RESIDUES.sum(1).tolist()):
        torch.testing.assert_close(found[row, :length, :length], expected[row, :length, :length], atol=1e-5, rtol=0)


def test_contacts_of_one_sequence(fair_esm):
    file, reference = fair_esm
    sequence = "CASSIRSSYEQYF"
    with torch.inference_mode():
        expected = reference.predict_contacts(torch.tensor([alphabet.encode(sequence)]))[0]
    found = torch.from_numpy(TransformerEncoder(weights.load_foreign(NAME, file), NAME, "cpu").contacts(sequence))
    assert found.shape == (13, 13)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_hugging_face_file_equals_the_hugging_face_model(config, tmp_path):
    torch.manual_seed(1)
    reference = hugging_face(config)
    with torch.no_grad():  # as in the published file, which was made from what fair-esm loads
        reference.esm.embeddings.word_embeddings.weight[alphabet.MASK] = 0
    state = {k: v.contiguous().clone() for k, v in reference.state_dict().items() if k != "lm_head.decoder.weight"}
    save_file(state, tmp_path / "model.safetensors")
    ours = weights.load_foreign(NAME, tmp_path)
    with torch.inference_mode():
        expected = reference(TOKENS, attention_mask=VISIBLE.long(), output_hidden_states=True)
        hidden = ours.hidden_states(TOKENS)
        contacts = reference.predict_contacts(TOKENS, VISIBLE.long())
        found = ours.contacts(TOKENS, RESIDUES)[:, 1:-1, 1:-1]
    for layer, states in enumerate(expected.hidden_states):
        torch.testing.assert_close(hidden[layer][VISIBLE], states[VISIBLE], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.logits(hidden[-1])[VISIBLE], expected.logits[VISIBLE], atol=1e-5, rtol=1e-5)
    for row, length in enumerate(RESIDUES.sum(1).tolist()):
        torch.testing.assert_close(found[row, :length, :length], contacts[row, :length, :length], atol=1e-5, rtol=0)


def test_the_published_size_has_the_shapes_of_both():
    config = FAMILIES[NAME]
    with torch.device("meta"):
        ours = Transformer(dataclasses.replace(config, contacts=True))
        states = reference_esm1b(config).state_dict(), hugging_face(config).state_dict()
    wanted = {key: value.shape for key, value in ours.state_dict().items()}
    for state in states:
        assert {key: value.shape for key, value in weights._map_state(NAME, state).items()} == wanted


def test_a_file_in_the_format_of_2020_is_read_too(fair_esm, tmp_path):
    file, _ = fair_esm
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(file, weights_only=True)
    torch.save(content, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    new, old = weights.load_foreign(NAME, file), weights.load_foreign(NAME, tmp_path / "old.pt")
    assert all(old.state_dict()[key].equal(value) for key, value in new.state_dict().items() if "contact" not in key)


def test_positions_count_from_the_third_row(fair_esm):
    file, reference = fair_esm
    table = weights.load_foreign(NAME, file).encoder.positions.table.weight
    assert table.shape[0] == 1024
    torch.testing.assert_close(table, reference.embed_positions.weight[2:])


def test_mask_is_never_a_guess(fair_esm):
    model = weights.load_foreign(NAME, fair_esm[0])
    assert not model.encoder.embedding.tokens.weight[alphabet.MASK].any()
    assert model.head.output.weight is model.encoder.embedding.tokens.weight
