"""The conformance engine itself: it has to judge a .phpt as run-tests.php does, or its figures are worth nothing."""

from __future__ import annotations

import gzip
import pathlib
import re

import pytest

from conformance.backends import PhpCgi, Setting
from conformance.page import BEGIN, END, insert, page
from conformance.phpt import BrokenTest, Phpt, Response, expectf_pattern
from conformance.report import Report, read_accepted
from conformance.suite import INI, Outcome, Run, _comparable


def write(root: pathlib.Path, text: str, name: str = "a.phpt") -> Phpt:
    """A test with this text below `root`."""
    (root / name).write_text(text)
    return Phpt(root, name)


def minimal(**sections: str) -> str:
    """A .phpt with the given sections besides those every test has."""
    given = {"TEST": "t", "FILE": "<?php echo 1;", "EXPECT": "1", **sections}
    return "".join(f"--{name}--\n{text}\n" for name, text in given.items() if text is not None)


@pytest.mark.parametrize(
    ("expected", "output", "matches"),
    [
        (b"a%db", b"a12b", True),
        (b"a%db", b"ab", False),
        (b"%i|%f|%x", b"-3|-.5e3|fF0", True),
        (b"%s end", b"one\nend", False),
        (b"%a end", b"one\n end", True),
        (b"[%S]", b"[]", True),
        (b"%w1", b" \n 1", True),
        (b"%c%0", b"x\x00", True),
        (b"(1+1)?", b"(1+1)?", True),
        (b"(1+1)?", b"1", False),
        (b"x %r(a|b)+%r.", b"x abab.", True),
        (b"x %r(a|b)+%r.", b"x abab!", False),
        (b"100%r", b"100%r", True),
        (b"100%", b"100%", True),
    ],
)
def test_expectf(expected: bytes, output: bytes, matches: bool) -> None:
    found = re.match(b"^" + expectf_pattern(expected) + b"$", output, re.DOTALL)
    assert (found is not None) == matches


def test_a_code_inside_a_pattern_counts_too(tmp_path: pathlib.Path) -> None:
    test = write(tmp_path, minimal(EXPECT=None, EXPECTF="%r(%d|none)%r"))
    assert test.complaint(Response(200, "OK", body=b"none\n")) == ""
    assert test.complaint(Response(200, "OK", body=b"some\n")) == "output differs"


def test_white_space_around_the_output_does_not_count_and_line_ends_are_one(tmp_path: pathlib.Path) -> None:
    test = write(tmp_path, minimal(EXPECT="a\nb"))
    assert test.complaint(Response(200, "OK", body=b"\n a\r\nb \0")) == ""
    assert test.complaint(Response(200, "OK", body=b"a \nb")) == "output differs"


def test_a_whole_output_cannot_save_a_broken_answer(tmp_path: pathlib.Path) -> None:
    test = write(tmp_path, minimal())
    assert test.complaint(Response(200, "OK", body=b"1", broken="ended by signal 11")) == "ended by signal 11"


def test_expected_headers_and_status(tmp_path: pathlib.Path) -> None:
    test = write(tmp_path, minimal(EXPECTHEADERS="Status: 404 Not Found\nX-A: 1"))
    assert test.complaint(Response(404, "Not Found", [("x-a", "1")], b"1")) == ""
    assert "X-A" in test.complaint(Response(404, "Not Found", [("x-a", "2")], b"1"))
    assert "Status" in test.complaint(Response(200, "OK", [("x-a", "1")], b"1"))


def test_the_request_of_a_form(tmp_path: pathlib.Path) -> None:
    text = minimal(GET="a=1&b=x y", POST="c=2", COOKIE="k=v;\nl=w", ENV="HTTP_USER_AGENT=me")
    request = write(tmp_path, text).request()
    assert (request.method, request.query, request.body) == ("POST", "a=1&b=x%20y", b"c=2")
    assert request.headers == (
        ("User-Agent", "me"),
        ("Cookie", "k=v; l=w"),
        ("Content-Length", "3"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    )


def test_the_request_of_raw_and_compressed_bodies(tmp_path: pathlib.Path) -> None:
    raw = write(tmp_path, minimal(POST_RAW="Content-Type: text/x\none\ntwo")).request()
    assert ("Content-Type", "text/x") in raw.headers
    assert raw.body == b"one\ntwo"
    packed = write(tmp_path, minimal(GZIP_POST="a=1")).request()
    assert ("Content-Encoding", "gzip") in packed.headers
    assert gzip.decompress(packed.body) == b"a=1"


def test_sections(tmp_path: pathlib.Path) -> None:
    test = write(tmp_path, minimal(FILE="<?php\n===DONE===\nnot part of it", INI="a = 1\nb={PWD}/x", EXPECT="1"))
    assert test.sections["FILE"] == b"<?php\n===DONE===\n"
    assert test.ini() == {"a": "1", "b": "{TREE}/./x"}
    assert write(tmp_path, minimal(STDIN="x")).unsupported() == "needs --STDIN--"
    end = write(tmp_path, minimal(FILE=None, FILEEOF="<?php echo 1;"))
    assert end.sections["FILE"] == b"<?php echo 1;"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no test",
        minimal(FILE=None),
        minimal(EXPECT=None),
        minimal(EXPECTF="1"),
        minimal(ODD="1"),
        minimal() + "--FILE--\n",
    ],
)
def test_a_file_that_is_no_test(tmp_path: pathlib.Path, text: str) -> None:
    with pytest.raises(BrokenTest):
        write(tmp_path, text)


def test_php_cgi_runs_a_test(tmp_path: pathlib.Path) -> None:
    code = """<?php
    header('X-A: ' . ini_get('precision'));
    http_response_code(404);
    echo $_GET['a'], $_POST['b'], getenv('E');"""
    test = write(tmp_path, minimal(FILE=code, GET="a=1", POST="b=2", ENV="E=3", INI="precision=5", EXPECT="123"))
    (tmp_path / "a.php").write_bytes(test.sections["FILE"])
    response = PhpCgi(tmp_path).run("a.php", Setting({**INI, **test.ini()}, test.env()), test.request())
    assert test.complaint(response) == ""
    assert (response.status, response.header("x-a")) == (404, "5")


def test_the_report_names_what_fails_here_alone(tmp_path: pathlib.Path) -> None:
    def run(**outcomes: str) -> Run:
        return Run({name: Outcome(status) for name, status in outcomes.items()}, [], 1.0)

    report = Report(
        "1",
        "8.2",
        {
            "php-cgi": run(a="pass", b="pass", c="pass", d="fail", e="pass"),
            "php-fpm": run(a="pass", b="fail", c="pass", d="pass", e="pass"),
            "hayate classic": run(a="pass", b="fail", c="fail", d="fail", e="xfail"),
        },
        {"b": "why not"},
    )
    assert report.regressions("hayate classic") == ["b", "c", "e"]
    assert report.only_here("hayate classic") == ["c", "e"]
    assert report.unexplained("hayate classic") == ["c", "e"]
    assert "! c:" in report.as_text()
    assert "= b:" in report.as_text()


def test_an_accepted_difference_needs_a_reason(tmp_path: pathlib.Path) -> None:
    (tmp_path / "accepted.txt").write_text("# heading\n\na/b.phpt: for a reason\n")
    assert read_accepted(tmp_path / "accepted.txt") == {"a/b.phpt": "for a reason"}
    (tmp_path / "accepted.txt").write_text("a/b.phpt:\n")
    with pytest.raises(SystemExit, match="accepted.txt:1"):
        read_accepted(tmp_path / "accepted.txt")


def test_the_page_holds_each_difference_with_its_reason(tmp_path: pathlib.Path) -> None:
    def run(times: int = 1, **outcomes: Outcome | str) -> Run:
        given = {name: Outcome(outcome) if isinstance(outcome, str) else outcome for name, outcome in outcomes.items()}
        return Run(given, [], 1.0, times)

    runs = {
        "php-cgi": run(a="pass", b="pass", c="pass", d="pass"),
        "hayate worker": run(2, a=Outcome("pass", later="Cannot redeclare f()"), b="pass", c="pass", d="pass"),
        "hayate rewind": run(3, a="pass", b="fail", c=Outcome("fail", in_function=True), d=Outcome("pass", later="x")),
    }
    report = Report("1", "8.2", runs, {"c": "never"}, {"b": "why b fails"})
    assert report.failures("hayate rewind") == ["b"]
    assert report.unexplained("hayate worker") == []
    assert report.unexplained("hayate rewind") == ["d"]
    assert report.outdated() == ["c"]
    figures = page(report)
    assert "| why b fails | `b` | rewind |" in figures
    assert "| not explained yet | `d` |" in figures

    file = tmp_path / "page.md"
    file.write_text(f"# Head\n{BEGIN}\nold\n{END}\nTail\n")
    insert(file, figures)
    insert(file, figures)
    assert file.read_text() == f"# Head\n{BEGIN}\n\n{figures}\n{END}\nTail\n"
    file.write_text("no marks\n")
    with pytest.raises(SystemExit, match="page.md"):
        insert(file, figures)


def test_php_cgi_runs_a_test_in_a_function_as_a_worker_script_does(tmp_path: pathlib.Path) -> None:
    code = """<?php
    $x = 1;
    function f() { global $x; return $x; }
    var_dump(f());
    throw new Exception('x');"""
    (tmp_path / "a.php").write_text(code)
    test = write(tmp_path, minimal(FILE=code))
    setting = Setting(INI, {})
    whole = PhpCgi(tmp_path).run("a.php", setting, test.request()).body.decode()
    assert "int(1)" in whole
    assert "conformance" not in whole
    within = PhpCgi(tmp_path, in_function=True).run("a.php", setting, test.request()).body.decode()
    assert within.count("NULL") == 1
    assert "#1 [internal function]: conformance_request()" in within


def test_outputs_that_differ_by_chance_are_comparable() -> None:
    def same(a: str, b: str) -> bool:
        return _comparable(a) == _comparable(b)

    assert same("#1 w.php(3): call_user_func('x')", "#1 w.php(3): hayate_handle_request('x')")
    assert same('string(14) "call_user_func"', 'string(21) "hayate_handle_request"')
    assert same("resource(3) of type", "resource(4) of type")
    assert same("feof(Resource id #4)", "feof(Resource id #5)")
    assert same("write('c709e632f0fad1b...', '')", "write('e37aa1f44c7fb4d...', '')")
    assert not same("int(3)", "int(4)")
    assert not same("object(A)#3", "object(A)#4")
