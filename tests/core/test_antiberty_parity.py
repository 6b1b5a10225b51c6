"""AntiBERTy: real weights from its wheel, equal to Hugging Face's BertModel on every layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from reference_models import token_batch
from transformers import BertConfig, BertForMaskedLM

from airrformer.core import alphabet, weights

WEIGHTS = Path(weights.find_local("antiberty") or "antiberty-is-not-installed")
HEAVY = "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYC"
TOKENS = token_batch((HEAVY, "CAAPYCSSISCNDGFDIW", "DIQMTQSPSSLSASVGDRVTITCRASQGISSWLA"))
VISIBLE = TOKENS != alphabet.PAD
THEIR_ID = {token: i for i, token in enumerate((WEIGHTS.parents[1] / "vocab.txt").read_text().split())}


@pytest.fixture(scope="module")
def reference() -> BertForMaskedLM:
    config = BertConfig(**json.loads((WEIGHTS.parent / "config.json").read_text()), attn_implementation="eager")
    model = BertForMaskedLM(config)
    state = torch.load(WEIGHTS, map_location="cpu", weights_only=True)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and all(
        key.startswith(("bert.pooler", "cls.species", "cls.chain", "cls.graft")) or key.endswith("position_ids")
        for key in unexpected
    )
    return model.eval()


def theirs(tokens: torch.Tensor) -> torch.Tensor:
    names = {"<cls>": "[CLS]", "<pad>": "[PAD]", "<eos>": "[SEP]", "<mask>": "[MASK]"}
    row = torch.tensor([THEIR_ID.get(names.get(t, t), THEIR_ID["[UNK]"]) for t in alphabet.TOKENS])
    return row[tokens]


def test_every_layer_and_the_logits_equal_bert(reference):
    ours = weights.load_foreign("antiberty", WEIGHTS)
    with torch.inference_mode():
        expected = reference(theirs(TOKENS), attention_mask=VISIBLE.long(), output_hidden_states=True)
        hidden = ours.hidden_states(TOKENS)
        logits = ours.logits(hidden[-1])[VISIBLE]
    assert len(hidden) == 9
    for layer, states in enumerate(expected.hidden_states):
        torch.testing.assert_close(hidden[layer][VISIBLE], states[VISIBLE], atol=1e-5, rtol=0)
    columns = [THEIR_ID[letter] for letter in alphabet.AMINO_ACIDS]
    torch.testing.assert_close(
        logits[:, list(alphabet.AMINO_ACID_IDS)], expected.logits[VISIBLE][:, columns], atol=1e-4, rtol=1e-5
    )


def test_real_weights_know_the_cysteine():
    """C104 hidden in a whole heavy chain: a trained model is all but certain of it."""
    ours = weights.load_foreign("antiberty", WEIGHTS)
    tokens = torch.tensor([alphabet.encode(HEAVY + "AAPYCSSISCNDGFDIWGQGTMVTVSS")])
    position = len(HEAVY)  # the C that ends HEAVY: + 1 for the start token, - 1 for counting from 0
    tokens[0, position] = alphabet.MASK
    with torch.inference_mode():
        p = ours.logits(ours(tokens))[0, position, list(alphabet.AMINO_ACID_IDS)].softmax(-1)
    assert p[alphabet.AMINO_ACIDS.index("C")] > 0.9


def test_a_letter_that_antiberty_lacks_takes_its_unknown_row():
    ours = weights.load_foreign("antiberty", WEIGHTS)
    table = ours.encoder.embedding.tokens.weight
    torch.testing.assert_close(table[alphabet.ID["U"]], table[alphabet.UNK])
    assert not torch.equal(table[alphabet.ID["C"]], table[alphabet.UNK])


def test_longer_than_its_window_is_refused_before_the_model_runs():
    ours = weights.load_foreign("antiberty", WEIGHTS)
    with pytest.raises(ValueError, match=r"513 tokens .* window is 512"):
        ours(torch.tensor([alphabet.encode("A" * 511)]))
