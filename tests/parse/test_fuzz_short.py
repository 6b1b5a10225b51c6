"""A short run of the fuzzer; the long one is `python tests/parse/fuzz.py --inputs 20000`."""

from parse.formats_written import WRITERS
from parse.fuzz import Case, Worker, fuzz, kind_of, least_records, make


def test_three_hundred_mutated_inputs():
    ended, findings = fuzz(300, seed=1)
    assert not findings, [(finding.kind, finding.case.data[:300], finding.trace) for finding in findings]
    assert sum(ended.values()) == 300
    # The mutations leave enough of the files that both ends are tested.
    assert min(ended["parsed"], ended["refused"]) > 30


def test_an_input_is_made_again_from_its_number():
    assert [make(name, 7, []) for name in WRITERS] == [make(name, 7, []) for name in WRITERS]


def test_a_hang_is_a_finding_and_the_next_input_is_parsed(tmp_path):
    case = Case("FASTA", 0, b">a\nCASSF\n", {"receptor": "TCR", "chains": ["TRB"]})
    worker = Worker([])
    assert worker.ask(case, seconds=0)[1] == "no answer in 0 s"
    assert worker.ask(case)[0] == "parsed"
    worker.close()


def test_what_is_not_a_users_mistake_is_a_finding():
    worker = Worker([])
    how, kind, trace = worker.ask(Case("FASTA", 0, b">a\nCASSF\n", {"receptor": "no such"}))
    assert (how, kind.split()[0]) == ("finding", "ValidationError")
    assert "Traceback" in trace
    worker.close()


def test_records_are_counted_without_the_reader():
    def counted(format: str, data: bytes) -> int | None:
        return least_records(Case(format, 0, data, {}))

    assert counted("FASTA", b">a\nCASSF\n>b\r\rCASSF\n") == 2
    assert counted("AIRR", b"a\tb\tc\td\te\n1\n\n2\n") == 2
    assert counted("AIRR", b"\x1f\x8b") is None
    assert kind_of(ValueError()) == "ValueError at ?"
