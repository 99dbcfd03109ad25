"""Runs the program `fsdp2`; what its tests share."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

FSDP2 = os.environ["FSDP2"]
BUILD = pathlib.Path(os.environ["FSDP2_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_fsdp2(*arguments, folder=None, environment=None):
    """The finished process. Variables that configurations are read from are only those that are given."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FSDP", "ACCELERATE"))}
    return subprocess.run(
        [FSDP2, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env=clean | (environment or {}),
        check=False,
    )


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_fsdp2(self, *arguments, status=0, environment=None):
        """The finished process; fails unless it ends with that status."""
        done = run_fsdp2(*arguments, folder=self.folder, environment=environment)
        self.assertEqual(done.returncode, status, f"fsdp2 {arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def json_of(self, *arguments, status=0, environment=None):
        return json.loads(self.run_fsdp2(*arguments, "--json", status=status, environment=environment).stdout)
