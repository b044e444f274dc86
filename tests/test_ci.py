"""The check reads what ran from pytest's report: a run that misses something must not pass."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).resolve().parents[1] / ".ci" / "run").read_text("utf-8")
(PROGRAM,) = re.findall(r"<<'PYTHON'\n(.*?)\nPYTHON\n", SCRIPT, re.DOTALL)


@pytest.fixture
def judged(tmp_path):
    """Return a function that has the check judge a report with one test a file, and gives its verdict."""

    def judge(files, names, inside="", most_skipped="inf"):
        cases = "".join(f'<testcase classname="{file}" name="test">{inside}</testcase>' for file in files)
        path = tmp_path / "tests.xml"
        path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        command = [sys.executable, "-c", PROGRAM, str(path), most_skipped, *names]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode != 0) == bool(done.stderr)
        return done.stderr.strip()

    return judge


RAN = ["tests.test_loss_explorer", "tests.test_loss.TestRows", "notebooks.06_training_loss.ipynb"]


def test_files_of_which_a_test_ran_are_taken_as_they_are_called_in_a_report(judged):
    assert judged(RAN, ["test_loss", "test_loss_explorer", "06_training_loss"]) == ""


@pytest.mark.parametrize(
    ("ran", "missing"),
    [
        ("tests.test_loss_explorer", "test_loss"),
        ("tests.test_pretest_loss", "test_loss"),
        ("notebooks.06_training_loss_again.ipynb", "06_training_loss"),
        ("tests.test_06_training_loss", "06_training_loss"),
    ],
)
def test_a_file_of_which_nothing_ran_is_missed_also_where_its_name_is_part_of_another(judged, ran, missing):
    assert judged([ran, "tests.test_softmax"], ["test_softmax", missing]) == f"no test of: ['{missing}']"


@pytest.mark.parametrize("inside", ["<failure/>", "<error/>"])
def test_a_test_that_failed_is_seen_whatever_pytest_returned(judged, inside):
    assert judged(RAN, [], inside) == "failed, skipped, or nothing ran"


def test_an_empty_report_and_one_of_too_many_skipped_tests_are_no_pass(judged):
    assert judged([], []) != ""
    assert judged(RAN, [], "<skipped/>", most_skipped="2") != ""
    assert judged(RAN, [], "<skipped/>", most_skipped="3") == ""
