"""What a file is and what would become of it, without writing anything; and which chains to ask of it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.chain import Account, Chain, counted
from airrformer.parse.chains import UNTOLD, ChainBuilder
from airrformer.parse.dataset import Parsed, hints, parse_files, reasons_of
from airrformer.parse.domains import UNDECIDED
from airrformer.parse.records import Rejection, read_records
from airrformer.parse.survey import survey
from airrformer.receptors.tables import CHAIN_LOCI, kind_of_reason

ROWS_SHOWN = 10
_SHOWN = ["receptor_id", "locus", "v_call", "junction_aa", "j_call"]
_WIDEST = 28
_RECEPTORS = {"TCR": [("TRA", "TRB"), ("TRG", "TRD")], "antibody": [("heavy", "light")]}
_SOME = 0.1  # of the receptors have a kind of chain: it is asked for
_NUMBERED = 200  # chains of a file that nothing but numbering tells: so many are enough to know
_A_MINUTE = 1500  # chains that a core numbers


def guess_chains(files: list[str], settings: dict) -> dict:
    """``receptor``, ``chains`` and ``missing_chain`` that fit the first records of the files.

    Both chains of a pair where half of its receptors have both; where few have both, but there are some of each kind,
    both again, and no receptor is rejected for lack of one; else the more frequent one.

    Args:
        settings: keys of ``Dataset`` that are given; ``receptor`` may be among them.

    Raises ``UserError`` where nothing in the files says which chains they hold.
    """
    receptors = [settings["receptor"]] if settings.get("receptor") else list(_RECEPTORS)
    dataset = Dataset(**{**settings, "sequences": files, "receptor": receptors[0], "chains": list(CHAIN_LOCI)})
    kinds: dict[str, set[str]] = defaultdict(set)
    reasons: Counter[str] = Counter()
    for outcome in itertools.chain.from_iterable(_sampled(file, dataset) for file in files):
        if isinstance(outcome, Chain):
            kinds[outcome.record.receptor_id].add(outcome.chain or "")
        else:
            reasons[outcome.reason] += 1
    best, most = None, 0
    for receptor in receptors:
        for pair in _RECEPTORS[receptor]:
            having = sum(bool(names & set(pair)) for names in kinds.values())
            if having > most:
                best, most = (receptor, pair), having
    if best is None:
        names = ", ".join(files)
        if any(not reason.startswith((UNTOLD, UNDECIDED)) for reason in reasons):
            shown = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
            raise UserError(f"{names}: no chain is left of the first {counted(reasons.total(), 'record')}: {shown}")
        raise UserError(f"{names}: nothing says which chains these are; say it: --chains TRB, or heavy, ...")
    receptor, pair = best
    counts = Counter(name for names in kinds.values() for name in names & set(pair))
    both = sum(names >= set(pair) for names in kinds.values())
    if both * 2 < most and min(counts[name] for name in pair) < _SOME * most:
        return {"receptor": receptor, "chains": [max(pair, key=lambda name: counts[name])]}
    lone = {"missing_chain": "zero"} if both * 2 < most else {}
    return {"receptor": receptor, "chains": list(pair), **lone}


def _sampled(file: str, dataset: Dataset) -> list[Chain | Rejection]:
    """What the first records of a file are."""
    opened = read_records(file, dataset)
    head, facts = survey(opened, dataset)
    opened.close()
    builder = ChainBuilder(dataset.model_copy(update={"rebuild": "never"}), facts, Account(), most_numbered=_NUMBERED)
    return builder.build(head)


def describe(dataset: Dataset, told_only: bool = False) -> str:
    """What the files of a dataset are, the columns that are used, counts, ten rows, and what would be rejected.

    Raises ``UserError`` where parsing would.
    """
    parsed = parse_files(dataset.files, dataset, most_numbered=_NUMBERED, told_only=told_only)
    lines: list[str] = []
    for file, name in parsed.formats.items():
        lines.append(f"{file}: {name}")
        lines += [f"  {ours} <- {', '.join(theirs)}" for ours, theirs in parsed.used[file].items()]
    open_, notes = int((parsed.rejected["reason"] == UNDECIDED).sum()), parsed.table["note"].cast("string").to_pylist()
    undecided = open_ + sum(UNDECIDED in (note or "") for note in notes)
    left = len(parsed.rejected) - open_
    chains = ",".join(dataset.chains)
    lone = " --missing-chain zero" if dataset.missing_chain == "zero" else ""
    lines += ["", f"Read with --receptor {dataset.receptor} --chains {chains}{lone}"]
    lines.append(
        f"{counted(parsed.records, 'record')}: {counted(len(parsed.receptor_ids), 'receptor')} with "
        f"{counted(parsed.table.num_rows, 'chain')}, {left:,} would be rejected"
    )
    if undecided:
        lines.append(
            f"  {counted(undecided, 'chain')} would be numbered, in about {undecided / _A_MINUTE:,.1f} minutes on one "
            "core; what becomes of them is not known yet"
        )
    lines += [f"  {count:,} {status}" for status, count in Counter(parsed.status).most_common()]
    lines += [f"  {note}" for note in parsed.notes]
    by = ", ".join(f"{count:,} {_BY[how]}" for how, count in parsed.regions_by.items() if count)
    lines += [f"Regions: {by}", "", *_first_rows(parsed), *_rejects(parsed)]
    return "\n".join(lines)


_BY = {
    "genes": "by their genes",
    "germlines": "by germline residues",
    "numbering": "by numbering",
    "cdr3_only": "a junction or CDR3 only",
    "none": "unknown",
}


def _first_rows(parsed: Parsed) -> list[str]:
    table = parsed.table.slice(0, ROWS_SHOWN).to_pandas()
    cells = [[*_SHOWN, "residues"]]
    for row in table.itertuples():
        values = [getattr(row, name) for name in _SHOWN]
        cells.append([_cut(value) for value in values] + [f"{_cut(row.sequence_aa)} ({len(row.sequence_aa)})"])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in cells]


def _cut(value) -> str:
    text = value if isinstance(value, str) else ""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)  # ids may hold codes for terminals
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _rejects(parsed: Parsed) -> list[str]:
    rejected = parsed.rejected[parsed.rejected["reason"] != UNDECIDED]
    if not len(rejected):
        return []
    lines = ["", "Would be rejected:"]
    kinds = rejected["reason"].map(kind_of_reason)
    reasons = reasons_of(rejected)
    for kind, count in reasons.items():
        first = rejected[kinds == kind].iloc[0]
        what = f": {_cut(first['value'])}" if first["value"] else ""
        lines.append(f"  {count:,} {kind}; the first: line {first['line']}, {first['id']!r}, {first['reason']}{what}")
    return lines + hints(reasons)
