"""The core by itself: masks, norms, feed-forwards, positions, the toy receptor of the source documents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_models import token_batch
from torch import nn

from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.positions import Sight, rotate, sinusoidal
from airrformer.core.transformer import Transformer, initialise


def small(**changes) -> Transformer:
    settings = dict(layers=2, width=16, heads=2, feed_forward=32, max_length=160) | changes
    model = Transformer(ModelConfig(**settings))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_equals_torch_encoder_layer(place, activation):
    config = ModelConfig(width=16, heads=4, feed_forward=32, norm_place=place, activation=activation, positions="none")
    block = Transformer(config).encoder.blocks[0].eval()
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, activation=activation, batch_first=True, norm_first=place == "pre"
    ).eval()
    layer.self_attn.in_proj_weight.data = block.attention.qkv.weight.data
    layer.self_attn.in_proj_bias.data = block.attention.qkv.bias.data
    for theirs, ours in (
        (layer.self_attn.out_proj, block.attention.output), (layer.linear1, block.feed_forward.inner.linear),
        (layer.linear2, block.feed_forward.output), (layer.norm1, block.attention_norm),
        (layer.norm2, block.feed_forward_norm),
    ):  # fmt: skip
        theirs.load_state_dict(ours.state_dict())
    x, seen = torch.randn(3, 7, 16), torch.arange(7) < torch.tensor([[7], [3], [5]])
    with torch.no_grad():  # grad mode off would take torch's fast path; both paths agree
        expected = layer(x, src_key_padding_mask=~seen)
        ours = block(x, Sight(seen[:, None, None, :]))
    torch.testing.assert_close(ours[seen], expected[seen], atol=1e-5, rtol=0)


def test_without_positions_a_swap_of_residues_swaps_two_rows():
    model = small(positions="none")
    a, b = (torch.tensor([alphabet.encode(s)]) for s in ("CAWSF", "CWASF"))
    torch.testing.assert_close(model(a)[0, [0, 1, 3, 2, 4, 5, 6]], model(b)[0], atol=1e-6, rtol=0)
    with_positions = small(positions="rotary")
    assert not torch.allclose(with_positions(a)[0, 2], with_positions(b)[0, 3], atol=1e-4)


def test_rotary_scores_depend_on_the_distance_alone():
    """One pair, theta 0.5, q = k = [1, 0]: positions (3, 1) and (10, 8) give cos(1), (4, 1) gives cos(1.5)."""

    def score(i: int, j: int) -> float:
        at = lambda p: rotate(torch.tensor([1.0, 0.0]), torch.tensor([0.5 * p]).cos(), torch.tensor([0.5 * p]).sin())  # noqa: E731
        return float(at(i) @ at(j))

    assert score(3, 1) == pytest.approx(0.540, abs=5e-4) == score(10, 8)
    assert score(4, 1) == pytest.approx(0.071, abs=5e-4)


def test_sinusoidal_table_of_the_original_paper():
    table = sinusoidal(torch.arange(11), 512)
    np.testing.assert_allclose(table[1, :4], [0.8415, 0.5403, 0.8219, 0.5697], atol=5e-5)
    cosine = lambda i, j: float(torch.cosine_similarity(table[i], table[j], dim=0))  # noqa: E731
    assert cosine(0, 1) == pytest.approx(0.9731, abs=5e-5) and cosine(0, 10) == pytest.approx(0.6789, abs=5e-5)


def test_padding_of_any_length_changes_nothing():
    model, tokens = small(), token_batch()
    wide = nn.functional.pad(tokens, (0, 9), value=alphabet.PAD)
    seen = tokens != alphabet.PAD
    torch.testing.assert_close(model(wide)[:, : tokens.shape[1]][seen], model(tokens)[seen], atol=1e-5, rtol=0)


def test_a_row_without_any_token_never_reaches_attention():
    with pytest.raises(ValueError, match="without any visible token"):
        small()(torch.full((1, 4), alphabet.PAD))


def test_too_long_an_input_is_refused():
    with pytest.raises(ValueError, match=r"161 tokens .* window is 160"):
        small(positions="learned")(torch.tensor([alphabet.encode("A" * 159)]))


def test_gradients_reach_every_parameter():
    for changes in ({}, {"norm": "rms", "activation": "swiglu"}, {"positions": "learned", "norm_place": "post"}):
        model = small(**changes).train()
        tokens = token_batch()
        model.logits(model(tokens))[tokens != alphabet.PAD].logsumexp(-1).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_no_token_can_be_written_as_text():
    with pytest.raises(ValueError, match="'<' at position 2 is no residue"):
        alphabet.encode("CA<mask>F")


def test_config_says_what_cannot_be():
    with pytest.raises(ValueError, match="width 10 is not a multiple of heads 4"):
        ModelConfig(width=10, heads=4)
    with pytest.raises(ValueError, match="learned positions need max_length"):
        ModelConfig(positions="learned")
    with pytest.raises(ValueError, match="unknown ModelConfig fields: layrs"):
        ModelConfig.from_dict({"layrs": 2})
    config = FAMILIES["esm2_t12_35M_UR50D"]
    assert ModelConfig.from_dict(config.to_dict()) == config


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 1000))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = token_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches)


# ------------------------------------------------------------------ the toy receptor CASSIRSSYEQYF, worked by hand

HYDROPATHY = dict(zip("ACEFIQRSY", (1.8, 2.5, -3.5, 2.8, 4.5, -3.5, -4.5, -0.8, -1.3)))


def toy_input(cdr3: str = "CASSIRSSYEQYF") -> np.ndarray:
    """(13, 8): hydropathy, charge, polarity, aromaticity, and two sines and cosines of the position."""
    rows = []
    for p, aa in enumerate(cdr3):
        chemistry = [round(HYDROPATHY[aa] / 4.5, 2), (aa in "KR") - (aa in "DE"), aa in "STNQYH", aa in "FWY"]
        rows.append([*chemistry, np.sin(p), np.cos(p), np.sin(p / 3), np.cos(p / 3)])
    return np.array(rows, dtype=np.float64)


def toy_weights() -> dict[str, np.ndarray]:
    hyd, chg, pol, aro, _, _, p2s, p2c = range(8)
    w = {name: np.zeros((4, 8, 2)) for name in "QKV"}
    w["Q"][0, chg, 0], w["K"][0, chg, 0], w["V"][0, chg, 0] = 2, -2, 1
    w["Q"][0, pol, 1], w["K"][0, pol, 1], w["V"][0, pol, 1] = 1.5, 1.5, 1
    for name in "QK":
        w[name][1, hyd, 0], w[name][1, aro, 1] = 2, 1.5
    w["V"][1, hyd, 0], w["V"][1, aro, 1] = 1, 1
    for head, d in ((2, -1), (3, 1)):
        c, s = 50 * np.cos(1 / 3), 50 * d * np.sin(1 / 3)
        w["Q"][head, p2s, 0], w["Q"][head, p2c, 0], w["Q"][head, p2s, 1], w["Q"][head, p2c, 1] = c, s, -s, c
        w["K"][head, p2s, 0], w["K"][head, p2c, 1] = 1, 1
        w["V"][head, hyd, 0], w["V"][head, chg, 1] = 1, 1
    return w


def test_the_toy_receptor_comes_out_of_the_core():
    """Four hand-set heads loaded into the core's attention; the numbers are those of the source document."""
    config = ModelConfig(width=8, heads=4, feed_forward=32, positions="none", bias=False)
    attention = Transformer(config).encoder.blocks[0].attention
    w = toy_weights()
    fused = np.concatenate([w[name].transpose(0, 2, 1).reshape(8, 8) for name in "QKV"])
    attention.qkv.weight.data = torch.tensor(fused, dtype=torch.float32)
    attention.output.weight.data = torch.eye(8)
    x = toy_input()
    with torch.no_grad():
        residues = torch.tensor(x, dtype=torch.float32)[None]
        context = attention(residues, residues, Sight())[0].numpy()

    scores = np.einsum("lhk,mhk->hlm", *(np.einsum("ld,hdk->lhk", x, w[name]) for name in "QK")) / np.sqrt(2)
    a = np.exp(scores - scores.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    by_hand = np.einsum("hlm,md,hdk->lhk", a, x, w["V"]).reshape(13, 8)
    np.testing.assert_allclose(context, by_hand, atol=1e-5)

    np.testing.assert_allclose(a[0, 5], [0.036] * 5 + [0.002] + [0.036] * 3 + [0.605] + [0.036] * 3, atol=5e-4)
    np.testing.assert_allclose(context[5, :2], [-0.603, 0.25], atol=5e-3)
    serines = {
        2: [0.35, 0, -0.05, 0],
        3: [-0.11, 0, 0.65, 0.11],
        6: [-0.69, 0.78, -0.19, 0],
        7: [-0.27, 0.11, -0.33, -0.11],
    }
    for position, neighbours in serines.items():
        np.testing.assert_allclose(context[position], [0, 0.85, -0.26, 0.21, *neighbours], atol=1e-2)
