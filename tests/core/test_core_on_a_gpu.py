"""The same numbers on a GPU as on the CPU: every position scheme in every form, and writing with a cache."""

from __future__ import annotations

import itertools

import pytest
import torch
from reference_models import token_batch

from airrformer.core import alphabet
from airrformer.core.config import ModelConfig
from airrformer.core.decoding import beam_search, greedy
from airrformer.core.transformer import Transformer, initialise

FORMS = ("encoder", "decoder", "encoder-decoder")
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "alibi")


def small(form: str, positions: str) -> Transformer:
    model = Transformer(
        ModelConfig(form=form, positions=positions, layers=2, width=32, heads=2, feed_forward=64, max_length=160)
    )
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@pytest.mark.gpu
@pytest.mark.parametrize(("form", "positions"), list(itertools.product(FORMS, POSITIONS)))
def test_states_are_those_of_the_cpu(form, positions):
    model, tokens = small(form, positions), token_batch()
    seen = tokens != alphabet.PAD
    source = tokens.flip(0) if form == "encoder-decoder" else None
    with torch.inference_mode():
        expected = model(tokens, source)[seen]
        model.cuda()
        tokens, source = tokens.cuda(), None if source is None else source.cuda()
        torch.testing.assert_close(model(tokens, source)[seen].cpu(), expected, atol=1e-4, rtol=0)
        with torch.autocast("cuda", torch.bfloat16):
            assert (model(tokens, source)[seen].float().cpu() - expected).abs().max() < 0.2


@pytest.mark.gpu
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_is_written_is_that_of_the_cpu(use_cache):
    model, source = small("encoder-decoder", "rotary"), token_batch()
    around = (model, alphabet.CLS, alphabet.EOS, 20)
    expected = greedy(*around, source), beam_search(*around, 3, source)
    model.cuda()
    found = greedy(*around, source.cuda(), use_cache=use_cache), beam_search(*around, 3, source, use_cache=use_cache)
    assert [one.tokens for one in found[0]] == [one.tokens for one in expected[0]]
    assert [best[0].tokens for best in found[1]] == [best[0].tokens for best in expected[1]]
