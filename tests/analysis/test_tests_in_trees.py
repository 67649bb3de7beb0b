"""Tests, CI and coverage by the conventions of many languages."""

from __future__ import annotations

import pytest

from holdfast.analysis.tests_in_trees import is_ci, pattern_of_tests, stated_coverage


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("tests/test_a.py", "def test_a():\n    def test_inner(): ...\nasync def test_b(): ...\n", 3),
        ("src/a.py", "def test_a(): ...\n", None),
        ("test_a.py", "x = 'def test_a'\n", 0),
        ("src/a.test.ts", "it('a', () => {})\n  test.each([1])('b')\n// it('c')\n", 2),
        ("src/__tests__/a.js", "test('a')\n", 1),
        ("a_test.go", "func TestA(t *testing.T) {\nfunc helper() {\nfunc FuzzB(f) {\n", 2),
        ("a.go", "func TestA() {\n", None),
        ("src/lib.rs", "#[test]\nfn a() {}\n#[tokio::test]\nfn b() {}\n", 2),
        ("src/test/java/ATest.java", "@Test\npublic void a() {}\n@ParameterizedTest\n", 2),
        ("spec/a_spec.rb", "  it 'works' do\n", 1),
        ("tests/ATest.php", "public function testA()\n", 1),
        ("README.md", "it('a')", None),
    ],
)
def test_tests_are_found_where_each_language_keeps_them(
    path: str, content: str, expected: int | None
) -> None:
    pattern = pattern_of_tests(path.encode())

    assert (None if pattern is None else len(pattern.findall(content.encode()))) == expected


def test_ci_is_known_by_its_files() -> None:
    paths = [b".github/workflows/ci.yml", b".gitlab-ci.yml", b"sub/.gitlab-ci.yml", b".github/FUNDING.yml"]

    assert [path for path in paths if is_ci(path)] == paths[:2]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (b"coverage.xml", b'<?xml version="1.0"?><coverage version="7" line-rate="0.5">', 50.0),
        (b"coverage.xml", b'<coverage line-rate="7">', None),
        (b"coverage.xml", b'<coverage line-rate="nan">', None),
        (b"coverage.xml", b"<coverage" * 20_000, None),
        (b"coverage.json", b'{"totals": {"percent_covered": 78.54}}', 78.5),
        (b"coverage.json", b'{"totals": {"percent_covered": "1e999"}}', None),
        (b"coverage.json", b"[]", None),
        (b"coverage.json", b"\xff", None),
    ],
    ids=str,
)
def test_coverage_is_what_a_report_states(name: bytes, content: bytes, expected: float | None) -> None:
    assert stated_coverage(name, content) == expected
