"""AbLang and AbLang2: our core equals their own classes on every layer, from files as they are published."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from ablang2.models.ablang2.tokenizers import ABtokenizer as Tokenizer2
from reference_models import ablang1, ablang_folder, reference_ablang1, reference_ablang2, small_family

import airrformer as af
from airrformer.core import alphabet, weights
from airrformer.core.config import FAMILIES
from airrformer.core.transformer import Transformer
from airrformer.embed.encoders import TransformerEncoder
from airrformer.errors import UserError

HEAVY = "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYC"
SEQUENCES = (HEAVY, "CAAPYCSSISCNDGFDIW", "DIQMTQSPSSLSASVGDRVTITCRASQGISSWLA")
SIZE = dict(layers=3, width=48, heads=4, feed_forward=192)


def hidden(sequence: str, position: int = 5) -> str:
    return sequence[:position] + "*" + sequence[position + 1 :]


def ours(sequences, after=(alphabet.EOS,)) -> torch.Tensor:
    """(B, L) ids with ``*`` hidden, padded on the right."""
    rows = []
    for sequence in sequences:
        row = [*alphabet.encode(sequence.replace("*", "A"))[:-1], *after]
        rows.append(
            torch.tensor(
                [
                    alphabet.MASK if 0 < i <= len(sequence) and sequence[i - 1] == "*" else token
                    for i, token in enumerate(row)
                ]
            )
        )
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=alphabet.PAD)


def columns(name: str) -> tuple[list[int], list[int]]:
    """Where their tokens stand among our logits, and among theirs."""
    tokens = weights.CHECKPOINTS[name].tokens
    return [alphabet.ID[token] for token in tokens], list(range(len(tokens)))


# ------------------------------------------------------------------------------------------------------------- AbLang


@pytest.fixture
def heavy(monkeypatch, tmp_path):
    config = small_family(monkeypatch, "ablang1-heavy", **SIZE)
    reference, hparams = reference_ablang1(config)
    return reference, ablang_folder(reference, hparams, tmp_path / "heavy", "amodel.pt")


def test_ablang_every_layer_and_the_logits(heavy):
    reference, folder = heavy
    model = weights.load_foreign("ablang1-heavy", folder)
    sequences = [hidden(SEQUENCES[0]), *SEQUENCES[1:]]
    theirs = ablang1("tokenizers").ABtokenizer(folder / "vocab.json")(sequences, pad=True)
    tokens = ours(sequences)
    visible = tokens != alphabet.PAD
    assert (theirs != 21).equal(visible)
    with torch.inference_mode():
        embedded = reference.AbRep.AbEmbeddings(theirs)
        states = reference.AbRep.EncoderBlocks(
            embedded, attention_mask=(~visible).float(), output_hidden_states=True
        ).all_hidden_states
        expected = (embedded, *states)
        found = model.hidden_states(tokens)
        logits = model.logits(found[-1])[visible]
        theirs_logits = reference(theirs)[visible]
    assert len(found) == len(expected) == SIZE["layers"] + 1
    for ours_states, their_states in zip(found, expected):
        torch.testing.assert_close(ours_states[visible], their_states[visible], atol=1e-5, rtol=0)
    mine, their = columns("ablang1-heavy")
    torch.testing.assert_close(logits[:, mine], theirs_logits[:, their], atol=1e-5, rtol=1e-5)


def test_ablang_vectors_from_the_folder_and_from_the_file(heavy):
    reference, folder = heavy
    theirs = ablang1("tokenizers").ABtokenizer(folder / "vocab.json")([HEAVY])
    with torch.inference_mode():
        expected = reference.AbRep(theirs[0][None]).last_hidden_states[0, 1:-1]
    for path in (folder, folder / "amodel.pt"):
        encoder = af.load("ablang1-heavy", weights=path, device="cpu")
        np.testing.assert_allclose(encoder.embed_residues([HEAVY])[0], expected, atol=1e-5)
    assert encoder.max_residues == 157


def test_ablang_reads_an_unknown_residue_as_one_to_be_guessed(heavy):
    table = weights.load_foreign("ablang1-heavy", heavy[1]).encoder.embedding.tokens.weight
    for letter in "XBUZO":
        torch.testing.assert_close(table[alphabet.ID[letter]], table[alphabet.MASK])
    assert not torch.equal(table[alphabet.ID["C"]], table[alphabet.MASK])


def test_ablang_with_other_heads_is_refused(heavy):
    """Heads do not show in any shape; the hparams.json beside the weights names them."""
    text = (heavy[1] / "hparams.json").read_text()
    (heavy[1] / "hparams.json").write_text(text.replace('"num_attention_heads": 4', '"num_attention_heads": 8'))
    with pytest.raises(UserError, match=r"hparams\.json says num_attention_heads 8, where 4 is expected"):
        weights.load_foreign("ablang1-heavy", heavy[1])


# ------------------------------------------------------------------------------------------------------------ AbLang2


@pytest.fixture
def paired(monkeypatch, tmp_path):
    config = small_family(monkeypatch, "ablang2-paired", **SIZE)
    reference, hparams = reference_ablang2(config)
    return reference, ablang_folder(reference, hparams, tmp_path / "paired", "model.pt")


def test_ablang2_every_layer_and_the_logits(paired):
    reference, folder = paired
    model = weights.load_foreign("ablang2-paired", folder)
    sequences = [hidden(SEQUENCES[0]), *SEQUENCES[1:]]
    theirs = Tokenizer2()([(sequence, "") for sequence in sequences], pad=True)
    tokens = ours(sequences, model.config.after)
    visible = tokens != alphabet.PAD
    assert (theirs != 21).equal(visible)
    last = SIZE["layers"]
    with torch.inference_mode():
        expected = reference.AbRep(theirs, return_rep_layers=list(range(last + 1)))
        states = [expected.many_hidden_states[layer] for layer in range(last)] + [expected.last_hidden_states]
        found = model.hidden_states(tokens)
        logits = model.logits(found[-1])[visible]
        theirs_logits = reference(theirs)[visible]
    for ours_states, their_states in zip(found, states, strict=True):
        torch.testing.assert_close(ours_states[visible], their_states[visible], atol=1e-5, rtol=0)
    mine, their = columns("ablang2-paired")
    torch.testing.assert_close(logits[:, mine], theirs_logits[:, their], atol=1e-5, rtol=1e-5)


def test_ablang2_attention_maps(paired):
    reference, folder = paired
    model = weights.load_foreign("ablang2-paired", folder)
    with torch.inference_mode():
        expected = reference(Tokenizer2()([(HEAVY, "")], pad=True), return_attn_weights=True)
        found = model.attention_maps(ours([HEAVY], model.config.after))
    for ours_map, their_map in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_map, their_map, atol=1e-5, rtol=0)


def test_ablang2_a_single_chain_is_read_as_it_was_trained(paired, tmp_path):
    """``<CHAIN>|``, whatever the batch, with vectors for the residues alone; also from files of our own."""
    reference, folder = paired
    encoder = af.load("ablang2-paired", weights=folder / "model.pt", device="cpu")
    weights.save(encoder.model, tmp_path / "own")
    for loaded in (encoder, af.load(tmp_path / "own", device="cpu")):
        found = loaded.embed_residues(SEQUENCES)
        for sequence, vectors in zip(SEQUENCES, found, strict=True):
            theirs = Tokenizer2()([(sequence, "")])[0][None]
            assert theirs[0, [0, -2, -1]].tolist() == [0, 22, 25]  # < > |
            with torch.inference_mode():
                expected = reference.AbRep(theirs).last_hidden_states[0, 1:-2]
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_ablang2_guesses_hidden_residues_as_theirs_does(paired):
    reference, folder = paired
    encoder = TransformerEncoder(weights.load_foreign("ablang2-paired", folder), "ablang2-paired", "cpu")
    theirs = Tokenizer2()([(hidden(SEQUENCES[1], 4), "")])[0][None]
    vocabulary = weights.CHECKPOINTS["ablang2-paired"].tokens
    with torch.inference_mode():
        expected = reference(theirs)[0, 5, [vocabulary.index(letter) for letter in alphabet.AMINO_ACIDS]].softmax(-1)
    np.testing.assert_allclose(encoder.masked_profile(SEQUENCES[1], [4])[0], expected, atol=1e-5)


def test_ablang2_has_an_unknown_residue_of_its_own(paired):
    reference, folder = paired
    table = weights.load_foreign("ablang2-paired", folder).encoder.embedding.tokens.weight
    theirs = reference.AbRep.aa_embed_layer.weight
    torch.testing.assert_close(table[alphabet.ID["X"]], theirs[24])
    torch.testing.assert_close(table[alphabet.ID["B"]], theirs[24])
    torch.testing.assert_close(table[alphabet.ID["<null_1>"]], theirs[25])


@pytest.mark.parametrize("name", ["ablang1-heavy", "ablang1-light", "ablang2-paired"])
def test_the_published_size_has_their_shapes(name):
    with torch.device("meta"):
        reference = (reference_ablang2 if name == "ablang2-paired" else reference_ablang1)(FAMILIES[name])[0]
        expected = Transformer(dataclasses.replace(FAMILIES[name])).state_dict()
    mapped = weights._map_state(name, reference.state_dict())
    assert {k: v.shape for k, v in mapped.items()} == {k: v.shape for k, v in expected.items()}
