"""README.md against what it speaks of: the host's code is the one that is compiled and run, and no key is missing."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


class Readme(unittest.TestCase):
    def test_host_code_is_the_sample(self):
        block = re.search(r"<!-- minimal_host begin -->\n```cpp\n(.*?)```\n<!-- minimal_host end -->", README, re.S)
        self.assertEqual(block.group(1), (ROOT / "samples/minimal_host/main.cpp").read_text())

    def test_load_to_training_takes_under_25_lines(self):
        code = (ROOT / "samples/minimal_host/main.cpp").read_text()
        part = code[code.index("Plugin::load"):code.index("optimizer.step();")]
        self.assertLess(len([line for line in part.splitlines() if line.strip()]), 25)

    def test_every_key_is_in_the_table(self):
        keys = re.findall(r'KeySpec\{"([a-z_.]+)"', (ROOT / "registry/keys.cpp").read_text())
        self.assertGreater(len(keys), 20)
        table = README[README.index("## Every key of `[fsdp]`"):README.index("## Coming from another host")]
        for key in keys:
            table_key, _, last = key.rpartition(".")
            named = f"`{key}`" in table or f"`.{last}`" in table or f"`{table_key}`" in table
            self.assertTrue(named, f"`{key}` is not in README.md's table")

    def test_first_screen_names_the_two_commands(self):
        first = "\n".join(README.splitlines()[:20])
        self.assertIn("bash samples/quickstart.sh", first)
        self.assertIn("bash tests/run.sh", first)

    def test_files_that_it_names_are_there(self):
        for path in re.findall(r"\b(?:samples|tests|plugin)/[\w/.-]+\.(?:py|sh|cpp|hpp|h|toml)\b", README):
            self.assertTrue((ROOT / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
