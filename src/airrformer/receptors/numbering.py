"""IMGT numbering of V domains of any locus with ``anarcism``: in parallel, cached by sequence, no chain lost.

Bounds count residues from 0, half open; see ``regions``, which lays germline residues on a chain first and comes here
for the chains that these do not fit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anarcism

from airrformer.receptors.germlines import Bounds
from airrformer.receptors.tables import REGIONS

log = logging.getLogger(__name__)

# To be raised whenever what is read from anarcism's numbering changes, or how the cache keeps it: entries that were
# written before are then not read.
RULES = 1

LONGEST = 1000  # residues; beyond it anarcism may take minutes where there are parts of a V domain
# J motifs, and with them parts of V domains, in one sequence: each makes anarcism slower, with fifty it does not end.
MOST_MOTIFS = 8
_LETTERS = frozenset("ACDEFGHIKLMNPQRSTVWYX")
_LOCUS = {"H": "IGH", "K": "IGK", "L": "IGL", "A": "TRA", "B": "TRB", "G": "TRG", "D": "TRD"}
# TRA and TRD share V genes, and profiles of kappa and lambda are close: these are always tried together.
_PROFILES = {"TRA": "AD", "TRD": "AD", "IGK": "KL", "IGL": "KL", "IGH": "H", "TRB": "B", "TRG": "G"}
_REGION = {"FR1": "fwr1", "CDR1": "cdr1", "FR2": "fwr2", "CDR2": "cdr2", "FR3": "fwr3", "CDR3": "cdr3", "FR4": "fwr4"}
assert tuple(_REGION.values()) == REGIONS

# The profiles of these two species are tried first: that of rhesus kappa chains is shifted by one residue (its C104
# lands on 105), and wins on some human chains by a hair. The other species follow where these find no domain.
_SPECIES = ["human", "mouse"]
# Within a CDR3 of about 30 residues or more the domain that is found may end; the J motif then says where FWR4 begins.
_J_MOTIF = re.compile(r"[FW]G.G")
_SHORTEST_FWR4 = 6
_FWR4_LENGTH = {"IGH": 11, "TRA": 11, "TRD": 11}  # positions 118 to 128; 118 to 127 in all other chains

_CHUNK = 50  # sequences a worker between two looks at the clock; what is numbered until then is in the cache
_SECONDS_BETWEEN_LINES = 10

_MOST_ROWS = 2_000_000  # of about 130 bytes each
_KEYS_A_QUERY = 500
_SECONDS_TO_WAIT = 10  # for another job that writes


@dataclass(frozen=True)
class Numbering:
    """The first V domain of a sequence, or why none was found.

    Attributes:
        locus: such as ``TRB``; None without a domain.
        bounds: of the regions that the sequence has; empty where there is no domain with a CDR3.
        domains: V domains in the sequence; the bounds are those of the first.
        reason: why ``bounds`` is empty, for a reader; else None.
        by: ``germlines`` or ``numbering``, what the bounds come from.
    """

    locus: str | None
    bounds: Bounds
    domains: int = 1
    reason: str | None = None
    by: str = "numbering"


def number(sequences: Sequence[str], workers: int = 1, loci: Sequence[str | None] | None = None) -> list[Numbering]:
    """Number V domains by profiles of all loci (IMGT); a sequence that occurs several times is numbered once.

    About 20 to 40 chains a second and core, three times as many where the locus is known. What was numbered before
    comes from the cache: a file in ``$AIRRFORMER_CACHE`` or the user's cache folder; ``AIRRFORMER_CACHE=off`` does
    without.

    Args:
        sequences: residues in upper case, the twenty letters and X. Other letters are a reason not to be numbered.
        workers: native threads.
        loci: where given and not None, the locus that the sequence is of for sure, with no other V domain in it.
    """
    hints = dict(zip(sequences, loci or [None] * len(sequences)))
    cache = Cache.open()
    found = cache.read(list(hints))
    left = [sequence for sequence in hints if sequence not in found]
    progress = _Progress(len(left))
    for chunk, profiles in _chunks(left, hints, max(1, workers)):
        new = dict(zip(chunk, _number(chunk, workers, profiles)))
        found |= new
        cache.write(new)
        progress.add(len(chunk))
    return [found[sequence] for sequence in sequences]


def _chunks(
    sequences: list[str], hints: dict[str, str | None], workers: int
) -> Iterator[tuple[list[str], list[str] | None]]:
    """Sequences to number at a time, and the profiles to number them by; None for all."""
    groups: dict[str | None, list[str]] = defaultdict(list)
    for sequence in sequences:
        groups[_PROFILES.get(hints[sequence] or "")].append(sequence)
    for profiles, group in groups.items():
        for chunk in _slices(group, _CHUNK * workers):
            yield chunk, list(profiles) if profiles else None


def _slices(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _number(sequences: Sequence[str], workers: int, profiles: list[str] | None) -> list[Numbering]:
    numbered = _by_species(sequences, workers, profiles, _SPECIES)
    left = [i for i, numbering in enumerate(numbered) if numbering.reason]
    again = _by_species([sequences[i] for i in left], workers, None, None)
    for i, numbering in zip(left, again):
        numbered[i] = numbering
    return numbered


def _by_species(
    sequences: Sequence[str], workers: int, profiles: list[str] | None, species: list[str] | None
) -> list[Numbering]:
    """Number by the profiles of some species; one sequence that cannot be numbered takes no other with it."""
    reasons = [_why_not(sequence) for sequence in sequences]
    named = [(str(i), sequence) for i, sequence in enumerate(sequences) if not reasons[i]]
    options = {"allowed_chains": profiles, "allowed_species": species}
    try:
        results = iter(anarcism.number_sequences(named, workers=max(1, workers), **options))
    except anarcism.AnarcismError:
        results = (_number_alone(sequence, options) for _, sequence in named)
    return [
        Numbering(None, {}, 0, reason) if reason else _first_domain(sequence, next(results))
        for sequence, reason in zip(sequences, reasons)
    ]


def _number_alone(sequence: str, options: dict) -> anarcism.SequenceResult | str:
    try:
        return anarcism.number_sequence(sequence, **options)
    except anarcism.AnarcismError as error:
        return f"numbering fails: {error}"


def _why_not(sequence: str) -> str | None:
    """Why a sequence is not even tried, or None."""
    if not sequence:
        return "no residues"
    if len(sequence) > LONGEST:
        return f"{len(sequence)} residues; at most {LONGEST} are numbered"
    if len(_J_MOTIF.findall(sequence)) > MOST_MOTIFS:
        return f"more than {MOST_MOTIFS} V domains, or parts of them, in one sequence"
    odd = sorted(set(sequence) - _LETTERS)
    return f"{odd[0]!r} is no residue that can be numbered" if odd else None


def _first_domain(sequence: str, result: anarcism.SequenceResult | str) -> Numbering:
    if isinstance(result, str):
        return Numbering(None, {}, 0, result)
    if not result.domains:
        return Numbering(None, {}, 0, "no V domain found")
    domain = result.domains[0]
    locus = _LOCUS[domain.chain_type]
    bounds: Bounds = {}
    for residue in domain.numbering:
        region, i = _REGION[residue.region], residue.sequence_index
        bounds[region] = (bounds.get(region, (i, i))[0], i + 1)
    if "cdr3" not in bounds:
        return Numbering(locus, {}, len(result.domains), "the V domain ends before its CDR3")
    start, stop = bounds["cdr3"][0], max(end for _, end in bounds.values())
    first, last = bounds.get("fwr4", (stop, stop))
    cut_short = last - first < _SHORTEST_FWR4 and stop < len(sequence)
    if cut_short and (motif := _J_MOTIF.search(sequence, start)):
        end = motif.start()
        bounds["cdr3"] = (start, end)
        bounds["fwr4"] = (end, min(end + _FWR4_LENGTH.get(locus, 10), len(sequence)))
    return Numbering(locus, bounds, len(result.domains))


class _Progress:
    """A line every ten seconds or more: chains done, chains a second, time left."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.start = self.last = time.monotonic()

    def add(self, n: int) -> None:
        self.done += n
        now = time.monotonic()
        if now - self.last < _SECONDS_BETWEEN_LINES or self.done == self.total:
            return
        self.last = now
        rate = self.done / (now - self.start)
        log.info(
            "numbered %s of %s chains, %.0f a second, %s left",
            f"{self.done:,}",
            f"{self.total:,}",
            rate,
            _duration((self.total - self.done) / rate),
        )


def _duration(seconds: float) -> str:
    """
    >>> _duration(12), _duration(61), _duration(7300)
    ('12 s', '1 min', '2 h 2 min')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Cache:
    """Numberings on disk by sequence. Whatever fails with the file, numbering goes on without it, and it is said once.

    Each call of ``number`` opens it anew, so that threads and jobs share the file and no connection.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    def open(cls) -> Cache:
        folder = _folder()
        return cls(folder / "numbering.sqlite" if folder else None)

    def read(self, sequences: Sequence[str]) -> dict[str, Numbering]:
        """The numberings that are known."""
        if not self.path or not sequences or not self._exists():
            return {}
        keys = {_key(sequence): sequence for sequence in sequences}
        found: dict[str, Numbering] = {}
        try:
            with closing(self._connect()) as connection:
                for some in _slices(list(keys), _KEYS_A_QUERY):
                    query = f"SELECT key, numbering FROM numberings WHERE key IN ({','.join('?' * len(some))})"
                    for key, text in connection.execute(query, some):
                        found[keys[key]] = _unpacked(text)
        except (OSError, sqlite3.Error, ValueError, TypeError, IndexError) as error:
            self._give_up(error)
            return {}
        return found

    def write(self, numberings: dict[str, Numbering]) -> None:
        """Keep new numberings; beyond two million the oldest are dropped."""
        if not self.path or not numberings:
            return
        rows = [(_key(sequence), _packed(numbering)) for sequence, numbering in numberings.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS numberings (id INTEGER PRIMARY KEY, key BLOB UNIQUE, numbering TEXT)"
                )
                connection.executemany("INSERT OR IGNORE INTO numberings (key, numbering) VALUES (?, ?)", rows)
                connection.execute(
                    "DELETE FROM numberings WHERE id <= (SELECT max(id) FROM numberings) - ?", (_MOST_ROWS,)
                )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT)

    def _exists(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def _give_up(self, error: Exception) -> None:
        _say_once(str(self.path), str(error))
        self.path = None


@cache
def _say_once(path: str, why: str) -> None:
    log.warning(
        "numbering goes on without its cache %s (%s); delete a damaged file, name another folder in AIRRFORMER_CACHE, "
        "or turn the cache off with AIRRFORMER_CACHE=off",
        path,
        why,
    )


def _folder() -> Path | None:
    """Where caches are kept; None for nowhere."""
    given = os.environ.get("AIRRFORMER_CACHE")
    if given:
        return None if given == "off" else Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "airrformer"


def _key(sequence: str) -> bytes:
    return hashlib.blake2b(f"{anarcism.__version__} {RULES} {sequence}".encode(), digest_size=16).digest()


def _packed(numbering: Numbering) -> str:
    ends = [numbering.bounds.get(region) for region in REGIONS]
    return json.dumps([numbering.locus, ends, numbering.domains, numbering.reason], separators=(",", ":"))


def _unpacked(text: str) -> Numbering:
    locus, ends, domains, reason = json.loads(text)
    bounds = {region: (end[0], end[1]) for region, end in zip(REGIONS, ends) if end}
    return Numbering(locus, bounds, domains, reason)
