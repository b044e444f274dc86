"""What every exercise does, whatever it asks."""

from lmhead_course.checks import Exercise
from lmhead_course.checks.exercise import call


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
