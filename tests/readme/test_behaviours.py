"""docs/behaviours.md against the tests: each that it names is there, and each row that a test is named after is in it."""
import functools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs/behaviours.md").read_text()
SOURCES = [path.read_text() for path in sorted((ROOT / "tests").rglob("*.cpp"))]
MACRO = re.compile(r"^(?:TEST|TEST_F|TEST_P|RANK_CASE|RANK_CASE_ON)\((\w+), (\w+)[,)]", re.M)


@functools.cache
def tests():
    return {f"{suite}.{name}" for source in SOURCES for suite, name in MACRO.findall(source)}


def is_registered(test):
    """By add_case(), with suite and name as two strings of a file."""
    suite, name = test.split(".")
    return any(f'"{suite}"' in source and f'"{name}"' in source for source in SOURCES)


def rows():
    """Of the tables with tests: id and the names in the last column."""
    for line in DOCUMENT[:DOCUMENT.index("## Out, and why")].splitlines():
        row = re.match(r"\| ([A-Z]\d+) \| .+ \| (.+) \|$", line)
        if row:
            yield row.group(1), re.findall(r"`(\w+\.\w+)`", row.group(2))


class Behaviours(unittest.TestCase):
    def test_every_row_names_tests_that_are_there(self):
        self.assertGreater(len(list(rows())), 100)
        for row, names in rows():
            self.assertTrue(names, f"{row} names no test")
            for name in names:
                self.assertTrue(name in tests() or is_registered(name), f"{row}: there is no {name}")

    def test_no_row_comes_twice(self):
        ids = [row for row, _ in rows()]
        self.assertEqual(sorted(ids), sorted(set(ids)))

    def test_every_row_that_a_test_is_named_after_is_there(self):
        ids = {row for row, _ in rows()}
        for source in SOURCES:
            for row in re.findall(r"Behaviour_([A-Z]\d+)", source):
                self.assertIn(row, ids)


if __name__ == "__main__":
    unittest.main()
