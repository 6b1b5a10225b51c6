"""ESM-2: our core equals fair-esm's own class on every layer, from both file formats, in every published size."""

from __future__ import annotations

import dataclasses

import esm
import pytest
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from reference_models import contact_regression_file, fair_esm_file, randomise, reference_esm2, token_batch
from safetensors.torch import save_file
from transformers import EsmConfig, EsmForMaskedLM

from airrformer.core import alphabet, weights
from airrformer.core.config import ESM2_NAMES, FAMILIES
from airrformer.core.transformer import Transformer
from airrformer.embed.encoders import TransformerEncoder
from airrformer.errors import UserError

TOKENS = token_batch()
VISIBLE = TOKENS != alphabet.PAD
RESIDUES = VISIBLE & (TOKENS != alphabet.CLS) & (TOKENS != alphabet.EOS)


def test_alphabet_is_that_of_fair_esm():
    assert tuple(Alphabet.from_architecture("ESM-1b").all_toks) == alphabet.TOKENS


def test_every_layer_and_the_logits_equal_fair_esm(tmp_path):
    """At a second size; parity.py has 8M, with gradients and from both file formats."""
    name = "esm2_t12_35M_UR50D"
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


@pytest.mark.parametrize("name", ESM2_NAMES)
def test_every_published_size_has_the_shapes_of_fair_esm(name):
    """Without memory for the weights: both models on the meta device, all names and shapes mapped."""
    config = FAMILIES[name]
    with torch.device("meta"):
        reference = ESM2(config.layers, config.width, config.heads, Alphabet.from_architecture("ESM-1b"))
        ours = Transformer(dataclasses.replace(config, contacts=True))
    mapped = weights._map_state(name, reference.state_dict())
    assert {k: v.shape for k, v in mapped.items()} == {k: v.shape for k, v in ours.state_dict().items()}


@pytest.fixture
def fair_esm(tmp_path):
    """A checkpoint as published, its contact regression beside it, and fair-esm's model of both."""
    reference = randomise(reference_esm2("esm2_t6_8M_UR50D").requires_grad_(True)).requires_grad_(False)
    reference.contact_head.regression.weight.mul_(20)  # far from 1/2 everywhere
    fair_esm_file(reference, tmp_path / "esm2_t6_8M_UR50D.pt")
    contact_regression_file(reference, tmp_path / "esm2_t6_8M_UR50D.pt")
    return tmp_path / "esm2_t6_8M_UR50D.pt", reference


def assert_contacts_equal(ours: Transformer, expected: torch.Tensor) -> None:
    """``expected``: theirs for ``TOKENS``, without the rows of start and end."""
    with torch.inference_mode():
        found = ours.contacts(TOKENS, RESIDUES)[:, 1:-1, 1:-1]
    for row, length in enumerate(RESIDUES.sum(1).tolist()):
        torch.testing.assert_close(found[row, :length, :length], expected[row, :length, :length], atol=1e-5, rtol=0)
        assert not found[row, length:].any() and not found[row, :, length:].any()
    assert expected[1].std() > 0.01  # maps that are all alike would agree whatever the head does


def test_contacts_equal_fair_esm_whatever_the_batch_mates(fair_esm):
    file, reference = fair_esm
    ours = weights.load_foreign("esm2_t6_8M_UR50D", file)
    assert ours.config.contacts
    with torch.inference_mode():
        assert_contacts_equal(ours, reference.predict_contacts(TOKENS))


def test_contacts_from_a_hugging_face_file(tmp_path):
    config = FAMILIES["esm2_t6_8M_UR50D"]
    reference = randomise(
        EsmForMaskedLM(
            EsmConfig(
                vocab_size=33, hidden_size=config.width, num_hidden_layers=config.layers,
                num_attention_heads=config.heads, intermediate_size=config.feed_forward,
                position_embedding_type="rotary", emb_layer_norm_before=False, token_dropout=True,
                pad_token_id=alphabet.PAD, mask_token_id=alphabet.MASK, layer_norm_eps=1e-5,
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
            )
        ).eval()
    )  # fmt: skip
    with torch.no_grad():
        reference.esm.contact_head.regression.weight.mul_(20)
    state = {k: v.contiguous().clone() for k, v in reference.state_dict().items() if k != "lm_head.decoder.weight"}
    save_file(state, tmp_path / "model.safetensors")
    with torch.inference_mode():
        expected = reference.predict_contacts(TOKENS, VISIBLE.long())
    assert_contacts_equal(weights.load_foreign("esm2_t6_8M_UR50D", tmp_path / "model.safetensors"), expected)


def test_contacts_of_one_sequence_and_after_our_own_files(fair_esm, tmp_path):
    file, reference = fair_esm
    sequence = "DGGITQSPKYLFRKEGQNVTLSCEQ"
    with torch.inference_mode():
        expected = reference.predict_contacts(torch.tensor([alphabet.encode(sequence)]))[0]
    ours = weights.load_foreign("esm2_t6_8M_UR50D", file)
    weights.save(ours, tmp_path / "own")
    for model in (ours, weights.load_own(tmp_path / "own")):
        found = torch.from_numpy(TransformerEncoder(model, "esm2", "cpu").contacts(sequence))
        assert found.shape == (25, 25) and found.dtype == torch.float32
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_without_the_regression_there_are_no_contacts(tmp_path):
    fair_esm_file(reference_esm2("esm2_t6_8M_UR50D"), tmp_path / "model.pt")
    ours = weights.load_foreign("esm2_t6_8M_UR50D", tmp_path / "model.pt")
    assert not ours.config.contacts
    with pytest.raises(UserError, match=r"esm2 has no contact head; .*-contact-regression\.pt beside it"):
        TransformerEncoder(ours, "esm2", "cpu").contacts("CASSF")


def test_real_weights_find_the_disulfide_of_a_beta_chain():
    """TRBV19 with CASSIRSSYEQYF: of all residues 24 or more apart, the cysteines 23 and 104 touch most surely."""
    chain = (
        "MSNQVLCCVVLCLLGANTVDGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYL"
        "CASSIRSSYEQYFGPGTRLTVT"
    )
    first, second = chain.index("CEQNL"), chain.index("CASSI")
    for name in ("esm2_t33_650M_UR50D", "esm2_t30_150M_UR50D", "esm2_t12_35M_UR50D", "esm2_t6_8M_UR50D"):
        file = weights.find_local(name)
        if file is not None and (model := weights.load_foreign(name, file)).config.contacts:
            break
    else:
        pytest.skip("no ESM-2 weights with their contact regression on this machine")
    contacts = torch.from_numpy(TransformerEncoder(model, name, "cpu").contacts(chain)).triu(24)
    assert divmod(contacts.argmax().item(), len(chain)) == (first, second)


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
