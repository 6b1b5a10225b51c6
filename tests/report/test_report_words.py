import pytest

from airrformer.report import words


def test_an_estimate_is_its_value_and_its_interval():
    assert words.estimate({"value": 0.8123, "low": 0.779, "high": 0.84}) == "0.81 [0.78, 0.84]"
    assert words.estimate({"value": 0.8, "low": None, "high": None}) == "0.80"
    assert words.estimate({"value": -0.031, "low": -0.2, "high": 0.1}) == "−0.03 [−0.20, 0.10]"


@pytest.mark.parametrize("metric", [None, {"value": None, "low": None, "high": None}, {"value": float("nan")}])
def test_what_has_no_value_is_undefined(metric):
    assert words.estimate(metric) == "undefined"


def test_a_difference_is_that_of_the_numbers_shown():
    assert words.difference({"value": 0.8149}, {"value": 0.7451}) == 0.06  # shown as 0.81 and 0.75; exactly 0.0698
    assert words.difference({"value": 0.8}, {"value": None}) is None
    assert [words.signed(x) for x in (-0.06, 0.06, 0.0, -0.001, None)] == [
        "−0.06",
        "+0.06",
        "0.00",
        "0.00",
        "undefined",
    ]


def test_counts_shares_and_lists():
    assert words.count(1450, "receptor") == "1,450 receptors"
    assert words.count(1, "antibody", "antibodies") == "1 antibody"
    assert words.percent(1, 10_000) == "< 0.1\u00a0%"
    assert words.percent(0, 0) == "undefined"
    assert words.listing([]) == "none"
    assert words.listing("abcde", limit=2) == "a, b and 3 more"
    assert words.listing("abc", limit=2) == "a, b and c"


def test_p_values_and_the_interval_over_classes():
    assert [words.p_value(p) for p in (0.5, 0.0341, 0.00004, None, float("nan"))] == [
        *("0.50", "0.034", "< 0.001", "unknown", "unknown"),
    ]
    macro = {"value": 0.8, "low": 0.7, "high": 0.9, "low_classes": 0.6, "high_classes": 0.95}
    assert words.over_classes(macro) == "classes [0.60, 0.95]"
    assert words.over_classes(macro | {"low_classes": 0.7, "high_classes": 0.9}) == ""  # one class: the same
    assert words.over_classes({"value": 0.8, "low": 0.7, "high": 0.9}) == ""
