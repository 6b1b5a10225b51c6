"""How fast and in how much memory files are read, against a bare loop of Biopython's. No test; prints Markdown.

OMP_NUM_THREADS=1 python tests/benchmarks/parsing.py --cdr3s 1000000 --chains 200000 --numbered 200
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from Bio.SeqIO.FastaIO import SimpleFastaParser

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.parse.sequences import read_sequences
from airrformer.receptors.germlines import rebuild_chain
from airrformer.receptors.numbering import number
from airrformer.receptors.regions import bounds_from_germlines

V_GENES = ("TRBV19*01", "TRBV7-9*01", "TRBV5-1*01", "TRBV27*01", "TRBV20-1*01", "TRBV28*01")
J_GENES = ("TRBJ2-7*01", "TRBJ1-1*01", "TRBJ2-1*01")
READ_AGAIN = 3  # the fastest counts; of the whole commands, the only one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cdr3s", type=int, default=100_000, help="records of the FASTA file of CDR3s")
    parser.add_argument("--chains", type=int, default=20_000, help="records of the files of whole chains")
    parser.add_argument("--numbered", type=int, default=100, help="chains that are numbered")
    chosen = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        cdr3s, chains, table = (Path(folder) / name for name in ("cdr3s.fasta", "chains.fasta", "chains.tsv"))
        write_cdr3s(cdr3s, chosen.cdr3s, rng)
        write_chains(chains, table, chosen.chains, rng)
        reading([cdr3s, chains])
        whole([cdr3s, table], Path(folder))
    numbering(chosen.numbered, rng)


def junction(rng: random.Random) -> str:
    return f"CASS{''.join(rng.choices(AMINO_ACIDS, k=rng.randint(4, 10)))}YEQYF"


def write_cdr3s(path: Path, records: int, rng: random.Random) -> None:
    with path.open("w") as file:
        for i in range(records):
            file.write(f">sequence_{i}\n{junction(rng)}\n")


def write_chains(fasta: Path, table: Path, records: int, rng: random.Random) -> None:
    with fasta.open("w") as one, table.open("w") as other:
        other.write("sequence_id\tlocus\tv_call\tj_call\tjunction_aa\tsequence_aa\tproductive\tduplicate_count\n")
        for i in range(records):
            v, j, cdr3 = rng.choice(V_GENES), rng.choice(J_GENES), junction(rng)
            chain = rebuild_chain(v, cdr3, j).sequence_aa
            one.write(f">sequence_{i}\n{chain[:60]}\n{chain[60:]}\n")
            other.write(f"sequence_{i}\tTRB\t{v}\t{j}\t{cdr3}\t{chain}\tT\t{rng.randint(1, 50)}\n")


def seconds(call: Callable[[], object], repeats: int = READ_AGAIN) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def bare_loop(path: Path) -> int:
    with path.open() as file:
        return sum(1 for _ in SimpleFastaParser(file))


def reading(files: list[Path]) -> None:
    print("| FASTA | records | SimpleFastaParser, records/s | read and validated, records/s | ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for path in files:
        records = bare_loop(path)
        bare, ours = seconds(lambda path=path: bare_loop(path)), seconds(lambda path=path: read_sequences(path))
        print(f"| {path.name} | {records:,} | {records / bare:,.0f} | {records / ours:,.0f} | {bare / ours:.3f} |")
    print()


def whole(files: list[Path], folder: Path) -> None:
    print("| `airrformer parse`, one thread | records | s of CPU | records/s | peak memory, MB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for path in files:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "airrformer", "--quiet", "parse", path, "--output", folder / path.stem]
        subprocess.run([*map(str, command), "--chains", "TRB", "--threads", "1"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime
        with path.open() as file:
            records = sum(line.startswith((">", "sequence_")) for line in file) - (path.suffix == ".tsv")
        # the largest of all children so far, so that a smaller one after it is not seen
        print(f"| {path.name} | {records:,} | {spent:.1f} | {records / spent:,.0f} | {after.ru_maxrss / 1024:,.0f} |")
    print()


def numbering(count: int, rng: random.Random) -> None:
    """Chains that differ from each other, so that no cache helps: mutated ones too far from germline are numbered."""
    chains = [rebuild_chain(rng.choice(V_GENES), junction(rng), rng.choice(J_GENES)).sequence_aa for _ in range(count)]
    laid = seconds(lambda: [bounds_from_germlines(chain) for chain in chains], 1)
    start = time.perf_counter()
    number(chains, 1)
    numbered = time.perf_counter() - start
    start = time.perf_counter()
    number(chains, 1)
    again = time.perf_counter() - start
    print("| regions of V domains, one thread | chains/s |")
    print("| --- | ---: |")
    for how, spent in (("by germline residues", laid), ("by numbering", numbered), ("from the cache", again)):
        print(f"| {how} | {count / spent:,.0f} |")


if __name__ == "__main__":
    main()
