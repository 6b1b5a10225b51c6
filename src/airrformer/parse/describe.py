"""What a file is and what would become of it, without writing anything; and which chains to ask of it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from airrformer.config import Dataset
from airrformer.parse.chains import Account, Chain, ChainBuilder
from airrformer.parse.dataset import Parsed, parse_files, reasons_of
from airrformer.parse.files import STDIN
from airrformer.parse.records import SAMPLE, Record, read_records
from airrformer.parse.survey import survey
from airrformer.receptors.numbering import number
from airrformer.receptors.tables import CHAIN_LOCI, CHAIN_OF_LOCUS, kind_of_reason

ROWS_SHOWN = 10
_SHOWN = ["receptor_id", "locus", "v_call", "junction_aa", "j_call"]
_WIDEST = 28
_RECEPTORS = {"TCR": [("TRA", "TRB"), ("TRG", "TRD")], "antibody": [("heavy", "light")]}
_NUMBERED = 24  # chains of a file that nothing but numbering tells: so many are enough


def guess_chains(files: list[str], settings: dict) -> dict:
    """``receptor`` and ``chains`` that the first records of the files hold, as ``Dataset`` wants them.

    Both chains of a pair where at least half of its receptors have both, else the more frequent one; TRB where nothing
    tells.

    Args:
        settings: keys of ``Dataset`` that are given; ``receptor`` may be among them.
    """
    receptors = [settings["receptor"]] if settings.get("receptor") else list(_RECEPTORS)
    dataset = Dataset(**{**settings, "sequences": files, "receptor": receptors[0], "chains": list(CHAIN_LOCI)})
    kinds: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for receptor_id, chain in _sampled(file, dataset):
            kinds[receptor_id].add(chain)
    best: tuple[int, str, list[str]] = (0, receptors[0], ["TRB" if receptors[0] == "TCR" else "heavy"])
    for receptor in receptors:
        for pair in _RECEPTORS[receptor]:
            counts = Counter(name for names in kinds.values() for name in names & set(pair))
            both = sum(names >= set(pair) for names in kinds.values())
            having = sum(bool(names & set(pair)) for names in kinds.values())
            chains = list(pair) if both * 2 >= having else [max(pair, key=lambda name: counts[name])]
            best = max(best, (having, receptor, chains), key=lambda found: found[0])
    return {"receptor": best[1], "chains": best[2]}


def _sampled(file: str, dataset: Dataset) -> list[tuple[str, str]]:
    """(receptor id, chain) of the first records of a file."""
    opened = read_records(file, dataset)
    head = list(itertools.islice(opened.records, SAMPLE))
    facts = survey(opened.path, [record for record in head if isinstance(record, Record)], dataset)
    builder = ChainBuilder(dataset.model_copy(update={"rebuild": "never"}), facts, Account(), number=False)
    chains: list[tuple[str, str]] = []
    untold: list[Record] = []
    for record, outcome in zip(head, builder.build(head)):
        if isinstance(outcome, Chain):
            chains.append((outcome.record.receptor_id, outcome.chain or ""))
        elif isinstance(record, Record) and outcome.reason.startswith("chain cannot be told"):
            untold.append((record, outcome.value))
    numbered = number([sequence for _, sequence in untold[:_NUMBERED]])
    loci = Counter(found.locus for found in numbered if found.locus)
    if loci:
        usual = CHAIN_OF_LOCUS[loci.most_common(1)[0][0]]
        told = [CHAIN_OF_LOCUS[found.locus] if found.locus else usual for found in numbered]
        names = itertools.chain(told, itertools.repeat(usual))
        chains += [(record.receptor_id, name) for (record, _), name in zip(untold, names)]
    return chains


def describe(dataset: Dataset) -> str:
    """What the files of a dataset are, the columns that are used, counts, ten rows, and what would be rejected.

    Raises ``UserError`` where parsing would.
    """
    parsed = parse_files(dataset.files, dataset, number=False)
    lines: list[str] = []
    for file, name in parsed.formats.items():
        lines.append(f"{file}: {name}")
        lines += [f"  {ours} <- {', '.join(theirs)}" for ours, theirs in parsed.used[file].items()]
    chains = ",".join(dataset.chains)
    lines += ["", f"Read with --receptor {dataset.receptor} --chains {chains}"]
    lines.append(
        f"{parsed.records:,} records: {len(parsed.receptor_ids):,} receptors with {parsed.table.num_rows:,} chains, "
        f"{len(parsed.rejected):,} would be rejected"
    )
    lines += [f"  {count:,} {status}" for status, count in Counter(parsed.status).most_common()]
    lines += [f"  {note}" for note in parsed.notes]
    by = ", ".join(f"{count:,} {_BY[how]}" for how, count in parsed.regions_by.items() if count)
    lines.append(f"Regions: {by}")
    lines += ["", *_first_rows(parsed), *_rejects(parsed)]
    if STDIN in dataset.files:
        lines = [line.replace(f"{STDIN}:", "standard input:", 1) for line in lines]
    return "\n".join(lines)


_BY = {
    "genes": "by their genes",
    "germlines": "by germline residues",
    "numbering": "by numbering",
    "cdr3_only": "a junction or CDR3 only",
    "none": "would be numbered",
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
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _rejects(parsed: Parsed) -> list[str]:
    if not len(parsed.rejected):
        return []
    lines = ["", "Would be rejected:"]
    kinds = parsed.rejected["reason"].map(kind_of_reason)
    for kind, count in reasons_of(parsed.rejected).items():
        first = parsed.rejected[kinds == kind].iloc[0]
        what = f": {_cut(first['value'])}" if first["value"] else ""
        lines.append(f"  {count:,} {kind}; the first: line {first['line']}, {first['id']!r}, {first['reason']}{what}")
    return lines
