"""Writing with a decoder: greedy, by chance, and by beam search. No model names, no files.

All three begin with ``start`` and add a token at a time until ``end``, or until a row is ``max_length`` tokens long,
start and end included. ``start`` is one token, or rows of them (B, P) int64 to go on from, without padding. An
encoder-decoder also needs ``source`` (B, S) int64, padded on the right, rows of any length; one ``start`` serves all.

A token is never written where ``forbidden`` (V,) bool is True, nor is padding. The probabilities of the others then sum
to 1, and all scores here are sums of their logarithms (base e). With ``use_cache`` each step computes only the new
token; the result is the same.

Letters in shape comments: B rows that are asked for, R rows still being written, P, L lengths, V alphabet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from airrformer.core.transformer import Cache, Transformer


class Written(NamedTuple):
    """``tokens`` after the start, without the end; ``score``: log p of them, and of the end if it is ``complete``."""

    tokens: list[int]
    score: float
    complete: bool  # the end was written; False: max_length came first

    @property
    def length(self) -> int:
        """Tokens that the score counts."""
        return len(self.tokens) + self.complete


def greedy(
    model: Transformer,
    start: int | Tensor,
    end: int,
    max_length: int,
    source: Tensor | None = None,
    forbidden: Tensor | None = None,
    use_cache: bool = True,
) -> list[Written]:
    """The likeliest token each time: one ``Written`` a row of ``start`` or ``source``, in their order.

    Raises ``ValueError`` for what cannot be (see ``_Rows``).
    """
    rows = _Rows(model, start, end, max_length, source, forbidden, use_cache)
    return _write(rows, lambda log_p, at: log_p.argmax(1))


def sample(
    model: Transformer,
    n: int,
    generator: torch.Generator,
    start: int | Tensor,
    end: int,
    max_length: int,
    source: Tensor | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    forbidden: Tensor | None = None,
    use_cache: bool = True,
) -> list[Written]:
    """Tokens drawn by ``chances``: ``n`` for each row of ``start`` or ``source``, those of one row together.

    ``generator`` lives on the CPU. It gives each row all its random numbers at once, row after row, so that a row
    depends neither on the others nor on how many are drawn in one call. Scores are the model's own log p, whatever
    temperature, ``top_k`` and ``top_p`` are. Raises ``ValueError`` for what cannot be.
    """
    if n < 1:
        raise ValueError(f"n {n}: draw at least one row")
    _check_chances(temperature, top_k, top_p)
    rows = _Rows(model, start, end, max_length, source, forbidden, use_cache, copies=n)
    numbers = torch.rand(len(rows.tokens), max_length - rows.given, dtype=torch.float64, generator=generator)

    def draw(log_p: Tensor, at: Tensor) -> Tensor:
        total = chances(log_p, temperature, top_k, top_p).cumsum(1)
        # The first token at which the sum passes the number: one with a chance of 0 adds nothing and is never it.
        return torch.searchsorted(total, numbers[at, rows.written, None] * total[:, -1:], right=True)[:, 0]

    return _write(rows, draw)


def chances(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Probabilities (..., V) float64, on the CPU, with which ``logits`` (..., V) are drawn.

    Logits are divided by ``temperature``; then only the ``top_k`` likeliest are kept (0: all; Fan et al. 2018,
    arXiv:1805.04833); then the fewest whose probabilities reach ``top_p`` together (Holtzman et al. 2020,
    arXiv:1904.09751). Each time the rest sums to 1 again. Among equals those first in the alphabet are kept.
    """
    _check_chances(temperature, top_k, top_p)
    logits = logits.cpu().double()
    p = ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
    ordered, token = p.sort(dim=-1, descending=True, stable=True)
    if top_k:
        ordered[..., top_k:] = 0.0
        ordered /= ordered.sum(-1, keepdim=True)
    if top_p < 1:
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0.0  # those before it have reached top_p already
        ordered /= ordered.sum(-1, keepdim=True)
    return torch.empty_like(p).scatter_(-1, token, ordered)


def beam_search(
    model: Transformer,
    start: int | Tensor,
    end: int,
    max_length: int,
    width: int,
    source: Tensor | None = None,
    length_penalty: float = 0.0,
    n_best: int = 1,
    forbidden: Tensor | None = None,
    use_cache: bool = True,
) -> list[list[Written]]:
    """The best that keeping ``width`` beginnings finds: for each row of ``start`` or ``source`` a list, best first.

    Beginnings and whole sequences compete for the ``width`` places by score / length ** ``length_penalty``, where
    length counts the tokens written, the end too: 0 takes the score as it is, which favours the short; 1 takes the mean
    log p of a token. What meets ``max_length`` first competes as it stands. A list has ``n_best`` entries, fewer only
    where there are not so many sequences at all. A width of 1 is ``greedy``. Raises ``ValueError`` for what cannot be.
    """
    if width < 1:
        raise ValueError(f"width {width}: a beam keeps at least one beginning")
    if not 1 <= n_best <= width:
        raise ValueError(f"n_best {n_best} is not within 1 and the width, {width}")
    if length_penalty < 0:
        raise ValueError(f"length_penalty {length_penalty} is below 0")
    rows = _Rows(model, start, end, max_length, source, forbidden, use_cache)
    done: list[list[Written]] = [[] for _ in rows.tokens]
    owner, score = list(range(len(done))), [0.0] * len(done)  # of each row that is still written
    while owner:
        # No row can fill more places than there are, so its best `width` tokens are enough.
        log_p, token = rows.log_p().topk(min(width, len(rows.forbidden)), dim=1)
        length = rows.written + 1
        pool = [[(one.score / one.length**length_penalty, one) for one in whole] for whole in done]
        for row, ones in enumerate(zip(log_p.tolist(), token.tolist())):
            for more, chosen in zip(*ones):
                if more > float("-inf"):
                    total = score[row] + more
                    pool[owner[row]].append((total / length**length_penalty, (row, chosen, total)))

        going, new_owner = [], []
        for i, candidates in enumerate(pool):
            done[i] = []
            for _, one in heapq.nlargest(width, candidates, key=lambda candidate: candidate[0]):
                if isinstance(one, Written):
                    done[i].append(one)
                elif rows.ends(one[1]):
                    done[i].append(rows.close(*one))
                else:
                    going.append(one)
                    new_owner.append(i)
        owner, score = new_owner, [total for _, _, total in going]
        if going:
            parents, chosen = (torch.tensor(part) for part in list(zip(*going))[:2])
            rows.grow(parents, chosen)
    return [whole[:n_best] for whole in done]


# ---------------------------------------------------------------------------------------------------------- the parts


def _write(rows: _Rows, choose: Callable[[Tensor, Tensor], Tensor]) -> list[Written]:
    """Each row by itself, with ``choose``: log p (R, V) and which rows these are (R,) -> a token for each (R,)."""
    at = torch.arange(len(rows.tokens))
    score = torch.zeros(len(at), dtype=torch.float64)
    written: list[Written] = [None] * len(at)
    while len(at):
        log_p = rows.log_p()
        chosen = choose(log_p, at)
        score[at] += log_p.gather(1, chosen[:, None])[:, 0]
        ends = torch.tensor([rows.ends(token) for token in chosen.tolist()])
        for row in ends.nonzero()[:, 0].tolist():
            written[at[row]] = rows.close(row, int(chosen[row]), float(score[at[row]]))
        going = (~ends).nonzero()[:, 0]
        rows.grow(going, chosen[going])
        at = at[going]
    return written


class _Rows:
    """Rows of tokens that grow together, all of one length; those that have ended leave, and disturb no other.

    Raises ``ValueError`` for a model that cannot write, a source that is missing or has no use, a length beyond the
    model's window or within ``start``, and tokens that do not exist.
    """

    def __init__(
        self,
        model: Transformer,
        start: int | Tensor,
        end: int,
        max_length: int,
        source: Tensor | None,
        forbidden: Tensor | None,
        use_cache: bool,
        copies: int = 1,
    ) -> None:
        config = model.config
        _check_model(model, source)
        device = model.head.output.weight.device
        if isinstance(start, int):
            start = torch.full((1 if source is None else len(source), 1), start)
        if (
            not 0 <= end < config.alphabet_size
            or end == config.pad
            or not ((start >= 0) & (start < config.alphabet_size)).all()
        ):
            raise ValueError(
                f"start and end must be tokens of the alphabet, 0 to {config.alphabet_size - 1}, and end no padding"
            )
        if start.ndim != 2 or 0 in start.shape or (start == config.pad).any():
            raise ValueError("start is one token, or rows (B, P) of at least one token without padding")
        if source is not None and len(source) != len(start):
            raise ValueError(f"{len(start)} rows of start, but {len(source)} of the source")
        if config.max_length is not None and max_length > config.max_length:
            raise ValueError(f"max_length {max_length}: this model's window is {config.max_length} tokens")
        self.given = start.shape[1]
        if max_length <= self.given:
            raise ValueError(f"max_length {max_length} leaves no room after the {self.given} tokens of start")
        self.forbidden = torch.zeros(config.alphabet_size, dtype=torch.bool, device=device)
        if forbidden is not None:
            if forbidden.shape != self.forbidden.shape or forbidden.dtype != torch.bool:
                raise ValueError(f"forbidden must be ({config.alphabet_size},) bool, one for each token")
            self.forbidden |= forbidden.to(device)
        self.forbidden[config.pad] = True  # nothing sees it: a row could not tell that it was written
        if self.forbidden.all():
            raise ValueError("every token is forbidden")

        self.model, self.end, self.max_length = model, end, max_length
        self.tokens = start.to(device).repeat_interleave(copies, 0)
        self.cache = Cache(config.depth) if use_cache else None
        self.memory, self.seen = None, None
        if source is not None:
            source = source.to(device)
            with torch.no_grad():
                self.memory = model.encode(source).repeat_interleave(copies, 0)
            self.seen = (source != config.pad).repeat_interleave(copies, 0)

    @property
    def written(self) -> int:
        """Tokens after the start so far."""
        return self.tokens.shape[1] - self.given

    @torch.no_grad()
    def log_p(self) -> Tensor:
        """log p of each token to come next: (R, V) float64, on the CPU, where choices are the same on every device."""
        new = self.tokens if self.cache is None else self.tokens[:, self.cache.length :]
        hidden = self.model.decode(new, self.memory, self.seen, self.cache)
        logits = self.model.logits(hidden[:, -1])
        return logits.masked_fill(self.forbidden, float("-inf")).cpu().double().log_softmax(-1)

    def ends(self, token: int) -> bool:
        """Whether a row that gets ``token`` now has come to its end."""
        return token == self.end or self.tokens.shape[1] + 1 == self.max_length

    def close(self, row: int, token: int, score: float) -> Written:
        """What ``row`` is with its last ``token``."""
        complete = token == self.end
        return Written(self.tokens[row, self.given :].tolist() + [token] * (not complete), score, complete)

    def grow(self, rows: Tensor, tokens: Tensor) -> None:
        """Go on with ``rows`` (R',), in this order, each with its new token (R',); a row may occur twice."""
        rows, tokens = rows.to(self.tokens.device), tokens.to(self.tokens.device)
        if len(rows) < len(self.tokens) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            self.tokens = self.tokens[rows]
            if self.cache is not None:
                self.cache.select(rows)
            if self.memory is not None:
                self.memory, self.seen = self.memory[rows], self.seen[rows]
        self.tokens = torch.cat((self.tokens, tokens[:, None]), dim=1)


def _check_model(model: Transformer, source: Tensor | None) -> None:
    form = model.config.form
    if form == "encoder" or not model.config.causal:
        raise ValueError(f"this {form} does not read from left to right, and so cannot write")
    if (form == "encoder-decoder") != (source is not None):
        raise ValueError("an encoder-decoder needs a source" if source is None else "this model reads no source")
    if model.training:
        raise ValueError("the model is in training mode, where dropout would disturb it; call eval() first")


def _check_chances(temperature: float, top_k: int, top_p: float) -> None:
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature {temperature} is no number above 0; for the limit of 0 use greedy, or top_k 1")
    if top_k < 0:
        raise ValueError(f"top_k {top_k} is below 0; 0 keeps all tokens")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p {top_p} is not above 0 and at most 1")
