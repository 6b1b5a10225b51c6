"""Positions and masks, each by the property that defines it, through the core's attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference_models import token_batch
from torch import Tensor

from airrformer.core import alphabet
from airrformer.core.config import ModelConfig
from airrformer.core.positions import Rotary, Sight, sinusoidal
from airrformer.core.transformer import Transformer, initialise

SCHEMES = ["sinusoidal", "learned", "rotary", "alibi", "none"]
PAIRS = ["half", "interleaved"]


def small(**changes) -> Transformer:
    settings = dict(layers=2, width=16, heads=2, feed_forward=32, max_length=160) | changes
    model = Transformer(ModelConfig(**settings))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


def rows(*sequences: str) -> Tensor:
    """(B, L) ids, padded on the right."""
    ids = [torch.tensor(alphabet.encode(sequence)) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=alphabet.PAD)


def own_scores(model: Transformer, length: int) -> np.ndarray:
    """(H, L, L): scores of the first block, less each token's score on itself.

    All tokens are alike, so that nothing but the position can tell them apart. A softmax forgets what a row of scores
    has in common; the difference to the score on itself it keeps.
    """
    with torch.no_grad():
        log = model.attention_maps(torch.full((1, length), 5), (1,))[0][0].double().log()
    return (log - log.diagonal(dim1=-2, dim2=-1)[..., None]).numpy()


# ------------------------------------------------------------------------------------------------------- sinusoidal


@pytest.mark.parametrize("k", [1, 7, -3])
def test_a_shift_of_sinusoidal_positions_is_one_rotation_for_all(k):
    """PE(p + k) = M_k PE(p), with one matrix M_k of 2 x 2 rotations, whatever p."""
    width, p = 16, torch.arange(3, 60)
    angles = k * 10_000.0 ** (-np.arange(0, width, 2) / width)
    m = np.zeros((width, width))
    for i, angle in enumerate(angles):
        m[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(sinusoidal(p + k, width), sinusoidal(p, width).numpy() @ m.T, atol=1e-5)
    np.testing.assert_allclose(m @ m.T, np.eye(width), atol=1e-12)


# ----------------------------------------------------------------------------------------------------------- rotary


@pytest.mark.parametrize("pairs", PAIRS)
def test_rotary_scores_depend_on_the_distance_alone(pairs):
    """And are Re(q conj(k) e^(i theta (p - q))), summed over the pairs."""
    model = small(positions="rotary", rotary_pairs=pairs, width=16, heads=2, layers=1, max_length=None)
    length, size = 40, 8
    scores = own_scores(model, length)
    for head in scores:
        for distance in range(-30, 31):
            diagonal = np.diagonal(head, -distance)
            np.testing.assert_allclose(diagonal, diagonal[0], atol=2e-5)

    block = model.encoder.blocks[0]
    with torch.no_grad():
        x = block.attention_norm(model.encoder.embedding.tokens.weight[5])
        query, key, _ = block.attention.qkv(x).double().unflatten(0, (3, 2, size)).numpy()
    first, second = (
        (slice(0, size // 2), slice(size // 2, size)) if pairs == "half" else (slice(0, size, 2), slice(1, size, 2))
    )
    product = (query[:, first] + 1j * query[:, second]) * np.conj(key[:, first] + 1j * key[:, second])  # (H, K / 2)
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    turn = np.exp(1j * distance[..., None] * 10_000.0 ** (-np.arange(0, size, 2) / size))  # (L, L, K / 2)
    expected = np.einsum("hk,lmk->hlm", product, turn).real / math.sqrt(size)
    np.testing.assert_allclose(scores, expected - np.einsum("hll->hl", expected)[..., None], atol=2e-5)


def test_the_two_pairings_are_one_after_a_change_of_order():
    half, neighbours = (small(positions="rotary", rotary_pairs=pairs, layers=1) for pairs in PAIRS)
    order = torch.arange(8).unflatten(0, (2, 4)).T.flatten()  # 0 4 1 5 2 6 3 7: halves become neighbours
    rows_of_heads = torch.cat([8 * head + order for head in range(2)])
    state = half.state_dict()
    for part in ("weight", "bias"):
        key = f"encoder.blocks.0.attention.qkv.{part}"
        state[key] = torch.cat([state[key][:16][rows_of_heads], state[key][16:32][rows_of_heads], state[key][32:]])
    tokens = token_batch()
    with torch.no_grad():
        apart = (neighbours(tokens) - half(tokens)).abs().max()
        neighbours.load_state_dict(state)
        torch.testing.assert_close(neighbours(tokens), half(tokens), atol=1e-5, rtol=0)
    assert apart > 1e-2


def rotary(scaling: str, **changes) -> Rotary:
    settings = dict(width=128, heads=1, positions="rotary", rotary_scaling=scaling) | changes
    return Rotary(ModelConfig(**settings))


def test_interpolation_divides_positions():
    at = torch.arange(400)
    for ours, plain in zip(rotary("interpolation", rotary_factor=4.0).turn(at), rotary("none").turn(at / 4)):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=0)


def test_ntk_keeps_the_fastest_pair_and_stretches_the_slowest_by_the_factor():
    plain, ntk = rotary("none").inv_freq.double(), rotary("ntk", rotary_factor=4.0).inv_freq.double()
    stretched = (plain / ntk).numpy()
    assert stretched[0] == 1 and stretched[-1] == pytest.approx(4, rel=1e-5)
    np.testing.assert_allclose(stretched, 4 ** (np.arange(64) / 63), rtol=1e-5)  # in between, by equal steps of log


def test_yarn_leaves_fast_pairs_and_squeezes_slow_ones():
    """Peng et al. 2023: r = trained length / wavelength; r above 32 stays, r below 1 is divided by the factor.

    In between the paper's formula is a ramp in r, and its authors' code one in the number of the pair, which every
    model was trained with, ours too.
    """
    factor, trained, width, base = 4.0, 2048, 128, 10_000.0
    yarn = rotary("yarn", rotary_factor=factor, rotary_length=trained)
    pair = np.arange(width // 2)
    theta = base ** (-2 * pair / width)
    turns = trained * theta / (2 * np.pi)
    kept = yarn.inv_freq.double().numpy() / theta
    fast, slow = turns > 32, turns < 1
    assert fast.sum() > 10 and slow.sum() > 10 and (~fast & ~slow).sum() > 10
    np.testing.assert_allclose(kept[fast], 1, rtol=1e-5)
    np.testing.assert_allclose(kept[slow], 1 / factor, rtol=1e-5)

    number_of = lambda r: width * np.log(trained / (2 * np.pi * r)) / (2 * np.log(base))  # noqa: E731
    low, high = np.floor(number_of(32)), np.ceil(number_of(1))
    ramp = np.clip((pair - low) / (high - low), 0, 1)
    np.testing.assert_allclose(kept, 1 - ramp + ramp / factor, rtol=1e-5)
    assert (np.diff(kept) <= 1e-6).all()

    cosine, sine = yarn.turn(torch.tensor([0, 5]))
    assert float((cosine**2 + sine**2).sqrt().mean()) == pytest.approx(0.1 * math.log(factor) + 1, rel=1e-6)


# ------------------------------------------------------------------------------------------- ALiBi, learned, none


@pytest.mark.parametrize("form", ["encoder", "decoder"])
@pytest.mark.parametrize("heads", [2, 8])
def test_alibi_falls_in_a_line_with_the_distance(form, heads):
    """All tokens alike: the scores differ by - slope x distance alone, slope 2^(-8 k / heads)."""
    model = small(positions="alibi", form=form, heads=heads, layers=1)
    scores = own_scores(model, 12)
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    expected = -slopes[:, None, None] * distance
    if form == "decoder":
        expected = np.where(np.tril(np.ones((12, 12), dtype=bool)), expected, -np.inf)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_without_positions_is_the_order_of_no_account(scheme):
    """Permutation equivariance: whatever the order, each token's vector goes with it."""
    model = small(positions=scheme)
    tokens = rows("CASSIRSSYEQYF")
    order = torch.randperm(tokens.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        apart = (model(tokens[:, order]) - model(tokens)[:, order]).abs().max()
    assert apart < 1e-5 if scheme == "none" else apart > 1e-2


def test_a_swap_of_residues_swaps_two_rows_without_positions():
    model, (a, b) = small(positions="none"), (rows(s) for s in ("CAWSF", "CWASF"))
    torch.testing.assert_close(model(a)[0, [0, 1, 3, 2, 4, 5, 6]], model(b)[0], atol=1e-5, rtol=0)


def test_a_learned_table_ends_and_says_so():
    with pytest.raises(ValueError, match=r"161 tokens .* window is 160"):
        small(positions="learned")(rows("A" * 159))


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "alibi", "none"])
def test_the_other_schemes_read_on(scheme):
    model = small(positions=scheme, max_length=None)
    with torch.no_grad():
        hidden = model(rows("CASSIRSSYEQYF" * 40))
    assert hidden.shape == (1, 522, 16) and hidden.isfinite().all()


# ------------------------------------------------------------------------------------------------ who sees whom

FORMS = ["encoder", "decoder", "encoder-decoder"]
RECEPTOR, PEPTIDE = "CASSIRSSYEQYF", "GILGFVFTL"


def two_sided(**changes) -> Transformer:
    """A receptor and a peptide, each of whose tokens all see each other."""
    return small(form="encoder-decoder", causal=False, **changes)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", FORMS)
def test_batch_mates_and_padding_change_nothing(form, scheme):
    model = small(form=form, positions=scheme)
    tokens = rows("CASSIRSSYEQYF", "CAW", "DGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYY", "C")
    source = rows("GILGFVFTL", "NLVPMVATVQGQNLKYQ", "L", "ELAGIGILTV") if form == "encoder-decoder" else None
    with torch.no_grad():
        together = model(tokens, source)
        longer = [None if t is None else F.pad(t, (0, 9), value=alphabet.PAD) for t in (tokens, source)]
        wide = model(*longer)
        for i, row in enumerate(tokens):
            seen = row != alphabet.PAD
            own_source = None if source is None else source[i][source[i] != alphabet.PAD][None]
            alone = model(row[seen][None], own_source)[0]
            torch.testing.assert_close(together[i][seen], alone, atol=1e-5, rtol=0)
            torch.testing.assert_close(wide[i][: len(row)][seen], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_decoder_sees_what_lies_behind_it_and_no_padding(scheme):
    model = small(form="decoder", positions=scheme)
    tokens = rows("CASSIRSSYEQYF", "CAW")
    length = tokens.shape[1]
    allowed = torch.ones(length, length).tril().bool()
    for layer in model.attention_maps(tokens):
        for row, weights in zip(tokens, layer):
            seen = row != alphabet.PAD
            inside = weights[:, seen]  # (H, visible queries, L)
            torch.testing.assert_close(inside.sum(-1), torch.ones(inside.shape[:2]))
            assert (inside[:, ~(allowed & seen)[seen]] == 0).all() and (inside[:, (allowed & seen)[seen]] > 0).all()
    with torch.no_grad():
        before, after = model(rows("CASSIRSSYEQYF")), model(rows("CASSIRSSWEQYF"))  # one letter, at token 9
    torch.testing.assert_close(after[:, :9], before[:, :9], atol=1e-6, rtol=0)
    assert ((after - before).abs().amax(-1)[0, 9:] > 1e-4).all()


def test_a_row_without_any_token_never_reaches_attention():
    nothing = torch.full((1, 4), alphabet.PAD)
    with pytest.raises(ValueError, match="a row without any visible token"):
        small()(nothing)
    with pytest.raises(ValueError, match="without any visible token"):
        two_sided()(rows(RECEPTOR, RECEPTOR), torch.cat([rows(PEPTIDE)[:, :4], nothing]))
    model = two_sided()
    memory = model.encode(rows(PEPTIDE))
    with pytest.raises(ValueError, match="a source without any visible token"):
        model.decode(rows(RECEPTOR), memory, torch.zeros(1, 11, dtype=torch.bool))


@pytest.mark.parametrize("asks, answers", [(RECEPTOR, PEPTIDE), (PEPTIDE, RECEPTOR)], ids=["receptor", "peptide"])
def test_either_side_may_ask_the_other(asks, answers):
    """Queries from one, keys and values from the other; attention of both layers beside NumPy."""
    model = two_sided(positions="none", layers=1)
    tokens, source = rows(asks, asks[:5]), rows(answers, answers[:4])
    with torch.no_grad():
        maps = model.cross_attention_maps(tokens, source)
        assert [layer.shape for layer in maps] == [(2, 2, len(asks) + 2, len(answers) + 2)]
        torch.testing.assert_close(maps[0].sum(-1), torch.ones(maps[0].shape[:3]))
        assert (maps[0][1, :, :, 6:] == 0).all() and (maps[0][1, :, :, :6] > 0).all()  # padding of the source

        block = model.decoder.blocks[0]
        memory = model.encode(source)[0].double().numpy()
        x = model.decoder.embedding.tokens.weight[tokens[:1]]
        x = x + block.attention(*[block.attention_norm(x)] * 2, Sight())
        y = block.cross_norm(x)[0].double().numpy()
        q, k, v = block.cross_attention.qkv.weight.double().numpy().reshape(3, 2, 8, 16)
        scores = np.einsum("ld,hkd,hke,me->hlm", y, q, k, memory) / math.sqrt(8)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(maps[0][0], weights, atol=1e-5)
        context = np.einsum("hlm,me,hke->lhk", weights, memory, v).reshape(len(y), 16)
        by_hand = x[0].double().numpy() + context @ block.cross_attention.output.weight.double().numpy().T
        by_hand = torch.tensor(by_hand, dtype=torch.float32)
        by_hand = by_hand + block.feed_forward(block.feed_forward_norm(by_hand))
        expected = model.decoder.final_norm(by_hand)
    torch.testing.assert_close(model(tokens, source)[0], expected, atol=1e-5, rtol=0)


def test_with_causal_off_a_receptor_sees_all_of_itself_and_all_of_the_peptide():
    both, left = two_sided(), small(form="encoder-decoder")
    left.load_state_dict(both.state_dict())
    receptor, changed = rows("CASSIRSSYEQYF"), rows("CASSIRSSYEQYW")
    peptide, other = rows("GILGFVFTL"), rows("GILGFVFTA")
    with torch.no_grad():
        first = lambda model, *inputs: model(*inputs)[0, 0]  # noqa: E731
        assert not torch.allclose(first(both, receptor, peptide), first(both, changed, peptide), atol=1e-4)
        torch.testing.assert_close(first(left, receptor, peptide), first(left, changed, peptide), atol=1e-6, rtol=0)
        for model in (both, left):
            assert not torch.allclose(first(model, receptor, peptide), first(model, receptor, other), atol=1e-4)
