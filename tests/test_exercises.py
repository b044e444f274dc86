"""What every exercise does, whatever it asks."""

import pytest

from lmhead_course.checks import Exercise
from lmhead_course.checks.exercise import call
from tests import solving


def is_seven(answer):
    return None if answer == 7 else f"{answer} is not seven."


def gives_seven(function):
    return is_seven(call(function))


def exercise(diagnose=is_seven):
    return Exercise(diagnose, praise="Seven.", hint="  After six.", solution="answer = 7 < 8")


def test_a_right_answer_is_told_why_it_is_right():
    verdict = exercise().check(7)
    assert verdict.passed is True
    assert "Seven." in repr(verdict)


def test_a_wrong_answer_is_told_in_words_what_is_wrong():
    verdict = exercise().check(6)
    assert verdict.passed is False
    assert "6 is not seven" in repr(verdict)


def test_a_stub_counts_as_not_attempted():
    assert exercise().check(...).passed is None


def test_a_function_that_still_returns_nothing_counts_as_not_attempted():
    def stub(): ...

    assert exercise(gives_seven).check(stub).passed is None


def test_a_function_that_answers_only_sometimes_is_wrong_and_not_unattempted():
    def diagnose(function):
        return is_seven(call(function, 1)) or is_seven(call(function, 2))

    verdict = exercise(diagnose).check(lambda x: 7 if x == 1 else None)
    assert verdict.passed is False
    assert "no return" in repr(verdict)


def test_an_exception_in_the_answer_is_reported_and_not_raised():
    verdict = exercise(gives_seven).check(lambda: 1 / 0)
    assert verdict.passed is False
    assert "ZeroDivisionError" in repr(verdict)


def test_an_exception_names_the_line_of_the_learners_cell():
    source = "def broken():\n    return undefined_name\n"
    namespace = {}
    import linecache

    name = "/somewhere/ipykernel_1/cell.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)
    message = repr(exercise(gives_seven).check(namespace["broken"]))
    assert "line 2 of broken (return undefined_name)" in message


def test_hint_and_solution_stand_folded_below_the_verdict_as_text_not_markup():
    page = exercise().check(6)._repr_html_()
    assert "<summary>Hint</summary><pre>After six.</pre>" in page
    assert "answer = 7 &lt; 8" in page


def test_a_learners_text_is_never_markup():
    assert "<script>" not in exercise().check("<script>alert(1)</script>")._repr_html_()


# ---- and every exercise that there is ------------------------------------------------------------------------

ALL = [(module, name) for module in solving.modules() for name in solving.exercises_of(module)]
every_exercise = pytest.mark.parametrize(
    ("module", "name"), ALL, ids=[f"{module.__name__.rpartition('.')[2]}.{name}" for module, name in ALL]
)


def answer_of(module, name):
    return solving.solved(getattr(module, name), ex=module)


@pytest.mark.parametrize("module", solving.modules(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_notebook_has_at_least_four_exercises(module):
    assert len(solving.exercises_of(module)) >= 4


@every_exercise
def test_the_solution_shown_to_learners_is_right(module, name):
    verdict = getattr(module, name).check(answer_of(module, name))
    assert verdict.passed is True, verdict


@every_exercise
def test_an_unattempted_stub_says_so_and_does_not_raise(module, name):
    exercise = getattr(module, name)
    stub = (lambda *args, **kwargs: ...) if callable(answer_of(module, name)) else ...
    assert exercise.check(stub).passed is None
    assert exercise.check(...).passed is None


@every_exercise
def test_the_hint_is_not_the_solution(module, name):
    exercise = getattr(module, name)
    assert exercise.hint().text
    assert exercise.hint().text != exercise.solution().text
