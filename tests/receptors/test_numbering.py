import logging
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from airrformer.receptors import numbering
from airrformer.receptors.germlines import rebuild_chain
from airrformer.receptors.numbering import LONGEST, Numbering, number

TRB = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
TRA = rebuild_chain("TRAV21*01", "CAVRDSNYQLIF", "TRAJ33*01").sequence_aa
NO_DOMAIN = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMKAL"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The file of a cache of this test alone."""
    monkeypatch.setenv("AIRRFORMER_CACHE", str(tmp_path))
    return tmp_path / "numbering.sqlite"


@pytest.fixture
def no_cache(monkeypatch):
    monkeypatch.setenv("AIRRFORMER_CACHE", "off")


def rows(file):
    connection = sqlite3.connect(file)
    (count,) = connection.execute("SELECT count(*) FROM numberings").fetchone()
    connection.close()
    return count


def change(file, statement):
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(statement)
    connection.close()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("sequence", "reason"),
    [
        ("", "no residues"),
        ("KKLLLSDSGFYLCDYIGFGQGTRLTVV" * 9, "more than 8 V domains, or parts of them, in one sequence"),
        (NO_DOMAIN, "no V domain found"),
        (TRB[:85], "the V domain ends before its CDR3"),
        ("A" * (LONGEST + 1), "1001 residues; at most 1000 are numbered"),
        (TRB[:50] + "*" + TRB[50:], "'*' is no residue that can be numbered"),
        (TRB.lower(), "'a' is no residue that can be numbered"),
        (TRB[:50] + " " + TRB[50:], "' ' is no residue that can be numbered"),
    ],
    ids=["empty", "many domains", "no domain", "no cdr3", "long", "stop", "lower case", "space"],
)
def test_a_chain_that_cannot_be_numbered_says_why_and_the_rest_goes_on(sequence, reason, no_cache):
    before, found, after = number([TRB, sequence, TRA], workers=2)
    assert (found.bounds, found.reason) == ({}, reason)
    assert before.locus == "TRB" and after.locus == "TRA"
    assert before.reason is None and before.by == "numbering"


def test_order_and_repeats_are_kept(no_cache):
    assert [one.locus for one in number([TRA, TRB, TRA, NO_DOMAIN, TRB])] == ["TRA", "TRB", "TRA", None, "TRB"]
    assert number([]) == []


def test_of_two_domains_the_first_counts(no_cache):
    (found,) = number([TRB + "GGGGSGGGGSGGGGS" + TRA])
    assert found.domains == 2 and found.locus == "TRB"
    assert found.bounds["fwr4"][1] == len(TRB)


def test_a_known_locus_changes_nothing(no_cache):
    chains = [TRA, TRB, NO_DOMAIN]
    assert number(chains, loci=["TRA", "TRB", "IGH"]) == number(chains)
    assert number([TRA], loci=["TRB"]) == number([TRA])  # not even one that is wrong


def test_progress_is_told_with_the_rate_and_the_time_left(monkeypatch, caplog, no_cache):
    monkeypatch.setattr(numbering, "_CHUNK", 2)
    monkeypatch.setattr(numbering, "_SECONDS_BETWEEN_LINES", 0)
    with caplog.at_level(logging.INFO):
        number([TRA[i:] for i in range(6)])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" chains, ")[0] for line in lines] == ["numbered 2 of 6", "numbered 4 of 6"]
    assert all(" a second, " in line and line.endswith(" s left") for line in lines)


def test_few_chains_are_numbered_without_a_line(caplog, no_cache):
    with caplog.at_level(logging.INFO):
        number([TRA])
    assert not caplog.records


def test_what_was_numbered_comes_from_the_cache(cache):
    chains = [TRA, NO_DOMAIN, TRA + NO_DOMAIN]
    first = number(chains)
    assert rows(cache) == 3
    assert number(chains) == first
    change(cache, "UPDATE numberings SET numbering = replace(numbering, 'TRA', 'TRG')")
    assert [one.locus for one in number(chains)] == ["TRG", None, "TRG"]


@pytest.mark.parametrize("what", ["RULES", "anarcism"])
def test_the_cache_of_other_rules_or_of_another_anarcism_is_not_read(what, cache, monkeypatch):
    number([TRA])
    change(cache, "UPDATE numberings SET numbering = replace(numbering, 'TRA', 'TRG')")
    if what == "RULES":
        monkeypatch.setattr(numbering, "RULES", numbering.RULES + 1)
    else:
        monkeypatch.setattr(numbering.anarcism, "__version__", "0")
    assert number([TRA])[0].locus == "TRA"
    assert rows(cache) == 2


def test_the_oldest_are_dropped_when_there_are_too_many(cache, monkeypatch):
    monkeypatch.setattr(numbering, "_MOST_ROWS", 5)
    chains = [NO_DOMAIN[:i] for i in range(20, 30)]
    for chain in chains:
        number([chain])
    assert rows(cache) == 5
    opened = numbering.Cache.open()
    assert set(opened.read(chains)) == set(chains[5:])


def test_off_is_no_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRRFORMER_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    number([NO_DOMAIN])
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("AIRRFORMER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    number([NO_DOMAIN])
    assert rows(tmp_path / "airrformer" / "numbering.sqlite") == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    number([NO_DOMAIN])
    assert rows(tmp_path / ".cache" / "airrformer" / "numbering.sqlite") == 1


def assert_goes_on_without(cache, caplog):
    for _ in range(2):
        assert [one.locus for one in number([TRA, NO_DOMAIN])] == ["TRA", None]
    (said,) = warnings(caplog)
    assert str(cache) in said and "AIRRFORMER_CACHE=off" in said


def test_a_damaged_cache_is_no_matter(cache, caplog):
    cache.write_bytes(b"no database at all, " * 200)
    assert_goes_on_without(cache, caplog)


def test_a_damaged_entry_is_no_matter(cache, caplog):
    number([TRA])
    change(cache, "UPDATE numberings SET numbering = '[1, 2'")
    assert_goes_on_without(cache, caplog)


def test_a_cache_of_another_kind_is_no_matter(cache, caplog):
    change(cache, "CREATE TABLE numberings (something TEXT)")
    assert_goes_on_without(cache, caplog)


def test_a_folder_that_cannot_be_made_is_no_matter(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AIRRFORMER_CACHE", str(tmp_path / "file"))
    assert_goes_on_without(tmp_path / "file", caplog)


def test_a_cache_that_cannot_be_written_is_read_all_the_same(cache, caplog):
    number([TRA])
    change(cache, "UPDATE numberings SET numbering = replace(numbering, 'TRA', 'TRG')")
    change(cache, "CREATE TRIGGER full BEFORE INSERT ON numberings BEGIN SELECT RAISE(FAIL, 'disk is full'); END")
    for _ in range(2):
        assert [one.locus for one in number([TRA, NO_DOMAIN])] == ["TRG", None]
    (said,) = warnings(caplog)
    assert "disk is full" in said


def test_a_cache_that_another_job_holds_is_not_waited_for_long(cache, caplog, monkeypatch):
    monkeypatch.setattr(numbering, "_SECONDS_TO_WAIT", 0.1)
    number([TRB])
    connection = sqlite3.connect(cache, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert_goes_on_without(cache, caplog)
    finally:
        connection.close()


def test_threads_share_the_cache(cache, caplog):
    chains = [NO_DOMAIN[:i] for i in range(20, 60)]
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: number(chains[i : i + 10]), [0, 10, 20, 30] * 4))
    assert all(one == Numbering(None, {}, 0, "no V domain found") for part in parts for one in part)
    assert rows(cache) == 40
    assert not warnings(caplog)


def test_jobs_share_the_cache(cache):
    program = (
        "import sys; from airrformer.receptors.numbering import number; s = sys.argv[1]\n"
        "for i in range(20, 60): number([s[:i]])"
    )
    jobs = [
        subprocess.Popen([sys.executable, "-c", program, NO_DOMAIN], stderr=subprocess.PIPE, env=os.environ.copy())
        for _ in range(3)
    ]
    for job in jobs:
        _, errors = job.communicate(timeout=120)
        assert (job.returncode, errors) == (0, b"")
    assert rows(cache) == 40
