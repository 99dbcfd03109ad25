"""Ranks meet by the variables that their launcher sets: the wheel's torchrun, Debian's mpirun, and those of srun."""
import os
import subprocess
import unittest

PROGRAM, TORCHRUN, MPIRUN = (os.environ[f"FSDP2_{name}"] for name in ("PROGRAM", "TORCHRUN", "MPIRUN"))
MPIRUN_AS_ROOT = [MPIRUN, "--allow-run-as-root", "--oversubscribe"]
SECONDS = 60


def environment(**changes):
    """Without what another launcher may have left, and without what changes the place of torchrun's store."""
    prefixes = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(prefixes) and name not in ("RANK", "WORLD_SIZE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")}
    return kept | changes


class Launchers(unittest.TestCase):
    def run_ranks(self, *command, ranks, arguments=(), **changes):
        """What the ranks printed, sorted."""
        done = subprocess.run([*command, PROGRAM, str(ranks), *arguments], env=environment(**changes), text=True,
                              capture_output=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))

    def test_torchrun(self):
        """In each way to keep the store: a rank leaves once all have met, and both meet again."""
        for keeper, changes in (("the agent", {}), ("rank 0", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})):
            with self.subTest(keeper):
                printed = self.run_ranks(TORCHRUN, "--no-python", "--standalone", "--max-restarts", "1",
                                         "--nproc-per-node", "2", ranks=2, arguments=["restart"], **changes)
                self.assertEqual(printed, [f"rank 0 of 2, attempt 1, {keeper} keeps the store",
                                           "rank 1 of 2, attempt 0, leaves",
                                           f"rank 1 of 2, attempt 1, {keeper} keeps the store"])

    def test_mpirun(self):
        self.assertEqual(self.run_ranks(*MPIRUN_AS_ROOT, "-n", "3", ranks=3),
                         [f"rank {rank} of 3, attempt 0, rank 0 keeps the store" for rank in range(3)])

    def test_contradiction_under_mpirun(self):
        done = subprocess.run([*MPIRUN_AS_ROOT, "-n", "2", PROGRAM, "2"], text=True, capture_output=True, timeout=SECONDS,
                              env=environment(RANK="0", WORLD_SIZE="2"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("RANK is 0, but OMPI_COMM_WORLD_RANK is 1", done.stderr)

    def test_variables_of_srun(self):
        """What srun of Slurm 22.05 sets for two tasks on one machine."""
        job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
               "SLURM_STEP_NODELIST": "node7", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
        ranks = [subprocess.Popen([PROGRAM, "2"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=environment(**job, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)))
                 for rank in (0, 1)]
        for number, rank in enumerate(ranks):
            self.addCleanup(rank.kill)
            printed, errors = rank.communicate(timeout=SECONDS)
            self.assertEqual(printed, f"rank {number} of 2, attempt 0, rank 0 keeps the store\n", errors)


if __name__ == "__main__":
    unittest.main()
