"""Writing: the three ways against each other, against whole passes without a cache, and against every sequence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from airrformer.core.config import ModelConfig
from airrformer.core.decoding import Written, beam_search, chances, greedy, sample
from airrformer.core.transformer import Cache, Transformer, initialise

PAD, START, END = 0, 1, 2
SCHEMES = ["sinusoidal", "learned", "rotary", "alibi", "none"]
FORMS = ["decoder", "encoder-decoder"]
KINDS = list(itertools.product(FORMS, SCHEMES, ["pre", "post"]))
ALL = pytest.mark.parametrize(("form", "positions", "place"), KINDS, ids=["-".join(kind) for kind in KINDS])


def writer(form: str = "decoder", positions: str = "rotary", place: str = "pre", **changes) -> Transformer:
    settings = dict(
        layers=2, width=16, heads=2, feed_forward=32, alphabet_size=9, pad=PAD, max_length=20, tied=False, head="linear"
    )
    model = Transformer(ModelConfig(form=form, positions=positions, norm_place=place, **(settings | changes)))
    initialise(model, torch.Generator().manual_seed(3))
    return model.eval()


def sources(form: str) -> torch.Tensor | None:
    """Four sources of unequal length, or none."""
    if form == "decoder":
        return None
    return torch.tensor([[3, 4, 5, 6, 7], [8, PAD, PAD, PAD, PAD], [7, 6, 8, 4, PAD], [5, 5, 3, PAD, PAD]])


def starts(form: str) -> int | torch.Tensor:
    """Four beginnings of a decoder; of an encoder-decoder the start token."""
    return START if form == "encoder-decoder" else torch.tensor([[START, token] for token in (3, 4, 5, 6)])


def log_p(model: Transformer, start: list[int], written: Written, source: torch.Tensor | None = None) -> list[float]:
    """log p of each token that was written, the end too, from one pass over the whole, without a cache."""
    tokens = torch.tensor([start + written.tokens + [END] * written.complete])
    with torch.no_grad():
        logits = model.logits(model(tokens[:, :-1], source))[0]
    logits[:, PAD] = float("-inf")
    each = logits.log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0]
    return each[len(start) - 1 :].tolist()


def rows(form: str) -> list[tuple[list[int], torch.Tensor | None]]:
    """Start and source of each of the four rows, by itself and without padding."""
    if form == "decoder":
        return [(row, None) for row in starts(form).tolist()]
    return [([START], source[source != PAD][None]) for source in sources(form)]


# -------------------------------------------------------------------------------------------------------- the cache


@ALL
def test_a_cache_changes_no_logit(form, positions, place):
    model, source = writer(form, positions, place), sources(form)
    tokens = torch.randint(3, 9, (4, 10), generator=torch.Generator().manual_seed(0))
    cache = Cache(model.config.depth)
    with torch.no_grad():
        memory, seen = (None, None) if source is None else (model.encode(source), source != PAD)
        whole = model.logits(model.decode(tokens, memory, seen))
        steps = [model.logits(model.decode(piece, memory, seen, cache)) for piece in tokens.split([3, 1, 1, 5], dim=1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=0)
        # Rows that leave, change places and come twice take their keys and values along.
        chosen = torch.tensor([3, 1, 1])
        cache.select(chosen)
        more = torch.tensor([[4], [5], [6]])
        expected = model(torch.cat((tokens[chosen], more), dim=1), None if source is None else source[chosen])
        memory, seen = (None, None) if source is None else (memory[chosen], seen[chosen])
        torch.testing.assert_close(model.decode(more, memory, seen, cache), expected[:, -1:], atol=1e-5, rtol=0)


@ALL
def test_with_and_without_a_cache_the_same_is_written(form, positions, place):
    model, source, start = writer(form, positions, place), sources(form), starts(form)

    def all_ways(use_cache: bool):
        common = dict(source=source, use_cache=use_cache)
        drawn = sample(model, 3, torch.Generator().manual_seed(1), start, END, 20, **common)
        beams = beam_search(model, start, END, 20, 4, n_best=4, length_penalty=0.5, **common)
        return [*greedy(model, start, END, 20, **common), *drawn, *itertools.chain(*beams)]

    cached, uncached = all_ways(True), all_ways(False)
    assert len({one.length for one in cached}) > 3  # rows did end, and not together
    assert [one.tokens for one in cached] == [one.tokens for one in uncached]
    assert [one.score for one in cached] == pytest.approx([one.score for one in uncached], abs=1e-4)


# ----------------------------------------------------------------------------------------------------------- greedy


@ALL
def test_greedy_takes_the_likeliest_and_no_row_disturbs_another(form, positions, place):
    model = writer(form, positions, place)
    together = greedy(model, starts(form), END, 20, sources(form))
    for written, (start, source) in zip(together, rows(form)):
        alone = greedy(model, torch.tensor([start]), END, 20, source)[0]
        assert alone.tokens == written.tokens and alone.score == pytest.approx(written.score, abs=1e-4)
        assert sum(log_p(model, start, written, source)) == pytest.approx(written.score, abs=1e-4)
        # every other choice at any place is less likely
        tokens = torch.tensor([start + written.tokens])
        with torch.no_grad():
            logits = model.logits(model(tokens, source))[0, len(start) - 1 :]
        logits[:, PAD] = float("-inf")
        best = logits.argmax(-1).tolist()
        assert best[: len(written.tokens)] == written.tokens
        if written.complete:
            assert best[len(written.tokens)] == END
        else:
            assert len(start) + len(written.tokens) == 20


def test_what_is_forbidden_is_never_written_and_the_rest_sums_to_1():
    model = writer()
    forbidden = torch.zeros(9, dtype=torch.bool)
    forbidden[[START, 3, 5]] = True
    drawn = sample(model, 200, torch.Generator().manual_seed(0), START, END, 12, forbidden=forbidden)
    assert {token for one in drawn for token in one.tokens} == {4, 6, 7, 8}
    with torch.no_grad():
        first = model.logits(model(torch.tensor([[START]])))[0, 0]
    kept = torch.tensor([END, 4, 6, 7, 8])
    expected = dict(zip(kept.tolist(), first[kept].log_softmax(0).tolist()))
    one = greedy(model, START, END, 2, forbidden=forbidden)[0]
    assert one.score == pytest.approx(max(expected.values()), abs=1e-5)


# -------------------------------------------------------------------------------------------------------------- beam


def every_sequence(model: Transformer, start: list[int], written: int, source=None) -> list[Written]:
    """All that can be written in at most ``written`` tokens, each scored by passes over the whole."""
    found: list[Written] = []
    alphabet = range(1, model.config.alphabet_size)
    for length in range(written + 1):
        for tokens in itertools.product([token for token in alphabet if token != END], repeat=length):
            one = Written(list(tokens), 0.0, length < written)
            found.append(one._replace(score=sum(log_p(model, start, one, source))))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(form):
    cross = form == "encoder-decoder"
    model = writer(form, alphabet_size=5, source_alphabet_size=9 if cross else None)
    source = sources(form)[2:] if cross else None
    every = [every_sequence(model, [START], 4, one) for _, one in (rows(form)[2:] if cross else [(START, None)])]
    assert sum(np.exp(one.score) for one in every[0]) == pytest.approx(1, abs=1e-5)  # that is all there is
    for penalty in (0.0, 0.7, 1.0):
        found = beam_search(model, START, END, 5, len(every[0]), source, penalty, n_best=len(every[0]))
        for ours, theirs in zip(found, every, strict=True):
            theirs = sorted(theirs, key=lambda one, power=penalty: one.score / one.length**power, reverse=True)
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)
            assert [one.complete for one in ours] == [one.complete for one in theirs]


@ALL
def test_a_beam_of_one_is_greedy_and_scores_are_those_of_one_pass(form, positions, place):
    model = writer(form, positions, place)
    plain = greedy(model, starts(form), END, 20, sources(form))
    narrow = beam_search(model, starts(form), END, 20, 1, sources(form))
    assert [one.tokens for (one,) in narrow] == [one.tokens for one in plain]
    assert [one.score for (one,) in narrow] == pytest.approx([one.score for one in plain], abs=1e-6)
    wide = beam_search(model, starts(form), END, 20, 5, sources(form), n_best=5)
    for found, (start, source) in zip(wide, rows(form)):
        assert len(found) == 5 and len({(tuple(one.tokens), one.complete) for one in found}) == 5
        scores = [one.score for one in found]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([sum(log_p(model, start, one, source)) for one in found], abs=1e-4)
        alone = beam_search(model, torch.tensor([start]), END, 20, 5, source, n_best=5)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in found]


def test_a_wider_beam_finds_what_greedy_misses():
    """A first step that looks worse leads on to a better whole. Without blocks the model is a table, set by hand."""
    model = writer(positions="none", alphabet_size=5, layers=0, final_norm=False)
    table = torch.full((5, 5), -30.0)  # log p of the next token by the last one
    table[START, [3, 4]] = torch.tensor([0.6, 0.4]).log()
    table[3, [3, END]] = torch.tensor([0.5, 0.5]).log()
    table[4, END] = 0.0
    model.decoder.embedding.tokens.weight.data = torch.eye(5, 16)
    model.head.output.weight.data = torch.nn.functional.pad(table.T, (0, 11))
    assert greedy(model, START, END, 10, use_cache=False)[0].tokens[0] == 3
    (best,) = beam_search(model, START, END, 10, 2, use_cache=False)[0]
    assert (best.tokens, best.complete) == ([4], True) and best.score == pytest.approx(np.log(0.4), abs=1e-5)


def test_a_penalty_on_length_favours_the_long():
    model = writer()
    plain, mean = (beam_search(model, START, END, 20, 8, length_penalty=penalty)[0][0] for penalty in (0.0, 1.0))
    assert mean.length > plain.length and mean.score < plain.score
    assert mean.score / mean.length > plain.score / plain.length


# ----------------------------------------------------------------------------------------------------------- chance


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 4, 50])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_chances_against_numpy(temperature, top_k, top_p):
    logits = np.random.default_rng(0).normal(size=(20, 12)) * 2
    logits[:, 3] = -np.inf
    found = chances(torch.tensor(logits), temperature, top_k, top_p).numpy()
    for row, ours in zip(logits, found):
        p = np.exp(row / temperature)
        p /= p.sum()
        order = np.argsort(-p)[: top_k or None]
        p = p[order] / p[order].sum()
        size = next(n for n in range(1, len(p) + 1) if p[:n].sum() >= top_p - 1e-12)  # the smallest set
        expected = np.zeros(12)
        expected[order[:size]] = p[:size] / p[:size].sum()
        np.testing.assert_allclose(ours, expected, atol=1e-12)
        assert ours[3] == 0


def test_three_tokens_of_known_chances():
    p = torch.tensor([0.5, 0.3, 0.2])
    assert chances(p.log(), top_p=0.75).tolist() == pytest.approx([0.625, 0.375, 0])
    assert chances(p.log(), top_p=0.5).tolist() == pytest.approx([1, 0, 0])
    assert chances(p.log(), top_k=2).tolist() == pytest.approx([0.625, 0.375, 0])
    assert chances(p.log(), top_k=2, top_p=0.63).tolist() == pytest.approx([0.625, 0.375, 0])  # 0.625 is not enough
    squares = [0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38]
    assert chances(p.log(), temperature=0.5).tolist() == pytest.approx(squares, abs=1e-6)
    assert chances(torch.zeros(5), top_k=2).tolist() == [0.5, 0.5, 0, 0, 0]


@ALL
def test_the_cold_and_the_narrow_are_greedy(form, positions, place):
    model, generator = writer(form, positions, place), torch.Generator().manual_seed(5)
    expected = [one.tokens for one in greedy(model, starts(form), END, 20, sources(form)) for _ in range(3)]
    for settings in ({"temperature": 1e-6}, {"temperature": 1e-300}, {"top_k": 1}, {"top_p": 1e-9}):
        drawn = sample(model, 3, generator, starts(form), END, 20, sources(form), **settings)
        assert [one.tokens for one in drawn] == expected


def test_tokens_come_as_often_as_the_model_says():
    model, n = writer(), 20_000
    drawn = sample(model, n, torch.Generator().manual_seed(0), START, END, 3, temperature=1.5, top_p=0.95)
    with torch.no_grad():
        logits = model.logits(model(torch.tensor([[START]])))[0, -1]
    logits[PAD] = float("-inf")
    expected = chances(logits, temperature=1.5, top_p=0.95).numpy()
    first = [one.tokens[0] if one.tokens else END for one in drawn]
    found = np.bincount(first, minlength=9) / n
    assert (found[expected == 0] == 0).all()
    assert (abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-12).all()
    # and the second token, given the first
    first_token = int(np.argmax(np.where(np.arange(9) == END, 0, found)))
    second = [one.tokens[1] if len(one.tokens) > 1 else END for one in drawn if one.tokens[:1] == [first_token]]
    with torch.no_grad():
        logits = model.logits(model(torch.tensor([[START, first_token]])))[0, -1]
    logits[PAD] = float("-inf")
    expected = chances(logits, temperature=1.5, top_p=0.95).numpy()
    found = np.bincount(second, minlength=9) / len(second)
    assert (abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(second)) + 1e-12).all()


@pytest.mark.parametrize("form", FORMS)
def test_scores_of_what_is_drawn_are_the_models_own(form):
    model = writer(form)
    drawn = sample(model, 2, torch.Generator().manual_seed(0), starts(form), END, 20, sources(form), 0.7, 5, 0.9)
    for i, written in enumerate(drawn):
        start, source = rows(form)[i // 2]
        assert written.score == pytest.approx(sum(log_p(model, start, written, source)), abs=1e-4)


def test_the_seed_decides_and_the_size_of_a_batch_does_not():
    model = writer()

    def draw(seed: int, *sizes: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [one.tokens for n in sizes for one in sample(model, n, generator, START, END, 20)]

    assert draw(1, 30) == draw(1, 30) == draw(1, 7, 1, 22)
    assert draw(1, 30) != draw(2, 30)
    assert len({tuple(tokens) for tokens in draw(1, 30)}) > 20


# --------------------------------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 21}, "max_length 21: this model's window is 20"),
        ({"max_length": 1}, "max_length 1 leaves no room after the 1 tokens of start"),
        ({"start": 9}, "start and end must be tokens of the alphabet, 0 to 8"),
        ({"end": -1}, "start and end must be tokens of the alphabet"),
        ({"start": PAD}, "without padding"),
        ({"start": torch.empty((2, 0), dtype=torch.long)}, "at least one token"),
        ({"start": torch.tensor([1, 2])}, r"rows \(B, P\)"),
        ({"source": torch.tensor([[3]])}, "this model reads no source"),
        ({"forbidden": torch.ones(9, dtype=torch.bool)}, "every token is forbidden"),
        ({"forbidden": torch.ones(8, dtype=torch.bool)}, r"forbidden must be \(9,\) bool"),
        ({"forbidden": torch.ones(9)}, r"forbidden must be \(9,\) bool"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_arguments_that_cannot_be(changes, message):
    arguments = {"start": START, "end": END, "max_length": 20} | changes
    for way in (
        greedy,
        lambda model, **kw: sample(model, 1, torch.Generator(), **kw),
        lambda model, **kw: beam_search(model, width=2, **kw),
    ):
        with pytest.raises(ValueError, match=message):
            way(writer(), **arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n 0: draw at least one row"),
        ({"temperature": 0.0}, "temperature 0.0 is no number above 0; for the limit of 0 use greedy"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"top_k": -1}, "top_k -1 is below 0"),
        ({"top_p": 0.0}, "top_p 0.0 is not above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p 1.1"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_chances_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        sample(
            writer(), **{"n": 1, "generator": torch.Generator(), "start": START, "end": END, "max_length": 9} | changes
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "width 0"),
        ({"n_best": 3}, "n_best 3 is not within 1 and the width, 2"),
        ({"n_best": 0}, "n_best 0"),
        ({"length_penalty": -1.0}, "length_penalty -1.0 is below 0"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_beams_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        beam_search(writer(), START, END, 9, **{"width": 2} | changes)


def test_models_that_cannot_write():
    with pytest.raises(ValueError, match="this encoder does not read from left to right"):
        greedy(writer("encoder"), START, END, 9)
    with pytest.raises(ValueError, match="does not read from left to right"):
        greedy(writer("encoder-decoder", causal=False), START, END, 9, sources("encoder-decoder"))
    with pytest.raises(ValueError, match="an encoder-decoder needs a source"):
        greedy(writer("encoder-decoder"), START, END, 9)
    with pytest.raises(ValueError, match="4 rows of start, but 2 of the source"):
        greedy(writer("encoder-decoder"), starts("decoder"), END, 9, sources("encoder-decoder")[:2])
    with pytest.raises(ValueError, match="a row without any visible token"):
        greedy(writer("encoder-decoder"), START, END, 9, torch.tensor([[3, 4], [PAD, PAD]]))
    with pytest.raises(ValueError, match="training mode"):
        greedy(writer().train(), START, END, 9)
