"""The page in a real browser: its script runs, sorts, filters and complains about nothing."""

import os
import re
import shutil
import subprocess

import pytest

from airrformer.report import write_report

from .conftest import BASELINES

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser found: none of {', '.join(BROWSERS)} is on PATH")

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=4000"),
]


@pytest.fixture(scope="module")
def url(_built, tmp_path_factory):
    return write_report(*_built, tmp_path_factory.mktemp("page") / "report.html").as_uri()


@pytest.fixture
def opened(url, tmp_path):
    def open_page(hash: str = "") -> tuple[list[dict], str]:
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", url + hash]
        environment = os.environ | {"HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert "</html>" in done.stdout, done.stderr
        assert ":CONSOLE" not in done.stderr, done.stderr
        return done.stdout

    return open_page


def rows(dom: str) -> list[dict]:
    """The leaderboard's visible rows as the browser has them after the script ran."""
    table = re.search(r'<table id="leaderboard-table".*?</table>', dom, flags=re.S)[0]
    keys = re.findall(r'data-key="(\w+)"', table)
    found = []
    for attributes, row in re.findall(r"<tr data-dataset([^>]*)>(.*?)</tr>", table, flags=re.S):
        cells = re.findall(r"<t[dh]([^>]*)>(.*?)</t[dh]>", row, flags=re.S)
        values = []
        for opening, content in cells:
            value = re.search(r'data-v="([^"]*)"', opening)
            values.append(value[1] if value else re.sub(r"<[^>]+>", "", content).strip())
        if not re.search(r'\bhidden=""', attributes):
            found.append(dict(zip(keys, values)))
    return found


def test_the_script_runs_and_all_rows_show(opened, config):
    dom = opened()
    expected = (len(config.expand_targets()) + 2 * len(BASELINES)) * 3
    assert len(rows(dom)) == expected
    assert f"{expected} of {expected} rows" in dom
    assert '<form id="filters">' in dom  # hidden without the script


@pytest.mark.parametrize(("direction", "reverse"), [("asc", False), ("desc", True)])
def test_sorting(opened, direction, reverse):
    dom = opened(f"#sort=auroc&dir={direction}")
    values = [row["auroc"] for row in rows(dom)]
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(numbers, reverse=reverse) and len(numbers) > 50
    assert values[len(numbers) :] == [""] * (len(values) - len(numbers))  # what was skipped stays last
    said = "descending" if reverse else "ascending"
    assert len(re.findall(f'<th[^>]*aria-sort="{said}"', dom)) == 1


def test_filters(opened):
    found = rows(opened("#dataset=bnab&split=group&q=cdr3+logistic"))
    assert {(row["dataset"], row["split"], row["pooling"], row["classifier"]) for row in found} == {
        ("bnab", "group", "cdr3", "logistic")
    }
    assert len(found) == 4
