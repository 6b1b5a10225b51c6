"""How the chains of a receptor are written as tokens: the same way in training and when they are read.

    <cls> [species] [locus] residues <eos>                                         one chain
    <cls> [species] [locus] residues <eos> [locus] residues <eos>                  a pair, the second in segment 1

What stands in brackets is there where ``ModelConfig.tags`` says so; what is not known is ``<unk>``. A chain is its
residues, or its loops with ``LOOP_END`` between them (``ModelConfig.loops``): SGHNS|FNNNVP|ASSLAPGATNEKLF.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from airrformer.core import alphabet
from airrformer.core.config import ALPHABET_SIZE, SEPARATOR, TAGS, ModelConfig

LOOP_END = "|"
_TAG_IDS = {tag: ALPHABET_SIZE + i for i, tag in enumerate(TAGS)}
_IDS = np.full(256, -1, dtype=np.int64)
_IDS[[ord(letter) for letter in alphabet.RESIDUES]] = [alphabet.ID[letter] for letter in alphabet.RESIDUES]
_IDS[ord(LOOP_END)] = SEPARATOR


class Written(NamedTuple):
    """One receptor: ``tokens`` and ``segments``, int64 (L,), and where its residues stand among them, int64 (R,)."""

    tokens: np.ndarray
    segments: np.ndarray
    residues: np.ndarray


def ids_of(text: str) -> np.ndarray:
    """The ids of a chain's letters, int64; ``LOOP_END`` is the separator. Raises ``ValueError`` for another letter."""
    ids = _IDS[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]
    if (ids < 0).any():
        alphabet.encode(text)  # says which letter, and where
    return ids


def write(
    chains: Sequence[np.ndarray], config: ModelConfig, loci: Sequence[str | None] = (), species: str | None = None
) -> Written:
    """One or two chains, as ``ids_of`` gives them, as the model of ``config`` reads them.

    ``loci`` (of each chain) and ``species`` are written where the model knows such tags, and ``<unk>`` where they are
    not given or not known to it.

    >>> config = ModelConfig(pairs=True, segments=2)
    >>> write([ids_of("CA"), ids_of("F")], config).tokens.tolist()
    [0, 23, 5, 2, 18, 2]
    >>> write([ids_of("CA"), ids_of("F")], config).residues.tolist()
    [1, 2, 4]
    """
    tokens = [np.array([*config.before, *([_tag(species)] if config.tags else [])], dtype=np.int64)]
    segments, residues = [np.zeros(len(tokens[0]), dtype=np.int64)], []
    for i, ids in enumerate(chains):
        locus = [_tag(loci[i] if i < len(loci) else None)] if config.tags else []
        residues.append(sum(map(len, tokens)) + len(locus) + np.flatnonzero(ids != SEPARATOR))
        tokens.append(np.array([*locus, *ids, *config.after], dtype=np.int64))
        segments.append(np.full(len(tokens[-1]), i))
    return Written(*map(np.concatenate, (tokens, segments, residues)))


def _tag(name: str | None) -> int:
    return _TAG_IDS.get(name, alphabet.UNK) if isinstance(name, str) else alphabet.UNK
