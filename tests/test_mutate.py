import ast

import pytest

from tools import mutate
from tools.mutate import TESTS, explained, mutants


@pytest.mark.parametrize("module", TESTS)
def test_every_mutant_is_another_program_that_parses(module):
    original = ast.dump(ast.parse((mutate.ROOT / "lmhead_course" / f"{module}.py").read_bytes()))
    found = mutants(module)
    assert len(found) >= 40
    assert all(ast.dump(ast.parse(mutant.source)) != original for mutant in found[::7])  # parsing takes time


def test_every_explanation_is_of_a_mutant_that_there_still_is():
    there = {(m.module, m.before, m.after) for module in TESTS for m in mutants(module)}
    assert explained().keys() - there == set()


def test_the_changes_are_those_that_a_hand_slips_into(tmp_path, monkeypatch):
    package = tmp_path / "lmhead_course"
    package.mkdir()
    (package / "small.py").write_text(
        'def f(x: int = 3) -> int:\n    """Say 1 + 1."""\n    if x < 2:\n        raise ValueError(x + 1)\n'
        "    return g(x.clone(), dim=-1)  # −1\n"
    )
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    assert [(m.line, m.after) for m in mutants("small")] == [
        (3, "if (not (x < 2)):"),
        (3, "if x <= 2:"),
        (3, "if x < (2 + 1):"),
        (5, "return g(x.clone(), )"),
        (5, "return g(x, dim=-1)"),
    ]


def test_a_part_of_the_report_without_marks_is_refused():
    report = "a\n<!-- part -->\nold\n<!-- end of part -->\nb"
    assert mutate.written(report, "part", "new\n") == "a\n<!-- part -->\nnew\n<!-- end of part -->\nb"
    with pytest.raises(ValueError, match="no marks for another"):
        mutate.written(report, "another", "new\n")


@pytest.mark.parametrize(
    "arguments", [["sofmax"], ["softmax", "sofmax"], ["conformance"], ["--report", "tests"]]
)
def test_a_part_that_is_not_known_is_refused_where_a_slip_would_pass_without_any_mutant(
    arguments, monkeypatch, capsys
):
    monkeypatch.setattr(mutate, "run", lambda chosen: pytest.fail("nothing may run"))
    monkeypatch.setattr(mutate, "report_conformance", lambda: pytest.fail("nothing may run"))
    monkeypatch.setattr(mutate.sys, "argv", ["mutate.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        mutate.main()
    assert ended.value.code == 2
    assert f"unknown parts ['{arguments[-1]}']: choose from softmax, " in capsys.readouterr().err


def test_known_parts_are_taken(monkeypatch, capsys):
    monkeypatch.setattr(mutate.sys, "argv", ["mutate.py", "--list", "--report", "loss", "conformance"])
    mutate.main()
    assert {line.split(":")[0] for line in capsys.readouterr().out.splitlines()} == {"loss.py"}
