"""Mutated files of every format against the whole parse: no traceback, no hang, no record unaccounted for.

    python tests/parse/fuzz.py --inputs 20000
    python tests/parse/fuzz.py --minutes 10 --format "MiXCR" --seed 5
    python tests/parse/fuzz.py --inputs 500 --files /data/*.csv    # mutates these too

Each input is made from a format and a number alone, so that it can be made again. What the parse may do with it is to
give chains and rejections that add up, or one ``UserError``. Anything else is a finding: of each kind one input, made
as small as it goes, is kept in --keep with the dataset's options and the traceback, and the exit status is 1.

AnnData files are cut only, not mutated: the HDF5 library itself can hang on a damaged file.
"""

import argparse
import bz2
import contextlib
import faulthandler
import gzip
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from parse.formats_written import PAIRS, WRITERS, draw_quirks, write

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.dataset import Parsed, parse_dataset, parse_files
from airrformer.receptors.tables import REGIONS

SECONDS = 10  # a parse of so few records that takes longer hangs
MEMORY = 6 << 30  # bytes of address space for a worker: what asks for more fails
ANNDATA = sorted((Path(__file__).parent / "data").glob("*.h5*"))
# One chain a row in lines without quoting: each line after the header is a record.
LINE_BY_LINE = {"AIRR", "10x AIRR", "VDJdb web", "immunoSEQ v2", "immunoSEQ v3", "MiXCR", "VDJtools"}


@dataclass(frozen=True)
class Case:
    """One input: ``data`` is the file, ``options`` those of the dataset. ``lines``: the least number of records."""

    format: str
    number: int
    data: bytes
    options: dict
    strict: bool = False
    any_header: bool = False
    write: bool = False

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^a-z0-9]+', '-', self.format.lower())}-{self.number}"


# ---------------------------------------------------------------------------------------------------------- mutations

_ODD_TEXT = [
    "\0", "\ufeff", "\u2028", "\x85", "\x0b", "\x1c", "\u00a0", "İ", "ﬀ", "٣", "α", "é", "😀", "a\u0301", "\\", '"',
    "'", "''", '""', "\t\t", ",,", ";", "|", "#", "@", ">", "+", "{", "[", "\r", "\n\n", "\r\r\n", "<pad>", "<mask>",
    "NaN", "None", "*", "_", "-", "1e309", "-1", "nan", "0", "99999999999999999999", "=1+1", "%s", "{0}", "../x",
    "TRBV", "IGHV1-2*99", "TRAV14/DV4*01", "T", "F",
]  # fmt: skip
_ODD_BYTES = [
    b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xc3", b"\xf8\x88", b"\x1f\x8b", b"BZh9",
    b"\x28\xb5\x2f\xfd", b"PK\3\4",
]  # fmt: skip


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice([1, 2, 8, 64, 600]))


def flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 10])):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def delete(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def duplicate(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice([1, 2, 50]) + data[stop:]


def move(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    rest = data[:start] + data[stop:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + data[start:stop] + rest[at:]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def behead(rng: random.Random, data: bytes) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def insert_odd(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    odd = rng.choice(_ODD_BYTES) if rng.random() < 0.2 else rng.choice(_ODD_TEXT).encode()
    return data[:at] + odd * rng.choice([1, 1, 1, 3, 300]) + data[at:]


def insert_long(rng: random.Random, data: bytes) -> bytes:
    """A huge line, or a huge cell of one."""
    at = rng.randrange(len(data) + 1)
    letter = rng.choice([b"A", b"C", b"CASS", b" ", b"\t", b",", b'"', b"x", b"N", b"*", b"-", b"1"])
    return data[:at] + letter * rng.choice([1_000, 1_000, 20_000, 200_000]) + data[at:]


def swap_marks(rng: random.Random, data: bytes) -> bytes:
    marks = [
        b"\t",
        b",",
        b";",
        b"|",
        b" ",
        b'"',
        b"'",
        b"\n",
        b"\r\n",
        b"\r",
        b">",
        b"@",
        b"#",
        b"None",
        b"T",
        b"TR",
        b"-",
    ]
    one, other = rng.sample(marks, 2)
    return data.replace(one, other, rng.choice([-1, -1, 1, 3]))


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    kind = rng.randrange(3)
    if kind == 0:
        rng.shuffle(lines)
    elif kind == 1:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    else:
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def replace_cell(rng: random.Random, data: bytes) -> bytes:
    """One cell, or one name of the header, becomes something else."""
    cells = list(re.finditer(rb"[^\t,;|\r\n]+", data))
    if not cells:
        return data
    cell = rng.choice(cells)
    new = rng.choice([rng.choice(_ODD_TEXT).encode(), rng.choice(cells).group(), b"", b"CASS", b"A" * 70])
    return data[: cell.start()] + new + data[cell.end() :]


def drop_column(rng: random.Random, data: bytes) -> bytes:
    mark = max((b"\t", b",", b";"), key=data.count)
    rows = [line.split(mark) for line in data.split(b"\n")]
    at = rng.randrange(max(map(len, rows)))
    return b"\n".join(mark.join(row[:at] + row[at + 1 :]) for row in rows)


MUTATIONS = [flip, delete, duplicate, move, cut, behead, insert_odd, insert_odd, insert_long, swap_marks, shuffle_lines,
             shuffle_lines, drop_column, *[replace_cell] * 6]  # fmt: skip


def _compressed(rng: random.Random, data: bytes) -> bytes:
    """Now and then the file is compressed, and what is compressed damaged."""
    if rng.random() < 0.9:
        return data
    packed = rng.choice([gzip.compress, bz2.compress])(data)
    packed = rng.choice([packed, packed + packed, packed + b"\0" * 20, packed + data[:50], gzip.compress(packed)])
    return rng.choice([flip, cut, delete, lambda _, same: same])(rng, packed)


def make(format: str, number: int, files: list[Path]) -> Case:
    """The input of that number."""
    rng = random.Random(f"{format} {number}")
    options: dict = {
        "receptor": rng.choice(["TCR", "antibody"]),
        "missing_chain": rng.choice(["reject", "zero", "zero"]),
    }
    if format == "AnnData":
        data = cut(rng, rng.choice(ANNDATA).read_bytes())
    elif format == "files":
        data = rng.choice(files).read_bytes()[:20_000]
    else:
        # Compressed after the mutations, and seldom UTF-16: else nearly all are damaged beyond reading.
        quirks = replace(draw_quirks(rng), compression="")
        quirks = quirks if rng.random() < 0.2 else replace(quirks, encoding="utf-8")
        written, options["receptor"] = write(rng, format, quirks, most=2)
        data, options = written.data, options | written.options
    options = {"chains": list(PAIRS[options["receptor"]])} | options
    if format != "AnnData":
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            data = rng.choice(MUTATIONS)(rng, data)
        data = _compressed(rng, data)
    for name, values in {
        "molecule": ["protein", "nucleotide"],
        "several_chains": ["drop"],
        "cdr3_anchors": ["each", "with", "without"],
        "rebuild": ["always", "never"],
        "alleles": ["gene", "first"],
        "leader_and_constant": ["cut"],
        "repeated_ids": ["rename"],
        "species": ["mouse", "human"],
        "min_umis": [2],
        "duplicates": ["merge"],
        "labels": [{"column": "{file}"}],
    }.items():
        if rng.random() < 0.07:
            options[name] = rng.choice(values)
    if rng.random() < 0.1:
        options.pop("columns", None)
        options.pop("id", None)
    return Case(format, number, data, options, rng.random() < 0.1, rng.random() < 0.3, rng.random() < 0.2)


# ------------------------------------------------------------------------------------------------------------ the parse


class Unaccounted(AssertionError):
    """Chains and rejections do not add up, or say what cannot be."""


def parse(case: Case, folder: Path) -> str:
    """Parse an input and check what comes out; how it ended. Raises whatever is wrong."""
    path = folder / "input"
    path.write_bytes(case.data)
    dataset = Dataset(sequences=str(path), **case.options)
    try:
        parsed = parse_files([str(path)], dataset, strict=case.strict, any_header=case.any_header)
        check(parsed, case, str(path))
        if case.write:
            summary = parse_dataset(dataset, folder / "parsed")
            rows = pd.read_csv(folder / "parsed" / "rejected.tsv", sep="\t", keep_default_na=False, quoting=0)
            left_out = summary["records"] - summary["chains"] - summary["merged"]
            if len(rows) != left_out:
                raise Unaccounted(f"rejected.tsv has {len(rows)} rows for {left_out}")
    except UserError as error:
        if "\n" in str(error) or not str(error).strip():
            raise Unaccounted(f"an error that is not one sentence: {error}") from error
        return "refused"
    return "parsed"


def check(parsed: Parsed, case: Case, path: str) -> None:
    """What holds of every parse."""
    chains, rejected = parsed.table.to_pylist(), parsed.rejected.to_dict("records")
    if parsed.records != len(chains) + len(rejected):
        raise Unaccounted("records are not chains and rejections")
    if not all(row["file"] == path and row["line"] > 0 for row in chains + rejected):
        raise Unaccounted("a row without its file and line")
    if not all(row["reason"].strip() for row in rejected):
        raise Unaccounted("a rejection without a reason")
    least = least_records(case)
    if least is not None and parsed.records < least:
        raise Unaccounted(f"{parsed.records} records of {least} lines")
    for row in chains:
        if not re.fullmatch("[ACDEFGHIKLMNPQRSTVWXY]+", row["sequence_aa"]):
            raise Unaccounted(f"residues {row['sequence_aa'][:60]!r}")
        bounds = [(row[f"{region}_start"], row[f"{region}_end"]) for region in REGIONS]
        flat = [place for pair in bounds for place in pair if place is not None]
        if flat != sorted(flat) or (flat and not 0 <= flat[0] <= flat[-1] <= len(row["sequence_aa"])):
            raise Unaccounted(f"bounds {flat} of {len(row['sequence_aa'])} residues")


def least_records(case: Case) -> int | None:
    """How many records a file of plain text has at least, counted without the reader; None where that is not clear."""
    if (
        case.data[:2] in (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"BZ")
        or b"\0" in case.data
        or case.data[:1] == b"\x28"
    ):
        return None
    lines = case.data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = [line for line in lines if line.strip()]
    if case.format.startswith("FASTA") and lines and lines[0].startswith(">"):
        return sum(line.startswith(">") for line in lines)
    if case.format in LINE_BY_LINE and lines and lines[0].count("\t") > 3 and lines[0][0] not in "#{>@;":
        return len(lines) - 1
    return None


# ------------------------------------------------------------------------------------------------------- the two sides


def work(jobs, results, files: list[Path], stuck: Path) -> None:
    """A process of its own, which can be ended where it hangs: (format, number) or a whole case -> how it ended.

    ``stuck``: where it writes what it is doing when it takes long.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["AIRRFORMER_CACHE"] = "off"  # numbering of what nobody has does not belong into the user's cache
    with tempfile.TemporaryDirectory() as name, stuck.open("w") as trace:
        while (job := jobs.get()) is not None:
            faulthandler.dump_traceback_later(0.8 * SECONDS, file=trace)
            try:
                case = job if isinstance(job, Case) else make(*job, files)
                results.put((parse(case, Path(name)), "", ""))
            except BaseException as error:
                results.put(("finding", kind_of(error), traceback.format_exc()))
            faulthandler.cancel_dump_traceback_later()


def kind_of(error: BaseException) -> str:
    """The kind of an exception and the last line of ours that it went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "airrformer" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"


class Worker:
    """The process that parses; another is started where it had to be ended."""

    def __init__(self, files: list[Path]) -> None:
        self._context, self._files = multiprocessing.get_context("spawn"), files
        self._folder = tempfile.TemporaryDirectory()
        self._stuck = Path(self._folder.name) / "trace"
        self._start()

    def _start(self) -> None:
        self._jobs, self._results = self._context.Queue(), self._context.Queue()
        self._process = self._context.Process(
            target=work, args=(self._jobs, self._results, self._files, self._stuck), daemon=True
        )
        self._process.start()
        self.ask(Case("start", 0, b">a\nCASSF\n", {"receptor": "TCR", "chains": ["TRB"]}), 120)

    def ask(self, job, seconds: float = SECONDS) -> tuple[str, str, str]:
        self._jobs.put(job)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # queue.Empty
                return self._results.get(timeout=min(1.0, seconds))
            if not self._process.is_alive():
                code = self._process.exitcode
                self._start()
                return "finding", f"the process ended with {code}", ""
        self._process.kill()
        self._process.join()
        trace = self._stuck.read_text().rpartition("Timeout")[2]  # before it, inputs that were slow but came to an end
        self._start()
        where = re.search(r'airrformer/(\S+)"', trace)
        return "finding", f"no answer in {seconds} s{f', in {where[1]}' if where else ''}", trace

    def close(self) -> None:
        self._jobs.put(None)
        self._process.join(20)
        self._folder.cleanup()


def smaller(case: Case, kind: str, worker: Worker, seconds: float = 60) -> Case:
    """The same finding from fewer bytes: halves, quarters, ... of the file are left out while it stays."""
    deadline, size = time.monotonic() + seconds, len(case.data) // 2
    while size and time.monotonic() < deadline:
        start = 0
        while start < len(case.data) and time.monotonic() < deadline:
            less = Case(**{**vars(case), "data": case.data[:start] + case.data[start + size :]})
            if worker.ask(less)[1] == kind:
                case = less
            else:
                start += size
        size //= 2
    return case


@dataclass
class Finding:
    kind: str
    case: Case
    trace: str
    count: int = 1


def fuzz(
    inputs: int,
    seed: int = 0,
    minutes: float | None = None,
    formats: list[str] | None = None,
    files: list[Path] | None = None,
    log=lambda text: None,
) -> tuple[dict[str, int], list[Finding]]:
    """How the inputs ended, and the findings, one of each kind."""
    formats = formats or [*WRITERS, "AnnData", *(["files"] if files else [])]
    worker, ended, findings = Worker(files or []), {"parsed": 0, "refused": 0, "finding": 0}, {}
    start = last = time.monotonic()
    for i in range(inputs):
        now = time.monotonic()
        if minutes and now - start > 60 * minutes:
            break
        if now - last > 30:
            last = now
            log(f"{i:,} inputs, {now - start:.0f} s: {ended}, {len(findings)} kinds of findings")
        job = (formats[i % len(formats)], seed + i // len(formats))
        how, kind, trace = worker.ask(job)
        ended[how] += 1
        if how == "finding":
            if kind in findings:
                findings[kind].count += 1
                continue
            case = make(*job, files or [])
            findings[kind] = Finding(kind, case, trace)
            log(f"finding: {kind}: {case.name}")
    for finding in findings.values():
        if not finding.kind.startswith("no answer"):
            finding.case = smaller(finding.case, finding.kind, worker)
    worker.close()
    return ended, list(findings.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="how many inputs; they go round the formats")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input of each format")
    parser.add_argument("--format", action="append", choices=[*WRITERS, "AnnData", "files"], help="only this one")
    parser.add_argument("--files", type=Path, nargs="*", default=[], help="further files to mutate")
    kept = Path(tempfile.gettempdir()) / "airrformer-fuzz"
    parser.add_argument("--keep", type=Path, default=kept, help="folder for the inputs of findings")
    asked = parser.parse_args()
    start = time.monotonic()
    ended, findings = fuzz(
        asked.inputs, asked.seed, asked.minutes, asked.format, asked.files, log=lambda text: print(text, flush=True)
    )
    print(f"{sum(ended.values()):,} inputs in {time.monotonic() - start:.0f} s: {ended}")
    for finding in findings:
        asked.keep.mkdir(parents=True, exist_ok=True)
        stem = asked.keep / finding.case.name
        stem.with_suffix(".bin").write_bytes(finding.case.data)
        told = {k: v for k, v in asdict(finding.case).items() if k != "data"} | {"kind": finding.kind}
        stem.with_suffix(".json").write_text(json.dumps(told | {"trace": finding.trace}, indent=1))
        print(
            f"\n{finding.kind} ({finding.count} times): {stem}.bin, {len(finding.case.data):,} bytes\n{finding.trace}"
        )
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
