"""What fuzzers start from: seeds.py FOLDER writes seeds (FOLDER/seeds) and a dictionary (FOLDER/words.dict).

Seeds are the texts in the unit tests and the case files; the fuzzer keeps those that its target gains from. Words are the
names in the adapters and in the table of keys.
"""

import hashlib
import pathlib
import re
import shutil
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
CHOICE = b"0"  # the first byte of an input: no version asked for, nothing in the environment
TOKEN = re.compile(
    rb"""(?P<blank>\s+|//[^\n]*) | '(?:\\.|[^'\\])' | (?P<raw>R"(?P<mark>\w*)\((?P<raw_text>.*?)\)(?P=mark)")
       | (?P<text>"(?:\\.|[^"\\\n])*") | .""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]+|[0-7]{1,3}|.)", re.DOTALL)
NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}
MARKS = [
    "&a ", "*a", "<<: *a", "!!binary ", "!!str ", "? ", "- ", "|\\x0a ", "[[", "]]", "{}", "'''", '\\"\\"\\"', "//", "/*", "*/",
    "#", "--", "--no-", "\\x1e", "\\x1f", "\\xef\\xbb\\xbf", "\\xc3\\xa4", "\\\\u0000", "\\\\uD800", "true", "null", "None", "nan",
    "inf", "1e400", "1e-400", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "0x7f", "0b1", "1_0",
]


def unescape(text):
    def value(match):
        code = match[1]
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16) & 0xFF])
        if code[:1].isdigit():
            return bytes([int(code, 8) & 0xFF])
        return NAMED.get(code, code)

    return ESCAPE.sub(value, text)


def literals(path):
    """The string literals of a C++ file; those that stand in one pair of braces also as the lines of one text."""
    texts, listed, now = [], [], None
    for token in TOKEN.finditer(path.read_bytes() + b";"):
        if token["raw"] is not None:
            now = (now or b"") + token["raw_text"]
        elif token["text"] is not None:
            now = (now or b"") + unescape(token["text"][1:-1])
        elif token["blank"] is None:
            if now is not None:
                texts.append(now)
                listed.append(now)
                now = None
            if token[0] in (b"{", b"}", b";"):
                if len(listed) > 1:
                    texts.append(b"\n".join(listed))
                listed = []
    return texts


def write_seeds(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = set()
    for path in sorted((TOP / "tests/unit").glob("test_*.cpp")):
        texts.update(literals(path))
    for path in [*(TOP / "tests/cases/dialects").glob("*/*.*"), *(TOP / "samples").glob("*/*.toml")]:
        texts.add(path.read_bytes())
    for text in texts:
        if re.search(rb"[:={\[]", text) and len(text) < 1 << 15:
            (folder / hashlib.sha1(text).hexdigest()[:16]).write_bytes(CHOICE + text)


def write_words(file):
    words = set()
    for path in [*(TOP / "adapters").glob("*.?pp"), *(TOP / "registry").glob("*.cpp")]:
        words.update(text.decode() for text in literals(path) if re.fullmatch(rb"[A-Za-z0-9_.-]{2,48}", text))
    file.write_text("".join(f'"{word}"\n' for word in [*sorted(words), *MARKS]))


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    write_seeds(out / "seeds")
    write_words(out / "words.dict")
