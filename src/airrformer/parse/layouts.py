"""The layout of a table: which of its columns hold what, by its header, and its first rows where that does not tell."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from airrformer.errors import UserError
from airrformer.parse.columns import CHAIN_NAMES, COLUMNS, KNOWN, LONG, RESIDUES, SHORT_CDRS, WIDE, Names, plain
from airrformer.parse.files import is_missing
from airrformer.parse.formats import FORMATS, Fields, Format
from airrformer.parse.table import Table, near

LONG_TABLE, WIDE_TABLE = "table", "table with a column for each chain"


# ---------------------------------------------------------------------------------------------- without a header

_SHORTEST, _SHORT_WORD = 4, 12  # letters
_LIKE_RESIDUES = re.compile(r"[ACDEFGHIKLMNPQRSTVWYXBZJUO*_.~#\s-]+", re.IGNORECASE)
_GENE_NAME = re.compile(r"(?:TR|IG)[ABGDHKL]([VJ])[\w/.*-]+", re.IGNORECASE)
_NUCLEOTIDES = re.compile(r"[ACGTN]{9,}", re.IGNORECASE)
_JUNCTION = re.compile(r"C[ACDEFGHIKLMNPQRSTVWY]{2,40}[FWC]|C[ACDEFGHIKLMNPQRSTVWY*_]{2,40}")


def with_header(table: Table) -> Table | None:
    """A table whose first line is a record already, as OLGA writes, with the header that it lacks; None for others.

    Its columns (junction, junction_aa, V gene, J gene, some or all) are told by what is in them.
    """
    if any(plain(cell) in KNOWN for cell in table.header):
        return None
    names: list[str] = []
    for cell in table.header:
        gene = _GENE_NAME.fullmatch(cell)
        if gene:
            name = f"{gene.group(1).lower()}_call"
        elif _NUCLEOTIDES.fullmatch(cell):
            name = "junction"
        elif _JUNCTION.fullmatch(cell):
            name = "junction_aa"
        else:
            name = ""
        names.append("" if name in names else name)
    if not {"junction", "junction_aa"} & set(names) or len(list(filter(None, names))) < 2:
        return None
    rows = itertools.chain([(1, table.header)], table.rows)
    note = f"{table.path}: the file has no header; its columns are told by what is in them, as OLGA writes them"
    return Table(table.path, names, rows, table.metadata, [*table.notes, note])


# ----------------------------------------------------------------------------------------- a table under our names


@dataclass(frozen=True)
class ChainColumns:
    """Where a row holds one chain: our name -> positions of columns, the first with a value counts."""

    positions: dict[str, tuple[int, ...]]
    fixed: Fields = field(default_factory=dict)
    suffix: str = ""  # of the receptor's id, where a row holds a second receptor


@dataclass(frozen=True)
class Layout:
    """How the rows of one table are read. ``used``: our name (of a chain, where a row has several) -> its columns."""

    name: str
    chains: tuple[ChainColumns, ...]
    used: dict[str, list[str]]
    adapt: Callable[[Fields], Fields] | None = None
    split: Callable[[Fields], list[Fields]] | None = None
    rows_may_lack_id: bool = False


def layout_of(table: Table, columns: dict[str, str] | None = None, name: str = "auto") -> Layout:
    """The layout of a table by its header; ``columns`` (ours -> theirs, a chain's as "TRA.junction_aa") goes first.

    Args:
        name: a format's name where the user says which it is.

    Raises:
        UserError: the format is not known, a column is not there, or no column holds residues.
    """
    if name.lower() == LONG_TABLE:
        return _laid_out(Format(LONG_TABLE, (), (LONG,)), table)
    if name != "auto":
        chosen = next((format for format in FORMATS if format.name.lower() == name.lower()), None)
        if chosen is None:
            names = [LONG_TABLE, *(format.name for format in FORMATS)]
            raise UserError(f"format: unknown name {name!r}{near(name, names)}")
        return _laid_out(chosen, table)
    if columns:
        return _by_column_map(table, columns)
    names = _plain_columns(tuple(table.header)).keys()
    for format in FORMATS:
        if any(told <= names for told in format.told_by):
            return _laid_out(format, table)
    wide = _wide(table)
    return wide if wide else _laid_out(Format(LONG_TABLE, (), (LONG,)), table)


def _laid_out(format: Format, table: Table) -> Layout:
    chains = tuple(ChainColumns(_positions(names, table)) for names in format.chains)
    layout = Layout(format.name, chains, _used(chains, table), format.adapt, format.split, format.rows_may_lack_id)
    if not any(name in chain.positions for chain in chains for name in (*RESIDUES, "_chains", "_identity", "_0")):
        raise UserError(
            f"{table.path}: no column sequence_aa, sequence, junction_aa or cdr3_aa, or another name of these, is "
            f"found; name it under columns (--columns junction_aa=NAME); there is {_listed(table)}"
        )
    return layout


def _listed(table: Table) -> str:
    return ", ".join(filter(None, table.header))[:400]


def with_residues(layout: Layout, table: Table, sample: list[list[str]]) -> Layout:
    """A layout that was told by common names only, without columns that hold no residues (``light_chain``: yes, no).

    Raises ``UserError`` where none is left.
    """
    if layout.name not in (LONG_TABLE, WIDE_TABLE):
        return layout
    kept, odd = [], ""
    for columns in layout.chains:
        found = [i for name in RESIDUES for i in columns.positions.get(name, ())]
        cells = [row[i].strip() for row in sample for i in found if i < len(row)]
        values = [value for value in cells if not is_missing(value)]
        certain = any(plain(table.header[i]) in _CERTAIN for i in found)
        if certain or not values or _hold_residues(values):
            kept.append(columns)
        else:
            odd = odd or f"{table.header[found[0]]!r} has {', '.join(list(dict.fromkeys(values))[:3])[:80]}"
    if not kept:
        raise UserError(
            f"{table.path}: no column of residues is found ({odd}); name it under columns (--columns junction_aa=NAME)"
        )
    return replace(layout, chains=tuple(kept))


_CERTAIN = {"junctionaa", "cdr3aa", "sequenceaa", "sequence"}  # AIRR's own names


def _hold_residues(values: list[str]) -> bool:
    """Whether most look like residues, and are not a few words over and over."""
    likely = [value for value in values if len(value) >= _SHORTEST and _LIKE_RESIDUES.fullmatch(value)]
    short = len(values) > 4 and len(set(likely)) <= 2 and max(map(len, likely), default=0) < _SHORT_WORD
    words = short and not all(_JUNCTION.fullmatch(value.upper()) for value in likely)
    return len(likely) * 2 >= len(values) and not words


def _wide(table: Table) -> Layout | None:
    """A table with the chains of a receptor side by side, or None where no chain is named in the columns."""
    chains: list[ChainColumns] = []
    labels: list[str] = []
    for chain in CHAIN_NAMES:
        positions = _positions(WIDE[chain], table)
        if set(positions) & set(RESIDUES):
            fixed = {"locus": chain} if "locus" not in positions else {}
            chains.append(ChainColumns(positions, fixed))
            labels.append(chain)
        again = _positions({ours: tuple(f"{n}ifbispec" for n in names) for ours, names in WIDE[chain].items()}, table)
        if "sequence_aa" in again:
            chains.append(ChainColumns(again, {"locus": chain}, "_2"))
            labels.append(f"second {chain}")
    long = _positions(LONG, table)
    if not chains or (len(chains) == 1 and {"sequence_aa", "junction_aa", "cdr3_aa"} & set(long)):
        return None
    shared = {ours: at for ours, at in long.items() if ours in ("receptor_id", "cell_id", "sequence_id", "species")}
    chains = [ChainColumns({**shared, **c.positions}, c.fixed, c.suffix) for c in chains]
    return Layout(WIDE_TABLE, tuple(chains), _used(chains, table, labels))


def _by_column_map(table: Table, columns: dict[str, str]) -> Layout:
    """The usual names, and ours where ``columns`` says so: then nothing else stands for them."""
    at = {name: i for i, name in enumerate(table.header)}
    taken = {at[theirs] for theirs in columns.values() if theirs in at}
    usual = _positions(LONG, table).items()
    shared = {ours: left for ours, places in usual if (left := tuple(i for i in places if i not in taken))}
    of_chain: dict[str, dict[str, tuple[int, ...]]] = {}
    for ours, theirs in columns.items():
        chain, _, name = ours.rpartition(".")
        if name not in COLUMNS or (chain and chain not in CHAIN_NAMES):
            known = COLUMNS if not chain else tuple(f"{c}.{n}" for c in CHAIN_NAMES for n in COLUMNS)
            raise UserError(f"columns: unknown name {ours!r}{near(ours, known)}")
        if theirs not in at:
            raise UserError(f"{table.path}: no column {theirs!r} (columns: {ours}){near(theirs, table.header)}")
        (of_chain.setdefault(chain, {}) if chain else shared)[name] = (at[theirs],)
    if of_chain:  # what is not said to be of one chain is of the row
        of_row = set(shared) - {*RESIDUES, *SHORT_CDRS, "v_call", "j_call", "c_call", "locus"}
        shared = {ours: places for ours, places in shared.items() if ours in of_row}
    chains = [ChainColumns({**shared, **own}, {"locus": chain}) for chain, own in of_chain.items()]
    chains = chains or [ChainColumns(shared)]
    if not any(name in chain.positions for chain in chains for name in RESIDUES):
        raise UserError(
            f"{table.path}: no column sequence_aa, sequence, junction_aa or cdr3_aa; name it under columns; "
            f"there is {_listed(table)}"
        )
    return Layout("table with a column map", tuple(chains), _used(chains, table, list(of_chain)))


def _positions(names: Names, table: Table) -> dict[str, tuple[int, ...]]:
    at = _plain_columns(tuple(table.header))
    found = {ours: tuple(dict.fromkeys(at[name] for name in theirs if name in at)) for ours, theirs in names.items()}
    # one column names things: two of them, row by row, would make one receptor of two
    return {ours: at[:1] if ours in _IDS else at for ours, at in found.items() if at}


_IDS = ("receptor_id", "cell_id", "sequence_id")


@lru_cache(maxsize=8)
def _plain_columns(header: tuple[str, ...]) -> dict[str, int]:
    return {plain(column): i for i, column in reversed(list(enumerate(header)))}


def _used(chains, table: Table, labels: list[str] | None = None) -> dict[str, list[str]]:
    labels = labels or [f"chain {k}" for k in range(1, len(chains) + 1)]
    return {
        (f"{label}.{ours}" if len(chains) > 1 else ours): [table.header[i] for i in positions]
        for label, chain in zip(labels, chains)
        for ours, positions in chain.positions.items()
        if not ours.startswith("_")
    }
