"""The core by itself: counts, dropout, starting weights, gradients. What it equals: parity.py."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_models import token_batch

from airrformer.core import alphabet
from airrformer.core.batching import Line, token_batches
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.positions import Sight
from airrformer.core.transformer import Cache, Maps, Transformer, initialise


def small(**changes) -> Transformer:
    settings = dict(layers=2, width=16, heads=2, feed_forward=32, max_length=160) | changes
    model = Transformer(ModelConfig(**settings))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


def test_gradients_reach_every_parameter():
    for changes in ({}, {"norm": "rms", "activation": "swiglu"}, {"positions": "learned", "norm_place": "post"}):
        model = small(**changes).train()
        tokens = token_batch()
        model.logits(model(tokens))[tokens != alphabet.PAD].logsumexp(-1).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("form", ["encoder", "decoder"])
@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize("changes", [{}, {"token_dropout": True}, {"segments": 2, "rotary_pairs": "interleaved"}])
def test_padded_rows_are_what_they_are_alone(form, positions, changes):
    if form == "decoder":
        changes = {name: value for name, value in changes.items() if name != "token_dropout"}
    model = small(form=form, positions=positions, **changes)
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, 24, (length,), generator=generator) for length in (5, 30, 1, 5, 9, 5)]
    rows[0][2], rows[1][:4] = alphabet.MASK, alphabet.MASK
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=alphabet.PAD)
    segments = (torch.arange(30) > 2).long().expand(6, -1) if "segments" in changes else None
    with torch.inference_mode():
        together = model.hidden_states(tokens, segments=segments)
        for i, row in enumerate(rows):
            alone = model.hidden_states(
                row[None], segments=None if segments is None else segments[i : i + 1, : len(row)]
            )
            for one, other in zip(together, alone, strict=True):
                torch.testing.assert_close(one[i, : len(row)], other[0], atol=1e-6, rtol=1e-5)
                assert not one[i, len(row) :].any()
        if segments is not None:
            assert torch.equal(model(tokens, segments=segments[0]), together[-1])


def test_gradients_of_padded_rows_are_those_of_the_rows_alone():
    together, alone = small(), small()
    tokens = token_batch()
    seen = tokens != alphabet.PAD
    together(tokens)[seen].square().sum().backward()
    for row, there in zip(tokens, seen):
        alone(row[there][None]).square().sum().backward()
    for one, other in zip(together.parameters(), alone.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-5)


def test_a_line_of_tokens():
    line = Line.of(torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]]).bool())
    assert line.runs == ((1, 1), (2, 3)) and line.at.tolist() == [0, 0, 1, 2, 0, 1, 2]
    padded = torch.arange(12.0).reshape(3, 4, 1)
    joined = line.join(padded)
    assert joined.flatten().tolist() == [4, 0, 1, 2, 8, 9, 10]
    assert [rows.shape for rows in line.rows(joined)] == [(1, 1, 1), (2, 3, 1)]
    assert line.padded(joined).flatten().tolist() == [0, 1, 2, 0, 4, 0, 0, 0, 8, 9, 10, 0]
    assert Line.of(torch.tensor([[0, 1, 1], [1, 1, 1]]).bool()) is None


def test_padding_on_the_left_is_only_not_seen():
    model = small(positions="none")
    row = torch.tensor([5, 6, 7, 8])
    tokens = torch.stack([torch.cat([row.new_full((2,), alphabet.PAD), row]), torch.arange(5, 11)])
    torch.testing.assert_close(model(tokens)[0, 2:], model(row[None])[0], atol=1e-6, rtol=1e-5)


def test_what_a_model_does_not_have_is_refused():
    model, tokens = small(), token_batch()
    with pytest.raises(ValueError, match=r"attention in layers \(0,\) asked for; this model has 1 to 2"):
        model.attention_maps(tokens, layers=(0,))
    with pytest.raises(ValueError, match="no contact head"):
        model.contacts(tokens, tokens != alphabet.PAD)
    with pytest.raises(ValueError, match="reads no source"):
        model(tokens, source=tokens)
    with pytest.raises(ValueError, match="has no segments"):
        model(tokens, segments=torch.zeros_like(tokens))
    with pytest.raises(ValueError, match=r"layers \(\) asked for"):
        model.hidden_states(tokens, ())
    with pytest.raises(ValueError, match="an encoder decodes nothing"):
        model.decode(tokens)
    both, decoder = small(form="encoder-decoder"), small(form="decoder")
    with pytest.raises(ValueError, match="needs a source"):
        both(tokens)
    with pytest.raises(ValueError, match="a memory is needed"):
        both.decode(tokens)
    with pytest.raises(ValueError, match="has no memory"):
        decoder.decode(tokens, memory=torch.zeros(3, 4, 16))
    with pytest.raises(ValueError, match="encodes no source"):
        decoder.encode(tokens)


def test_a_cache_is_for_a_decoder_of_its_depth_and_for_rows_without_padding():
    decoder, tokens = small(form="decoder"), token_batch()
    with pytest.raises(ValueError, match="there is no padding"):
        decoder.decode(tokens, cache=Cache(2))
    for model, cache in ((decoder, Cache(1)), (small(form="decoder", causal=False), Cache(2))):
        with pytest.raises(ValueError, match="a cache is for a decoder, where no token sees those after it"):
            model.decode(tokens[:1, :5], cache=cache)
    assert Cache(0).length == 0


def test_no_token_can_be_written_as_text():
    with pytest.raises(ValueError, match="'<' at position 2 is no residue"):
        alphabet.encode("CA<mask>F")


def test_config_says_what_cannot_be():
    with pytest.raises(ValueError, match="width 10 is not a multiple of heads 4"):
        ModelConfig(width=10, heads=4)
    with pytest.raises(ValueError, match="learned positions need max_length"):
        ModelConfig(positions="learned")
    for changes, message in (
        ({"token_dropout": True, "form": "decoder"}, "token_dropout is for encoders"),
        ({"contacts": True, "form": "encoder-decoder"}, "contacts are an encoder's"),
        ({"segments": 2, "form": "encoder-decoder"}, "segments are for one stack"),
        ({"decoder_layers": 0}, "decoder_layers"),
        ({"source_alphabet_size": 40, "form": "decoder"}, "source_alphabet_size are an encoder-decoder's"),
        ({"rotary_factor": 4.0}, "rotary_factor 4 needs a rotary_scaling"),
    ):
        with pytest.raises(ValueError, match=message):
            ModelConfig(**changes)
    with pytest.raises(ValueError, match="unknown ModelConfig fields: layrs"):
        ModelConfig.from_dict({"layrs": 2})
    config = FAMILIES["esm2_t12_35M_UR50D"]
    assert ModelConfig.from_dict(config.to_dict()) == config


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 1000))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = token_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches)


# ---------------------------------------------------------------------------------------- counting without building


def built(config: ModelConfig) -> dict[str, int]:
    """Trained numbers of the model itself, on the meta device, by the part that their names say."""
    with torch.device("meta"):
        model = Transformer(config)
    parts = dict.fromkeys(config.parameters(), 0)
    for name, parameter in model.named_parameters():
        if name.startswith("head."):
            part = "output"
        elif name.startswith("contact_head."):
            part = "contacts"
        elif "norm" in name:
            part = "norms"
        elif "attention." in name:
            part = "attention"
        else:
            part = "feed_forward" if ".feed_forward." in name else "embedding"
        parts[part] += parameter.numel()
    return parts


@pytest.mark.parametrize("name", FAMILIES)
def test_published_models_are_counted_as_they_are_built(name):
    assert FAMILIES[name].parameters() == built(FAMILIES[name])


@pytest.mark.parametrize("form", ["encoder", "decoder", "encoder-decoder"])
def test_every_kind_of_model_is_counted_as_it_is_built(form):
    choices = itertools.product(
        ("sinusoidal", "learned", "rotary", "alibi", "none"), ("layer", "rms"), ("relu", "gelu", "gelu_tanh", "swiglu"),
        (True, False), ("transform", "linear"), (True, False),
    )  # fmt: skip
    for positions, norm, activation, tied, head, bias in choices:
        config = ModelConfig(
            form=form, layers=1, width=12, heads=3, feed_forward=20, alphabet_size=9, max_length=7, positions=positions,
            norm=norm, activation=activation, tied=tied, head=head, bias=bias,
        )  # fmt: skip
        assert config.parameters() == built(config), config


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_norm": True, "segments": 2, "final_norm": False, "norm_place": "post"},
        {"head_width": 10, "output_bias": False, "contacts": True},
        {"form": "encoder-decoder", "decoder_layers": 3, "source_alphabet_size": 40},
        {"form": "encoder-decoder", "embedding_norm": True, "positions": "learned", "max_length": 9},
    ],
    ids=["bert", "wide heads", "two sides", "two tables"],
)
def test_the_rarer_choices_are_counted_too(changes):
    config = ModelConfig(layers=2, width=12, heads=3, feed_forward=20, **changes)
    assert config.parameters() == built(config)


# ---------------------------------------------------------------------------------------------------------- dropout

PLACES = ("dropout", "attention_dropout", "feed_forward_dropout", "embedding_dropout")


def silent(*outputs: str, **changes) -> Transformer:
    """One pre-norm block without biases in which the named sub-layers write nothing."""
    model = small(layers=1, bias=False, **(dict.fromkeys(PLACES, 0.0) | changes))
    for output in outputs:
        model.get_submodule(f"encoder.blocks.0.{output}.output").weight.data.zero_()
    return model


@pytest.mark.parametrize(
    "place, elsewhere",
    [
        ("dropout", ("attention", "feed_forward")),
        ("attention_dropout", ("attention",)),
        ("feed_forward_dropout", ("feed_forward",)),
        ("embedding_dropout", ()),
    ],
)
def test_dropout_acts_in_its_place_and_in_training_alone(place, elsewhere):
    """Where the sub-layer writes nothing, dropout inside it has nothing to drop; anywhere else it would show."""
    tokens = token_batch()
    torch.manual_seed(0)
    for outputs, acts in (((), True), (elsewhere, False)) if elsewhere else (((), True),):
        model, plain = silent(*outputs, **{place: 0.5}), silent(*outputs)
        with torch.no_grad():
            torch.testing.assert_close(model(tokens), plain(tokens))  # eval mode
            model.train()
            changed = (model(tokens) - plain(tokens)).abs().max() > 1e-3
        assert bool(changed) == acts


def test_dropout_inside_the_embedding_and_the_attention_keeps_the_mean():
    """Half the numbers are zero and the others doubled; seen in the open maps as in the fused attention."""
    tokens = torch.randint(4, 24, (64, 40), generator=torch.Generator().manual_seed(0))
    model = silent(embedding_dropout=0.5)
    with torch.no_grad():
        expected = model.hidden_states(tokens, (0,))[0]
        torch.manual_seed(1)
        dropped = model.train().hidden_states(tokens, (0,))[0]
    assert 0.49 < float((dropped == 0).float().mean()) < 0.51
    torch.testing.assert_close(dropped[dropped != 0], 2 * expected[dropped != 0])
    normed = silent(embedding_dropout=0.5, embedding_norm=True).train()
    with torch.no_grad():  # dropped after the norm, which would move what was dropped before it
        assert 0.49 < float((normed.hidden_states(tokens, (0,))[0] == 0).float().mean()) < 0.51

    block = silent("feed_forward", attention_dropout=0.5).encoder.blocks[0]
    x = torch.randn(1, 40, 16, generator=torch.Generator().manual_seed(0)).expand(1500, -1, -1)
    with torch.no_grad():
        expected = block(x[:1], Sight())
        block.train()
        drawn = [block(x, Sight(), maps=maps) for maps in (None, Maps())]
    for each in drawn:
        assert float((each.mean(0) - expected[0]).abs().max()) < 0.1
    spread = [each.std(0).mean() for each in drawn]
    assert float(spread[0]) == pytest.approx(float(spread[1]), rel=0.02) and float(spread[0]) > 0.05


def test_what_cross_attention_adds_is_dropped_too():
    model = small(
        form="encoder-decoder", dropout=0.5, attention_dropout=0.0, feed_forward_dropout=0.0, embedding_dropout=0.0
    )
    block, x = model.decoder.blocks[0], torch.randn(1, 9, 16)
    for writes in (block.attention.output, block.feed_forward.output):
        writes.weight.data.zero_()
    memory = torch.randn(1, 5, 16)
    with torch.no_grad():
        block.eval()
        added = block(x, Sight(), memory, Sight()) - x
        block.train()
        dropped = block(x.expand(400, -1, -1), Sight(), memory.expand(400, -1, -1), Sight()) - x
    gone = dropped.abs() < 1e-6
    assert 0.48 < float(gone.float().mean()) < 0.52
    torch.testing.assert_close(dropped[~gone], 2 * added.expand_as(dropped)[~gone])


def test_dropout_of_the_feed_forward_lies_between_its_two_maps():
    """Where the second map writes one sum into every column, what is dropped before it is the same in all of them."""
    feed_forward = silent(feed_forward_dropout=0.5).train().encoder.blocks[0].feed_forward
    feed_forward.output.weight.data.fill_(1.0)
    torch.manual_seed(0)
    with torch.no_grad():
        out = feed_forward(torch.randn(1, 16).expand(20, -1))
    torch.testing.assert_close(out, out[:, :1].expand(-1, 16))
    assert float(out[:, 0].std()) > 0.1


def test_the_three_other_places_follow_the_common_dropout():
    config = ModelConfig(dropout=0.3, attention_dropout=0.1)
    assert [config.rate(place) for place in ("attention", "feed_forward", "embedding")] == [0.1, 0.3, 0.3]
    block, embedding = Transformer(config).encoder.blocks[0], Transformer(config).encoder.embedding
    assert (block.dropout.p, block.attention.dropout, block.feed_forward.dropout.p, embedding.dropout.p) == (
        0.3,
        0.1,
        0.3,
        0.3,
    )


# ------------------------------------------------------------------------------------------------------- the start


def started(**changes) -> dict[str, torch.Tensor]:
    """Matrices of a wide model after ``initialise``; biases are 0 and norms 1."""
    model = small(width=256, heads=4, feed_forward=1024, layers=3, positions="learned", max_length=512, **changes)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert (parameter == (1 if "norm" in name and name.endswith("weight") else 0)).all(), name
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.ndim == 2}


def test_normal_start_has_one_spread_everywhere():
    for name, matrix in started(initialisation="normal").items():
        assert float(matrix.std()) == pytest.approx(0.02, rel=0.03), name
        assert abs(float(matrix.mean())) < 1e-3, name


def test_xavier_start_is_uniform_within_its_bound():
    for name, matrix in started(initialisation="xavier").items():
        for part in matrix.chunk(3) if name.endswith("qkv.weight") else (matrix,):
            bound = math.sqrt(6 / (part.shape[0] + part.shape[1]))
            assert 0.98 * bound < float(part.abs().max()) <= bound, name
            assert float(part.std()) == pytest.approx(bound / math.sqrt(3), rel=0.03), name


@pytest.mark.parametrize("tied", [True, False])
def test_scaled_start_keeps_the_size_of_what_goes_through(tied):
    tables = {"encoder.embedding.tokens.weight", "encoder.positions.table.weight"}
    matrices = started(initialisation="scaled", tied=tied)
    assert tables <= matrices.keys() and ("head.output.weight" in matrices) != tied
    for name, matrix in matrices.items():
        expected = matrix.shape[1] ** -0.5
        if name in tables and not (tied and "tokens" in name):
            expected = 1.0
        if name.endswith((".attention.output.weight", ".feed_forward.output.weight")):
            expected /= math.sqrt(2 * 3)  # what two sub-layers in each of three blocks add has std 1 in all
        assert float(matrix.std()) == pytest.approx(expected, rel=0.03), name


def test_the_same_generator_starts_the_same_model():
    one, other = (small().state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
