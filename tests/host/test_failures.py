"""A rank that dies takes the others with it, soon, and it is said which one was first."""
import os
import pathlib
import signal
import subprocess
import time
import unittest

import torch
from host import ROWS, VOCAB, HostTest

SECONDS = 10


def children_of(pid):
    """By rank: they were started in that order."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rsplit(")", 1)[1].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Failures(HostTest):
    def start(self, ranks):
        """A long run, once it is in the middle of its steps."""
        metrics = self.folder / "long.jsonl"
        metrics.unlink(missing_ok=True)
        run = subprocess.Popen(self.command("--nproc", str(ranks), "--metrics", metrics.name, sets=["train.steps=1000000"]),
                               cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        deadline = time.monotonic() + 120
        while not metrics.exists() or metrics.read_text().count("\n") < 5:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(run.poll())
            time.sleep(0.1)
        children = children_of(run.pid)
        self.assertEqual(len(children), ranks)
        return run, children

    def assert_gone(self, children, begin):
        while any(is_running(child) for child in children):
            self.assertLess(time.monotonic(), begin + SECONDS, "a rank is left")
            time.sleep(0.1)

    def end(self, run, children, begin):
        error = run.communicate(timeout=SECONDS + 5)[1]
        self.assertLess(time.monotonic() - begin, SECONDS, error)
        self.assert_gone(children, begin)
        return error

    def test_killed_rank(self):
        for ranks, victim, number in ((2, 1, signal.SIGKILL), (3, 0, signal.SIGSEGV)):
            with self.subTest(victim=victim, signal=number):
                run, children = self.start(ranks)
                begin = time.monotonic()
                os.kill(children[victim], number)
                error = self.end(run, children, begin)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(f"rank {victim} died first: killed by signal {int(number)} ({number.name}", error)
                for rank in range(ranks):
                    if rank != victim:
                        # With what it did, a unit's collective or this host's own, and its number.
                        self.assertRegex(error, rf"then rank {rank}: (.|\n)*(unit.*: rank {rank}: \w+|all-reduce of .* on rank {rank})")

    def test_stopped_rank(self):
        """A rank that hangs is not waited for once another has failed."""
        run, children = self.start(3)
        begin = time.monotonic()
        os.kill(children[2], signal.SIGSTOP)
        os.kill(children[1], signal.SIGKILL)
        error = self.end(run, children, begin)
        self.assertIn("rank 1 died first", error)
        self.assertIn("rank 2 did not end by itself and was killed", error)

    def test_killed_launcher(self):
        run, children = self.start(2)
        begin = time.monotonic()
        run.kill()
        run.communicate()
        self.assert_gone(children, begin)

    def test_interrupted_launcher(self):
        run, children = self.start(2)
        begin = time.monotonic()
        run.terminate()
        self.end(run, children, begin)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)

    def test_rank_that_throws(self):
        tokens = torch.zeros(ROWS, 4, dtype=torch.long)
        tokens[ROWS // 2] = VOCAB  # not in the vocabulary: the rank that takes this row fails
        torch.save({"tokens": tokens, "mask": torch.ones_like(tokens), "label": tokens[:, 0] * 0}, self.folder / "bad.pt")
        begin = time.monotonic()
        done = self.run_host("--nproc", "2", sets=["data.file=bad.pt", "train.steps=50"])
        self.assert_fails(done, "died first: ", "index out of range")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertRegex(done.stderr, "rank [01] died first: (.|\n)*index out of range(.|\n)*then rank [01]: ")


if __name__ == "__main__":
    unittest.main()
