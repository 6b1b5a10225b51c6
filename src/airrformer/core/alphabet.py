"""Text <-> token ids. One class; what differs between alphabets is data (alphabets/*.json).

An alphabet is a list of tokens, five of which are special and never written as text, and a way to cut text into the
others: the longest token that fits (residues, SMILES, k-mers side by side), k-mers at every position (``overlapping``),
or learned merges of neighbours (``merges``). Shipped are ``residues``, ``nucleotide_3mers``, ``smiles`` and
``receptor_merges``.

The model does not know which one it has: ``ModelConfig(**alphabet.config_fields, ...)`` is all that it is told.
The names in capitals and ``encode`` are those of the residues, the alphabet of every protein model here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from airrformer.errors import UserError
from airrformer.paths import write_json

_FOLDER = Path(__file__).with_name("alphabets")
_SPECIAL = {"start": "<cls>", "pad": "<pad>", "end": "<eos>", "unknown": "<unk>", "mask": "<mask>"}


@dataclass(frozen=True)
class Alphabet:
    """Tokens, in the order of their ids, and how text is cut into them.

    ``start``, ``pad``, ``end``, ``unknown`` and ``mask`` are ids. ``letter`` is what an error calls one letter of the
    text. ``reserved`` are further tokens that no text makes. Raises ``ValueError`` when the parts do not fit together.
    """

    name: str
    letter: str
    tokens: tuple[str, ...]
    start: int
    pad: int
    end: int
    unknown: int
    mask: int
    reserved: tuple[str, ...] = ()
    overlapping: bool = False  # the longest pieces at every position, each one letter further
    merges: tuple[tuple[str, str], ...] = ()  # in the order in which they were learned
    about: str = ""

    def __post_init__(self) -> None:
        special = [getattr(self, role) for role in _SPECIAL]
        if len(set(self.tokens)) < len(self.tokens):
            twice = next(token for i, token in enumerate(self.tokens) if token in self.tokens[:i])
            raise ValueError(f"token {twice!r} is there twice; an id needs a token of its own")
        if len(set(special)) < len(special) or not all(0 <= i < len(self.tokens) for i in special):
            raise ValueError(f"the ids of {', '.join(_SPECIAL)} must differ and be below {len(self.tokens)}: {special}")
        if not self._ids or "" in self._ids:
            raise ValueError("there must be tokens that text can make, none of them empty")
        if self.overlapping and (self.merges or self._longest == 1):
            raise ValueError("overlapping pieces need more than one letter, and no merges")
        for pair in self.merges:
            if missing := next((part for part in (*pair, "".join(pair)) if part not in self._ids), None):
                raise ValueError(f"merge {' + '.join(pair)}: {missing!r} is no token")

    def encode(self, text: str) -> list[int]:
        """Ids of ``text`` between start and end.

        Only pieces of the text itself are looked up, so that text such as ``<pad>`` can never become that token.
        Raises ``ValueError`` that names the first letter that is in no piece and its position (from 0).
        """
        try:
            return [self.start, *map(self._ids.__getitem__, self._cut(text)), self.end]
        except KeyError:
            letters = "".join(sorted(piece for piece in self._ids if len(piece) == 1))
            found = next(match for match in self._longest_first.finditer(text) if match[0] not in self._ids)
            raise ValueError(
                f"{found[0]!r} at position {found.start()} is no {self.letter} (one of {letters})"
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; ``decode(encode(text))`` is ``text``. Start, end and padding write nothing.

        The other special tokens write their names. Raises ``ValueError`` for an id that is none.
        """
        silent, pieces = {self.start, self.end, self.pad}, []
        for position, i in enumerate(map(int, ids)):
            if not 0 <= i < len(self.tokens):
                raise ValueError(
                    f"{i} at position {position} is no token id of {self.name} (0 to {len(self.tokens) - 1})"
                )
            if i not in silent:
                pieces.append(self.tokens[i])
        if self.overlapping:  # each piece after the first brings one new letter
            return "".join(piece if n == 0 or piece not in self._ids else piece[-1] for n, piece in enumerate(pieces))
        return "".join(pieces)

    @property
    def config_fields(self) -> dict[str, int | tuple[int, ...]]:
        """What a ``ModelConfig`` has to know: ``ModelConfig(**alphabet.config_fields, ...)``."""
        around = {"before": (self.start,), "after": (self.end,)}
        return {"alphabet_size": len(self.tokens), "pad": self.pad, "mask": self.mask} | around

    def save(self, path: str | Path) -> None:
        """Write the JSON that ``load`` reads: special tokens by name, merges as ``"A B"``."""
        write_json(
            path,
            {
                "name": self.name,
                "about": self.about,
                "letter": self.letter,
                "special": {role: self.tokens[getattr(self, role)] for role in _SPECIAL},
                "reserved": list(self.reserved),
                "overlapping": self.overlapping,
                "tokens": list(self.tokens),
                "merges": [" ".join(pair) for pair in self.merges],
            },
        )

    @property
    def pieces(self) -> tuple[str, ...]:
        """The tokens that text can make: all but the special and the reserved ones."""
        return tuple(self._ids)

    @cached_property
    def _ids(self) -> dict[str, int]:
        kept_out = {self.tokens[getattr(self, role)] for role in _SPECIAL} | set(self.reserved)
        return {token: i for i, token in enumerate(self.tokens) if token not in kept_out}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids))

    @cached_property
    def _longest_first(self) -> re.Pattern[str]:
        """Matches the longest piece that fits, or one letter that is in none."""
        pieces = sorted(self._ids, key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, pieces), "."]), re.DOTALL)

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    def _cut(self, text: str) -> Sequence[str]:
        if self._longest == 1:
            return text
        if self.merges:
            return self._merge(list(text))
        if self.overlapping and len(text) > self._longest:
            return [text[i : i + self._longest] for i in range(len(text) - self._longest + 1)]
        return self._longest_first.findall(text)

    def _merge(self, pieces: list[str]) -> list[str]:
        """Join neighbours, always the pair learned first, from left to right (Sennrich et al. 2016, ACL)."""
        while ranks := [self._ranks[pair] for pair in pairwise(pieces) if pair in self._ranks]:
            pair = self.merges[min(ranks)]
            joined: list[str] = []
            for piece in pieces:
                # A piece that was joined just now is longer than the first of the pair, so it is not joined twice.
                if piece == pair[1] and joined and joined[-1] == pair[0]:
                    joined[-1] += piece
                else:
                    joined.append(piece)
            pieces = joined
        return pieces


def shipped() -> list[str]:
    """Names of the alphabets that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def load(name: str | Path) -> Alphabet:
    """The shipped alphabet ``name``, or the one in a JSON file that ``Alphabet.save`` wrote.

    Raises ``UserError`` for a name that is not shipped and for a file that is no alphabet.

    >>> load("smiles").encode("CCl")
    [0, 5, 32, 2]
    >>> load("nucleotide_3mers").decode(load("nucleotide_3mers").encode("TGTGC"))
    'TGTGC'
    """
    return _read(Path(name)) if Path(name).suffix == ".json" else _shipped(str(name))


@cache
def _shipped(name: str) -> Alphabet:
    if name not in shipped():
        raise UserError(f"no alphabet is called {name!r}; there are {', '.join(shipped())}, or name a .json file")
    return _read(_FOLDER / f"{name}.json")


def _read(path: Path) -> Alphabet:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tokens = tuple(content["tokens"])
        return Alphabet(
            name=content["name"],
            letter=content["letter"],
            tokens=tokens,
            **{role: tokens.index(content["special"][role]) for role in _SPECIAL},
            reserved=tuple(content["reserved"]),
            overlapping=content["overlapping"],
            merges=tuple(_pair(text) for text in content["merges"]),
            about=content["about"],
        )
    except OSError as error:
        raise UserError(f"{path}: cannot read the alphabet: {error.strerror}") from None
    except KeyError as error:
        raise UserError(f"{path}: not an alphabet: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not an alphabet: {error}") from None


def _pair(text: str) -> tuple[str, str]:
    first, second = text.split(" ")
    return first, second


RESIDUE_ALPHABET = load("residues")
TOKENS = RESIDUE_ALPHABET.tokens
ID: dict[str, int] = {token: i for i, token in enumerate(TOKENS)}
CLS, PAD, EOS = RESIDUE_ALPHABET.start, RESIDUE_ALPHABET.pad, RESIDUE_ALPHABET.end
UNK, MASK = RESIDUE_ALPHABET.unknown, RESIDUE_ALPHABET.mask
RESIDUES = "".join(RESIDUE_ALPHABET.pieces)  # the letters that a sequence may hold
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
AMINO_ACID_IDS: tuple[int, ...] = tuple(ID[letter] for letter in AMINO_ACIDS)


def encode(sequence: str) -> list[int]:
    """Token ids of ``sequence`` between start and end, one a residue: length L + 2.

    Raises ``ValueError`` that names the first letter that is no residue and its position (from 0).

    >>> encode("CAS")
    [0, 23, 5, 8, 2]
    """
    return RESIDUE_ALPHABET.encode(sequence)


def learn_merges(
    texts: Iterable[str],
    size: int,
    *,
    longest: int | None = None,
    letters: str = RESIDUES,
    letter: str = "residue",
    name: str = "merges",
    about: str = "",
) -> Alphabet:
    """Byte-pair merges of ``texts``: ``size`` tokens, the special ones and single ``letters`` included.

    The commonest pair of neighbours becomes a token, again and again; ``longest`` caps its letters. All single letters
    are tokens, whether in the texts or not, so that any text of them can be written. Fewer tokens come out when no pair
    is left. Needs the library tokenizers.

    The shipped file ``receptor_merges.json`` comes from the distinct chains of the demo data::

        texts = {s for file in ("sars2_tcr", "bnab") for s in read_sequences(f"data/{file}.fasta.gz").sequences}
        learn_merges(sorted(texts), 256, longest=4, name="receptor_merges", about=...).save(path)

    Germline stretches occur in hundreds of chains: without ``longest`` most tokens would be pieces of V genes, and the
    junction, where receptors differ, would stay single letters.

    Raises ``UserError`` where the library is not installed, ``ValueError`` for a letter that is not one of ``letters``,
    for no text at all and for a ``size`` below the number of single letters and special tokens.
    """
    try:
        from tokenizers import Tokenizer
        from tokenizers.models import BPE
        from tokenizers.trainers import BpeTrainer
    except ImportError:
        raise UserError(
            "learning merges needs the library tokenizers; install it with `pip install 'airrformer[bpe]'`"
        ) from None

    singles = (*_SPECIAL.values(), *letters)
    fixed = dict(zip(_SPECIAL, range(len(_SPECIAL))))
    single = Alphabet(name=name, letter=letter, tokens=singles, **fixed)
    texts = list(texts)
    for number, text in enumerate(texts):
        try:
            single.encode(text)
        except ValueError as error:
            raise ValueError(f"text {number}: {error}") from None
    if not any(texts):
        raise ValueError("there is no text to learn merges from")
    if size < len(singles):
        raise ValueError(
            f"size {size} is too small: {len(_SPECIAL)} special tokens and {len(letters)} letters come first"
        )

    model = Tokenizer(BPE())
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=list(_SPECIAL.values()),
        initial_alphabet=list(letters),
        max_token_length=None if longest is None else longest + 1,  # the library stays below what it is given
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    learned = json.loads(model.to_str())["model"]
    tokens = tuple(sorted(learned["vocab"], key=learned["vocab"].get))
    # Older versions of the library write a merge as one text, newer ones as a pair.
    merges = tuple(tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in learned["merges"])
    return Alphabet(name=name, letter=letter, tokens=tokens, **fixed, merges=merges, about=about)
