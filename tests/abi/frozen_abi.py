"""The C headers of today against each frozen copy of the same major (tests/abi/frozen_*): hosts and extensions that were built
with a copy must find everything where it was. Structs may have grown at the end, enums may have new values; nothing else.
"""
import argparse
import pathlib
import sys

import abi_document as abi

MAY_CHANGE = {"FSDP2_ABI_MINOR", "FSDP2_VERSION_MAJOR", "FSDP2_VERSION_MINOR", "FSDP2_VERSION_PATCH"}


def facts(compiler, include):
    """What a compiler takes from the headers, by name."""
    declarations = abi.Declarations(abi.preprocessed(compiler, include))
    found = {name: value for name, value in abi.constants(compiler, include).items() if name not in MAY_CHANGE}
    found |= dict.fromkeys(declarations.handles, "a handle") | dict(declarations.functions)
    numbers = abi.measured(compiler, include, declarations)
    found |= {name: value for name, value in numbers.items() if name not in declarations.structs}
    for struct, fields in declarations.structs.items():
        found |= {f"type of {struct}.{field.name}": field.type for field in fields}
    sizes = {name: numbers[name] for name in declarations.structs}
    return found, sizes


def broken(compiler, frozen):
    old, old_sizes = facts(compiler, frozen)
    new, new_sizes = facts(compiler, abi.INCLUDE)
    if old["FSDP2_ABI_MAJOR"] != new["FSDP2_ABI_MAJOR"]:
        return []
    lines = [f"{name}: {value}, now {new.get(name, 'gone')}" for name, value in old.items() if new.get(name) != value]
    lines += [f"{name}: {size} bytes, now {new_sizes.get(name, 'gone')}" for name, size in old_sizes.items()
              if new_sizes.get(name, 0) < size]
    # A new field in what was padding would be read from structs that do not have it.
    lines += [f"{name} begins inside {struct} as it was, which had {size} bytes" for struct, size in old_sizes.items()
              for name, offset in new.items() if name.startswith(f"{struct}.") and name not in old and offset < size]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc")
    compiler = parser.parse_args().compiler
    copies = sorted(pathlib.Path(__file__).parent.glob("frozen_*/"))
    if not copies:
        sys.exit("no frozen copy")
    for copy in copies:
        lines = broken(compiler, copy)
        if lines:
            sys.exit("\n".join([f"What was built with {copy.name} would break:", *lines]))


if __name__ == "__main__":
    main()
