"""docs/abi.md: what the C headers (plugin.h and extension.h in plugin/include/fsdp2) are to a compiler, on a 64-bit machine.

    python3 tests/abi/abi_document.py            compares the stored text; ends with the difference where there is one
    python3 tests/abi/abi_document.py --write    makes it anew

Within one ABI version structs grow at their end and enums get new values: --write refuses to change or drop a line of the
stored text, unless FSDP2_ABI_MAJOR or FSDP2_ABI_MINOR has changed with it. (Where no one has used it yet: delete docs/abi.md
first.) Across versions of one major, frozen_abi.py looks.
"""
import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "plugin" / "include"
HEADERS = ("plugin.h", "extension.h")  # the last one includes the others
DOCUMENT = ROOT / "docs" / "abi.md"
COMMAND = "python3 tests/abi/abi_document.py --write"


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def paths(include):
    return [include / "fsdp2" / name for name in HEADERS]


def preprocessed(compiler, include):
    """The lines of the headers themselves, without comments."""
    headers = paths(include)
    lines, inside = [], False
    for line in run(compiler, "-std=c11", "-E", f"-I{include}", str(headers[-1])).splitlines():
        marker = re.match(r'# \d+ "(.*)"', line)
        if marker:
            inside = pathlib.Path(marker[1]) in headers
        elif inside:
            lines.append(line)
    return re.sub(r"\s+", " ", " ".join(lines))


def constants(compiler, include):
    headers = paths(include)
    defined = run(compiler, "-std=c11", "-dM", "-E", f"-I{include}", str(headers[-1]))
    found = dict(re.findall(r"#define (FSDP2_\w+) (.+)", defined))
    order = re.findall(r"#define (FSDP2_\w+) ", "".join(header.read_text() for header in headers))
    return {name: found[name] for name in order if name in found}


class Field:
    def __init__(self, text):
        function = re.fullmatch(r"(.+?)\(\*(\w+)\)\s?(\(.*\))", text)
        plain = re.fullmatch(r"([\w\s*]+?[\s*])(\w+)((?:\[\w+\])*)", text)
        if function:
            self.name, self.type = function[2], f"{function[1].strip()} (*){function[3]}"
        elif plain:
            self.name, self.type = plain[2], plain[1].strip() + plain[3]
        else:
            sys.exit(f"C headers: a field that is not understood: {text}")


class Declarations:
    def __init__(self, text):
        self.structs = {name: [Field(part.strip()) for part in body.split(";") if part.strip()]
                        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text)}
        self.enums = {name: re.findall(r"(\w+) = ", body)
                      for name, body in re.findall(r"typedef int32_t (\w+); enum \{(.*?)\};", text)}
        self.handles = [name for tag, name in re.findall(r"typedef struct (\w+) (\w+);", text) if tag == name]
        self.functions = [(name, result.strip() + " (*)" + arguments)
                          for result, name, arguments in re.findall(r"typedef ([\w\s*]+?)\(\*(\w+)\)(\(.*?\));", text)]
        declared = re.findall(r"(?:typedef|enum)\b", text)
        understood = len(self.structs) + 2 * len(self.enums) + len(self.handles) + len(self.functions)
        if len(declared) != understood:
            sys.exit(f"the C headers have {len(declared)} typedefs and enums, of which {understood} are understood")


def measured(compiler, include, declarations):
    """Sizes, offsets and values by name, from a program that was compiled with the header."""
    wanted = {name: f"sizeof({name})" for name in [*declarations.structs, *declarations.enums]}
    for struct, fields in declarations.structs.items():
        for field in fields:
            wanted[f"{struct}.{field.name}"] = f"offsetof({struct}, {field.name})"
            wanted[f"sizeof {struct}.{field.name}"] = f"sizeof((({struct}*)0)->{field.name})"
    for values in declarations.enums.values():
        wanted |= {value: value for value in values}
    prints = "".join(f'  printf("%lld\\n", (long long)({expression}));\n' for expression in wanted.values())
    source = f"#include <fsdp2/extension.h>\n#include <stdio.h>\nint main(void) {{\n{prints}  return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/measure"
        run(compiler, "-std=c11", "-x", "c", f"-I{include}", "-o", program, "-", text=source)
        return dict(zip(wanted, map(int, run(program).split()), strict=True))


def check_tiling(struct, fields, numbers):
    """A field that was overlooked would leave a hole."""
    end = 0
    for field in fields:
        offset, size = numbers[f"{struct}.{field.name}"], numbers[f"sizeof {struct}.{field.name}"]
        if not end <= offset < end + 8:
            sys.exit(f"C headers: something before {struct}.{field.name} is not understood")
        end = offset + size
    if not end <= numbers[struct] < end + 8:
        sys.exit(f"C headers: something at the end of {struct} is not understood")


def table(head, rows):
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def document(compiler):
    declarations = Declarations(preprocessed(compiler, INCLUDE))
    numbers = measured(compiler, INCLUDE, declarations)
    values = constants(compiler, INCLUDE)
    code = "`{}`".format
    lines = [f"# ABI {values['FSDP2_ABI_MAJOR']}.{values['FSDP2_ABI_MINOR']}", "",
             "What plugin.h and extension.h in plugin/include/fsdp2 are to a compiler on a 64-bit machine; what things mean is",
             f"said there. Made by `{COMMAND}`.", "", "## Exports", ""]
    symbol = lambda name: code(values[name].strip('"'))
    lines += table(("of", "symbol", "type"),
                   [("the plugin", symbol("FSDP2_MANIFEST_SYMBOL"), code("const fsdp2_manifest")),
                    ("the plugin", symbol("FSDP2_GET_API_SYMBOL"), code("fsdp2_get_api_function")),
                    ("a library in `plugins`", symbol("FSDP2_EXTENSION_GET_SYMBOL"), code("fsdp2_extension_get_function"))])
    lines += ["## Constants", "", *table(("name", "value"), [(code(k), code(v)) for k, v in values.items()])]
    lines += ["## Handles", "", ", ".join(map(code, declarations.handles)), ""]
    lines += ["## Functions", "", *table(("type", "is"), [(code(n), code(t)) for n, t in declarations.functions])]
    lines += ["## Enums", ""]
    for name, members in declarations.enums.items():
        lines += [f"### {name}, {numbers[name]} bytes", "",
                  *table(("value", "name"), [(str(numbers[member]), code(member)) for member in members])]
    lines += ["## Structs", ""]
    for name, fields in declarations.structs.items():
        check_tiling(name, fields, numbers)
        lines += [f"### {name}, {numbers[name]} bytes", "",
                  *table(("offset", "field", "type"),
                         [(str(numbers[f"{name}.{field.name}"]), code(field.name), code(field.type)) for field in fields])]
    return "\n".join(lines)


def broken_lines(stored, new):
    """Lines of the stored text's enums and structs that the new one has not, where both are of one ABI version."""
    def rows(text):
        found, heading = [], ""
        for line in text[text.index("## Enums"):].splitlines():
            if line.startswith("### "):
                heading = line[4:].split(",")[0]
            elif line.startswith("|") and "---" not in line:
                found.append(f"{heading}: {line}")
        return found

    if stored.splitlines()[0] != new.splitlines()[0]:
        return []
    kept = set(rows(new))
    return [row for row in rows(stored) if row not in kept]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compiler", default="cc")
    args = parser.parse_args()
    stored = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    new = document(args.compiler)
    if not args.write:
        difference = list(difflib.unified_diff(stored.splitlines(), new.splitlines(), "docs/abi.md", "the C headers",
                                               lineterm=""))
        if difference:
            sys.exit("\n".join([*difference, f"docs/abi.md is not what the C headers are. Make it anew: {COMMAND}"]))
        return
    broken = broken_lines(stored, new) if stored else []
    if broken:
        sys.exit("\n".join(["Hosts built before would read wrong fields; raise FSDP2_ABI_MINOR, or keep:", *broken]))
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(new)
    print(f"{DOCUMENT.relative_to(ROOT)} is what the C headers are")


if __name__ == "__main__":
    main()
