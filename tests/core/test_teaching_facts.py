"""The worked examples of the source documents, from the core with their weights, and NumPy by itself beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from airrformer.core.config import ModelConfig
from airrformer.core.positions import POSITIONS, Sight, sinusoidal
from airrformer.core.transformer import Attention, Block, Transformer


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ------------------------------------------------------ one receptor: CASSIRSSYEQYF in four heads that were set by hand

CDR3 = "CASSIRSSYEQYF"
HYDROPATHY = dict(zip("ACEFIQRSY", (1.8, 2.5, -3.5, 2.8, 4.5, -3.5, -4.5, -0.8, -1.3)))  # Kyte and Doolittle 1982
HYD, CHG, POL, ARO, P1S, P1C, P2S, P2C = range(8)
TOY = ModelConfig(width=8, heads=4, feed_forward=32, positions="none", bias=False)


def toy_input() -> np.ndarray:
    """(13, 8): hydropathy, charge, polarity, aromaticity, and two sines and cosines of the position."""
    rows = []
    for p, aa in enumerate(CDR3):
        chemistry = [round(HYDROPATHY[aa] / 4.5, 2), (aa in "KR") - (aa in "DE"), aa in "STNQYH", aa in "FWY"]
        rows.append([*chemistry, np.sin(p), np.cos(p), np.sin(p / 3), np.cos(p / 3)])
    return np.array(rows, dtype=np.float64)


def toy_weights() -> dict[str, np.ndarray]:
    """W_Q, W_K and W_V (head, input, column)."""
    w = {name: np.zeros((4, 8, 2)) for name in "QKV"}
    w["Q"][0, CHG, 0], w["K"][0, CHG, 0], w["V"][0, CHG, 0] = 2, -2, 1
    w["Q"][0, POL, 1], w["K"][0, POL, 1], w["V"][0, POL, 1] = 1.5, 1.5, 1
    for name in "QK":
        w[name][1, HYD, 0], w[name][1, ARO, 1] = 2, 1.5
    w["V"][1, HYD, 0], w["V"][1, ARO, 1] = 1, 1
    for head, d in ((2, -1), (3, 1)):
        c, s = 50 * np.cos(1 / 3), 50 * d * np.sin(1 / 3)
        w["Q"][head, P2S, 0], w["Q"][head, P2C, 0], w["Q"][head, P2S, 1], w["Q"][head, P2C, 1] = c, s, -s, c
        w["K"][head, P2S, 0], w["K"][head, P2C, 1] = 1, 1
        w["V"][head, HYD, 0], w["V"][head, CHG, 1] = 1, 1
    return w


def load_heads(attention: Attention) -> None:
    """The four heads into the fused rows of the core, one row a column of a head; W_O is the identity."""
    fused = np.concatenate([toy_weights()[name].transpose(0, 2, 1).reshape(8, 8) for name in "QKV"])
    attention.qkv.weight.data = torch.tensor(fused, dtype=torch.float32)
    attention.output.weight.data = torch.eye(8)


@pytest.fixture(scope="module")
def toy() -> tuple[np.ndarray, np.ndarray]:
    """From the core: attention weights (4, 13, 13) and context (13, 8)."""
    attention = Attention(TOY)
    load_heads(attention)
    x, maps = torch.tensor(toy_input(), dtype=torch.float32)[None], []
    with torch.no_grad():
        in_the_open = attention(x, x, Sight(), maps=maps)
        context = attention(x, x, Sight())
    torch.testing.assert_close(in_the_open, context, atol=1e-5, rtol=0)
    return maps[0][0].numpy(), context[0].numpy()


def toy_by_hand() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores and weights (4, 13, 13) and context (13, 8) in NumPy."""
    x, w = toy_input(), toy_weights()
    q, k, v = (np.einsum("ld,hdk->hlk", x, w[name]) for name in "QKV")
    scores = q @ k.transpose(0, 2, 1)
    weights = softmax(scores / np.sqrt(2))
    return scores, weights, (weights @ v).transpose(1, 0, 2).reshape(13, 8)


def test_the_toy_receptor_comes_out_of_the_core(toy):
    weights, context = toy
    _, weights_by_hand, context_by_hand = toy_by_hand()
    np.testing.assert_allclose(weights, weights_by_hand, atol=1e-5)
    np.testing.assert_allclose(context, context_by_hand, atol=1e-5)


def test_the_arginine_looks_at_the_glutamate(toy):
    """Head 1: scores +4 to E, -4 to itself, 0 elsewhere; so the softmax has a closed form."""
    weights, context = toy
    r, e = CDR3.index("R"), CDR3.index("E")
    scores, _, _ = toy_by_hand()
    expected = np.zeros(13)
    expected[e], expected[r] = 4, -4
    np.testing.assert_allclose(scores[0, r], expected, atol=1e-12)

    up = 2 * math.sqrt(2)
    closed = np.exp(expected / math.sqrt(2)) / (math.exp(up) + 11 + math.exp(-up))
    np.testing.assert_allclose(weights[0, r], closed, atol=1e-6)
    np.testing.assert_allclose(weights[0, r], [0.036] * 5 + [0.002] + [0.036] * 3 + [0.605] + [0.036] * 3, atol=5e-4)
    np.testing.assert_allclose(context[r, :2], [-0.603, 0.25], atol=5e-4)


def test_four_serines_are_equal_before_attention_and_not_after(toy):
    _, context = toy
    serines = [p for p, aa in enumerate(CDR3) if aa == "S"]
    assert serines == [2, 3, 6, 7]
    np.testing.assert_array_equal(toy_input()[serines, :4], [[-0.18, 0, 1, 0]] * 4)
    expected = [
        [0, 0.85, -0.26, 0.21, 0.35, 0, -0.05, 0],
        [0, 0.85, -0.26, 0.21, -0.11, 0, 0.65, 0.11],
        [0, 0.85, -0.26, 0.21, -0.69, 0.78, -0.19, 0],
        [0, 0.85, -0.26, 0.21, -0.27, 0.11, -0.33, -0.11],
    ]
    np.testing.assert_allclose(context[serines], expected, atol=5.1e-3)  # two decimals


def test_one_head_looks_back_and_one_ahead(toy):
    weights, _ = toy
    back, ahead = weights[2], weights[3]
    assert (back.argmax(1)[1:] == np.arange(12)).all() and (ahead.argmax(1)[:-1] == np.arange(1, 13)).all()
    assert min(back[np.arange(1, 13), np.arange(12)].min(), ahead[np.arange(12), np.arange(1, 13)].min()) > 0.75
    # Scores are 50 cos((q - k + d) / 3): a function of the distance, greatest where the neighbour stands.
    scores, _, _ = toy_by_hand()
    distance = np.subtract.outer(np.arange(13), np.arange(13))
    for head, d in ((2, -1), (3, 1)):
        np.testing.assert_allclose(scores[head], 50 * np.cos((distance + d) / 3), atol=1e-9)


def test_a_whole_block_equals_torch_and_numpy():
    """Pre-norm, GELU by erf, 8 -> 32 -> 8; no biases, norms without weights: 256 and 512 numbers."""
    block = Block(TOY)
    load_heads(block.attention)
    generator = torch.Generator().manual_seed(0)
    for linear in (block.attention.output, block.feed_forward.inner.linear, block.feed_forward.output):
        linear.weight.data = torch.randn(linear.weight.shape, generator=generator) * 0.3
    counted = ModelConfig(layers=1, width=8, heads=4, feed_forward=32, positions="none", bias=False).parameters()
    assert (counted["attention"], counted["feed_forward"]) == (256, 512)
    assert sum(p.numel() for p in block.attention.parameters()) == 256
    assert sum(p.numel() for p in block.feed_forward.parameters()) == 512

    layer = nn.TransformerEncoderLayer(
        8, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=False
    )
    layer.self_attn.in_proj_weight.data = block.attention.qkv.weight.data
    layer.self_attn.out_proj.weight.data = block.attention.output.weight.data
    layer.linear1.weight.data = block.feed_forward.inner.linear.weight.data
    layer.linear2.weight.data = block.feed_forward.output.weight.data
    x = torch.tensor(toy_input(), dtype=torch.float32)[None]
    with torch.no_grad():
        ours, theirs = block(x, Sight()), layer(x)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)

    w = toy_weights()
    w_o, w_1, w_2 = (
        linear.weight.detach().double().numpy().T
        for linear in (block.attention.output, block.feed_forward.inner.linear, block.feed_forward.output)
    )
    norm = lambda y: (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)  # noqa: E731
    gelu = np.vectorize(lambda y: y * 0.5 * (1 + math.erf(y / math.sqrt(2))))
    y = toy_input()
    q, k, v = (np.einsum("ld,hdk->hlk", norm(y), w[name]) for name in "QKV")
    y = y + (softmax(q @ k.transpose(0, 2, 1) / np.sqrt(2)) @ v).transpose(1, 0, 2).reshape(13, 8) @ w_o
    y = y + gelu(norm(y) @ w_1) @ w_2
    np.testing.assert_allclose(ours[0].numpy(), y, atol=1e-5)


# ----------------------------------------------------------- five tokens: "the cat climbed the", width 4, vocabulary 12

SENTENCE = [0, 2, 4, 5, 1]  # the, _cat, _climb, ed, _the
EMBEDDING = np.array([
    [-0.5, -0.5, 0, 1], [-0.5, 0, -0.5, 1], [1, -0.5, 0, -0.5], [1, -0.5, -0.5, 0], [-0.5, 1, 0, -0.5],
    [0, 0.5, -0.5, 0], [0, -0.5, 1, -0.5], [1, 0, -1, 0], [0.5, -0.5, -0.5, 0.5], [0.5, 0, -0.5, 0],
    [0, 0, 1, -1], [0.5, -0.5, 0.5, -0.5],
])  # fmt: skip
LEARNED = np.array([[0, 0, 0, 0], [0.5, 0, -0.5, 0], [0, 0.5, 0, -0.5], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]])


def five_tokens(positions: str) -> Transformer:
    """The table of the example in the core. Padding is the last id, which the sentence lacks."""
    config = ModelConfig(
        layers=1, width=4, heads=1, feed_forward=8, alphabet_size=12, pad=11, mask=10, positions=positions, max_length=5
    )
    model = Transformer(config).eval()
    model.encoder.embedding.tokens.weight.data = torch.tensor(EMBEDDING, dtype=torch.float32)
    if positions == "learned":
        model.encoder.positions.table.weight.data = torch.tensor(LEARNED, dtype=torch.float32)
    return model


def embedded(model: Transformer, ids: list[int]) -> Tensor:
    with torch.no_grad():
        return model.hidden_states(torch.tensor([ids]), (0,))[0][0]


def test_token_plus_position_is_what_enters_the_first_block():
    x = embedded(five_tokens("learned"), SENTENCE).numpy()
    expected = [
        [-0.5, -0.5, 0, 1],
        [1.5, -0.5, -0.5, -0.5],
        [-0.5, 1.5, 0, -1],
        [-0.5, 0.5, 0, 0],
        [-0.5, -0.5, -0.5, 1.5],
    ]
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(x, EMBEDDING[SENTENCE] + LEARNED)


def test_a_swap_of_cat_and_climb():
    """Without positions two rows trade places; with them _cat at position 3 is another vector."""
    swapped = [0, 4, 2, 5, 1]
    without = five_tokens("none")
    torch.testing.assert_close(embedded(without, swapped), embedded(without, SENTENCE)[[0, 2, 1, 3, 4]])
    with torch.no_grad():  # and so it stays through attention
        after, before = without(torch.tensor([swapped])), without(torch.tensor([SENTENCE]))
    torch.testing.assert_close(after, before[:, [0, 2, 1, 3, 4]], atol=1e-6, rtol=0)

    learned = embedded(five_tokens("learned"), swapped)
    np.testing.assert_array_equal(learned[2].numpy(), [1, 0, 0, -1])
    assert not torch.equal(learned[2], embedded(five_tokens("learned"), SENTENCE)[1])


def test_sinusoidal_rows_at_width_four():
    rows = (embedded(five_tokens("sinusoidal"), SENTENCE) - embedded(five_tokens("none"), SENTENCE)).numpy()
    np.testing.assert_allclose(rows[:3], [[0, 1, 0, 1], [0.841, 0.540, 0.010, 1], [0.909, -0.416, 0.020, 1]], atol=5e-4)
    p = np.arange(5)
    by_hand = np.stack([np.sin(p), np.cos(p), np.sin(p / 100), np.cos(p / 100)], axis=1)
    np.testing.assert_allclose(rows, by_hand, atol=1e-6)


def test_rotary_figures_of_one_pair():
    """theta 0.5, q = k = [1, 0]: positions (3, 1) and (10, 8) give cos(1), (4, 1) gives cos(1.5)."""
    config = ModelConfig(width=2, heads=1, feed_forward=2, positions="rotary", bias=False, attn_scale=1.0)
    attention, positions = Attention(config), POSITIONS["rotary"](config)
    attention.qkv.weight.data = torch.eye(2).repeat(3, 1)
    positions.inv_freq.fill_(0.5)
    x, at, maps = torch.tensor([1.0, 0.0]).repeat(1, 11, 1), torch.arange(11), []
    with torch.no_grad():
        attention(x, x, Sight(rotation=positions.turn(at)), maps=maps)
    log = maps[0][0, 0].log()
    scores = 1 + log - log.diagonal()[:, None]  # a softmax forgets what a row has in common; score (i, i) is |q|^2 = 1
    assert float(scores[3, 1]) == pytest.approx(0.540, abs=5e-4) == float(scores[10, 8])
    assert float(scores[4, 1]) == pytest.approx(0.071, abs=5e-4)
    np.testing.assert_allclose(scores, np.cos(0.5 * np.subtract.outer(np.arange(11), np.arange(11))), atol=1e-5)


def test_only_tokens_in_the_batch_move_the_table_and_repetitions_add_up():
    model = five_tokens("learned")
    batch = torch.tensor([[0, 2, 4, 0, 1], [2, 2, 2, 5, 1]])
    x = model.hidden_states(batch, (0,))[0]
    pull = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    (x * pull).sum().backward()
    expected = np.zeros((12, 4))
    np.add.at(expected, batch.numpy(), pull.numpy())
    gradient = model.encoder.embedding.tokens.weight.grad.numpy()
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert (gradient[[3, 6, 7, 8, 9, 10, 11]] == 0).all() and (gradient[[0, 1, 2, 4, 5]] != 0).all()


def test_a_third_of_gpt_2_is_embeddings():
    gpt2 = ModelConfig(
        form="decoder", layers=12, width=768, heads=12, feed_forward=3072, activation="gelu_tanh", alphabet_size=50_257,
        pad=50_256, mask=50_256, positions="learned", max_length=1024, head="linear", output_bias=False, tied=True,
    )  # fmt: skip
    parts = gpt2.parameters()
    assert parts["embedding"] == (50_257 + 1024) * 768 and parts["output"] == 0
    tokens, whole = 50_257 * 768, sum(parts.values())
    assert round(tokens / 1e6, 1) == 38.6 and whole == 124_439_808 and round(100 * tokens / whole) == 31
    with torch.device("meta"):
        assert sum(p.numel() for p in Transformer(gpt2).parameters()) == whole


# --------------------------------------------------------------------------------------------- the original, width 512


def test_sinusoidal_table_of_the_original_paper():
    table = sinusoidal(torch.arange(200), 512).double().numpy()
    np.testing.assert_allclose(table[1, :4], [0.8415, 0.5403, 0.8219, 0.5697], atol=5e-5)
    cosine = lambda i, j: table[i] @ table[j] / np.linalg.norm(table[i]) / np.linalg.norm(table[j])  # noqa: E731
    assert cosine(0, 1) == pytest.approx(0.9731, abs=5e-5) and cosine(0, 10) == pytest.approx(0.6789, abs=5e-5)

    angles = np.outer(np.arange(200), 10_000.0 ** (-np.arange(0, 512, 2) / 512))
    np.testing.assert_allclose(table, np.stack([np.sin(angles), np.cos(angles)], 2).reshape(200, 512), atol=5e-5)


@pytest.mark.parametrize(
    "dimension, period", [(0, 6.3), (128, 62.8), (256, 628.3), (510, 60_611.5)], ids=lambda value: str(value)
)
def test_periods_of_the_sinusoidal_table(dimension, period):
    """How far a pair of columns turns from one position to the next says after how many it is back."""
    sine, cosine = sinusoidal(torch.tensor([1]), 512)[0, dimension : dimension + 2].double().tolist()
    assert 2 * math.pi / math.atan2(sine, cosine) == pytest.approx(period, abs=0.05, rel=2e-6)
    assert 2 * math.pi * 10_000 ** (dimension / 512) == pytest.approx(period, abs=0.05)


def test_parameters_of_the_original_base_model():
    config = ModelConfig(
        form="encoder-decoder", layers=6, width=512, heads=8, feed_forward=2048, activation="relu", alphabet_size=8_000,
        source_alphabet_size=10_000, embedding_scale=True, positions="sinusoidal", norm_place="post", final_norm=False,
        head="linear", tied=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = Transformer(config)
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    encoder, decoder = model.encoder.blocks, model.decoder.blocks
    assert count(encoder[0].attention) == count(decoder[0].cross_attention) == 1_050_624 == 4 * 512 * 512 + 4 * 512
    assert count(encoder[0].feed_forward) == 2_099_712 == 2 * 512 * 2048 + 2048 + 512
    assert count(encoder[0]) == 3_152_384 == 1_050_624 + 2_099_712 + 2 * 1024
    assert count(decoder[0]) == 4_204_032 == 2 * 1_050_624 + 2_099_712 + 3 * 1024
    assert count(encoder) + count(decoder) == 44_138_496
    tables = count(model.encoder.embedding) + count(model.decoder.embedding)
    assert tables + count(model.head) == 13_320_000
    assert count(model) == 57_458_496

    parts = config.parameters()
    assert sum(parts.values()) == 57_458_496
    assert parts["embedding"] + parts["output"] == 13_320_000
    assert parts["attention"] + parts["feed_forward"] + parts["norms"] == 44_138_496
    assert parts["attention"] == 18 * 1_050_624 and parts["feed_forward"] == 12 * 2_099_712


def test_gpt_3_by_the_same_count():
    """Attention and feed-forward are 12 L d^2 but for the biases, and two thirds of it is feed-forward."""
    layers, width = 96, 12_288
    parts = ModelConfig(
        form="decoder", layers=layers, width=width, heads=96, feed_forward=4 * width, alphabet_size=50_257, pad=50_256,
        mask=50_256, positions="learned", max_length=2048, head="linear", output_bias=False,
    ).parameters()  # fmt: skip
    blocks = parts["attention"] + parts["feed_forward"]
    assert round(blocks / 1e9) == 174
    assert blocks == pytest.approx(12 * layers * width**2, rel=1e-4)
    assert parts["feed_forward"] / blocks == pytest.approx(2 / 3, abs=1e-4)
    assert round(sum(parts.values()) / 1e9) == 175  # as published, with the embeddings


# ----------------------------------------------------------------------------------------------- why 1 / sqrt(d_k)


def largest_weights(scale: float | None, draws: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Of random queries on 13 random keys of 64 numbers: the scores (draws, 13), and each draw's largest weight."""
    attention = Attention(
        ModelConfig(width=64, heads=1, feed_forward=1, positions="none", bias=False, attn_scale=scale)
    )
    attention.qkv.weight.data = torch.eye(64).repeat(3, 1)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(draws, 1, 64, generator=generator)
    keys, maps = torch.randn(draws, 13, 64, generator=generator), []
    with torch.no_grad():
        attention(query, keys, Sight(), maps=maps)
    scores = np.einsum("nd,nkd->nk", query[:, 0].numpy(), keys.numpy())
    weights = maps[0][:, 0, 0].numpy()
    np.testing.assert_allclose(weights, softmax(scores * (1 / 8 if scale is None else scale)), atol=1e-5)
    return scores, weights.max(1)


def test_without_the_root_of_d_k_one_key_takes_all():
    """Scores have std 8, and are 6.4 away from 0 on average: the documents' "about +-6".

    The documents' 99.8 % and 33 % are one draw, and such as one in four is. Over many draws the largest of 13 weights
    is 94 % (median), and 25 % once the scores are divided by 8; even shares would be 8 %.
    """
    scores, raw = largest_weights(scale=1.0)
    _, scaled = largest_weights(scale=None)
    assert scores.std() == pytest.approx(8, abs=0.1) and np.abs(scores).mean() == pytest.approx(6.4, abs=0.1)
    assert np.median(raw) == pytest.approx(0.942, abs=0.01)
    assert np.median(scaled) == pytest.approx(0.253, abs=0.005)
    quarter = np.quantile(raw, 0.75), np.quantile(scaled, 0.75)
    assert quarter == pytest.approx((0.996, 0.324), abs=0.004)
    assert 0.15 < np.mean(raw > 0.998) < 0.25 and 0.18 < np.mean(scaled > 0.33) < 0.28
    the_documents = (abs(raw - 0.998) < 0.0005) & (abs(scaled - 0.33) < 0.005)
    assert the_documents.any() and np.abs(scores[the_documents]).mean() == pytest.approx(6.4, abs=1.0)


def test_scores_of_wide_heads_grow_and_scaled_ones_do_not():
    generator = torch.Generator().manual_seed(1)
    for width in (16, 64, 256):
        q, k = (torch.randn(20_000, width, generator=generator) for _ in "qk")
        scores = (q * k).sum(1)
        assert float(scores.std()) == pytest.approx(math.sqrt(width), rel=0.02)
        scale = Attention(ModelConfig(width=width, heads=1, feed_forward=1, positions="none")).scale
        assert float((scale * scores).std()) == pytest.approx(1, rel=0.02)


# ------------------------------------------------------------------------- attention is no measure of importance


def test_the_key_that_is_looked_at_most_may_not_matter_at_all(toy):
    """R looks at E with 0.605, and the second number of its context does not change when E is taken out of the values.

    That number, 0.25, is the sum over seven polar residues that get 0.036 each.
    """
    weights, context = toy
    r, e = CDR3.index("R"), CDR3.index("E")
    values = toy_input() @ toy_weights()["V"][0]
    np.testing.assert_allclose(weights[0, r] @ values, context[r, :2], atol=1e-5)
    ablated = values.copy()
    ablated[e] = 0
    polar = values.copy()
    polar[[aa in "SYQ" for aa in CDR3]] = 0
    assert weights[0, r].argmax() == e
    assert (weights[0, r] @ ablated)[1] == pytest.approx(context[r, 1], abs=1e-5)
    assert (weights[0, r] @ polar)[1] == 0 and sum(aa in "SYQ" for aa in CDR3) == 7
