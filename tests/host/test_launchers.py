"""The ranks of torchrun, of mpirun and of srun's variables train as those of --nproc do."""
import os
import subprocess
import unittest

from host import HostTest

MPIRUN, TORCHRUN = os.environ["FSDP2_MPIRUN"], os.environ["FSDP2_TORCHRUN"]
STEPS = ["train.steps=2"]
SECONDS = 90


class Launchers(HostTest):
    def launch(self, *launcher, arguments=(), **environment):
        """Starts a run that must give the losses of --nproc 2; rank 0 alone speaks."""
        return subprocess.Popen([*launcher, *self.command("--metrics", "launched.jsonl", *arguments, sets=STEPS)], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def check(self, *runs):
        for run in runs:
            self.addCleanup(run.kill)
        outputs = [run.communicate(timeout=SECONDS) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * len(runs), outputs)
        self.assertEqual("".join(printed for printed, _ in outputs).count("2 steps, loss"), 1, outputs)
        expected, _ = self.train("--nproc", "2", sets=STEPS)
        steps, summary = self.metrics("launched.jsonl")
        self.assertEqual(summary["ranks"], 2)
        self.assertEqual([step["loss"] for step in steps], [step["loss"] for step in expected])

    def test_torchrun(self):
        self.check(self.launch(TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", "2"))

    def test_mpirun(self):
        self.check(self.launch(MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2"))

    def test_mpirun_and_engines_over_mpi(self):
        self.check(self.launch(MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2", arguments=["--backend", "mpi"]))

    def test_variables_of_srun(self):
        job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NODELIST": "node7"}
        self.check(*(self.launch(**job, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in (0, 1)))

    def test_nproc_in_a_batch_script_of_slurm(self):
        """The script is no rank, though Slurm sets these."""
        script = {"ENVIRONMENT": "BATCH", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}
        _, summary = self.train("--nproc", "2", sets=STEPS, environment=script)
        self.assertEqual(summary["ranks"], 2)


if __name__ == "__main__":
    unittest.main()
