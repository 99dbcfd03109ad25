"""`fsdp2 strategies`, `fsdp2 dialects`, and what the command line says of mistakes."""

import unittest

from cli import CliTest


class CommandLine(CliTest):
    def test_a_wrong_command_names_the_nearest_one(self):
        done = self.run_fsdp2("dialetcs", status=2)
        self.assertIn("Did you mean dialects?", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_wrong_option_names_the_nearest_one(self):
        self.assertIn("Did you mean --json?", self.run_fsdp2("strategies", "--jsno", status=2).stderr)

    def test_help_shows_examples(self):
        for command in ("strategies", "dialects"):
            self.assertIn(f"Examples:\n  fsdp2 {command}", self.run_fsdp2(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main()
