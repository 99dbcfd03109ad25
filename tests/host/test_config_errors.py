"""Every mistake is named: where it stands, which key, what is allowed, what was probably meant."""
import socket
import unittest

from host import CONFIG, HostTest


class ConfigErrors(HostTest):
    def check(self, old, new, *parts, arguments=("--unsharded",)):
        self.assertIn(old, CONFIG)
        self.write("wrong.toml", CONFIG.replace(old, new))
        with self.subTest(new):
            self.assert_fails(self.run_host(*arguments, config="wrong.toml"), *parts)

    def test_own_sections(self):
        self.check("lr = 0.05", "lrr = 0.05", 'wrong.toml:13:1: unknown key "train.lrr"; did you mean "train.lr"?')
        self.check("[train]", "[trian]", "wrong.toml:10:", "unknown section [trian]", '"train"')
        self.check("steps = 6", 'steps = "six"', "wrong.toml:15:9:", '"train.steps"', "an integer", "six")
        self.check("steps = 6\n", "", "wrong.toml:10:", 'needs the key "steps"')
        self.check("batch_size = 4", "batch_size = 0", "wrong.toml:16:14:", "from 1 to 1000000000")
        self.check("batch_size = 4", "batch_size = 9223372036854775807", "wrong.toml:16:14:", "1000000000")
        self.check("batch_size = 4", "batch_size = 65", "wrong.toml:16:14:", "only 64 samples")
        self.check('["tokens", "mask"]', '["tokens"]', "wrong.toml:7:10:", "takes 2 inputs, not 1")
        self.check('["tokens", "mask"]', "[]", "wrong.toml:7:10:", '"data.inputs" is empty')
        self.check('"sgd"', '"sdg"', "wrong.toml:12:13:", "adamw, sgd", 'did you mean "sgd"?')
        self.check('"sgd"', '"adamw"', "wrong.toml:14:12:", '"train.momentum"')
        self.check('"model.pt"', '"modle.pt"', "wrong.toml:2:10:", '"model.script"', "modle.pt")
        self.check('"model.pt"', '"data.pt"', "wrong.toml:2:10:", "not a TorchScript module")
        self.check('file = "data.pt"\neval', 'file = "model.pt"\neval', "wrong.toml:5:8:", "torch.save")
        self.check('"tokens"', '"token"', "wrong.toml:7:10:", '"token"', 'did you mean "tokens"?', "mask")
        self.check('"label"', '"lable"', "wrong.toml:8:10:", 'did you mean "label"?')
        self.check('"label"', '"tokens"', "wrong.toml:8:10:", "does not fit class targets of shape [4, 12]")
        self.check('target = "label"\n', "", "wrong.toml:4:", 'needs the key "target"')
        self.check('target = "label"', 'synthetic = { vocab = 9, sequence = 4, samples = 8 }', "not both")
        self.check("momentum = 0.9", "momentum = = 0.9", "wrong.toml:14:12:")

    def test_table_of_the_plugin(self):
        arguments = ("--nproc", "2")
        self.check('strategy = "full_shard"', 'stratgy = "full_shard"', "wrong.toml:21:1", "stratgy", "strategy",
                   "all 2 ranks say the same", arguments=arguments)
        self.check('"Block"', '"Blok"', "Blok", "Block", arguments=arguments)

    def test_command_line(self):
        self.assert_fails(self.run_host("--unsharded", sets=["train.stesp=3"]), "--set train.stesp=3", '"train.steps"')
        self.assert_fails(self.run_host("--unsharded", sets=["steps=3"]), "section.key=value")
        self.assert_fails(self.run_host("--unshraded"), "--unsharded")
        self.assert_fails(self.run_host("--save", "nowhere/out.pt"), "--save", "nowhere")
        self.assert_fails(self.run_host("--save", "/proc/out.pt"), "--save", "no file can be made in /proc")
        self.assert_fails(self.run_host("--plan", "--unsharded"), "--plan")
        self.assert_fails(self.run_host(config="none.toml"), "none.toml", "no such")
        self.assert_fails(self.run_host(config="."), "is a folder")
        self.assert_fails(self.run_host("--nproc", "2", sets=["fsdp.stratgy=full_shard"]), "stratgy", "strategy")

    def test_environment(self):
        launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        self.assert_fails(self.run_host("--nproc", "2", environment=launched), "as rank 0 of 2", "leave out --nproc")
        self.assert_fails(self.run_host(environment={"RANK": "0"}), "RANK", "WORLD_SIZE")
        self.assert_fails(self.run_host(environment={"RANK": "2", "WORLD_SIZE": "2"}), 'RANK is "2"')
        self.assert_fails(self.run_host(environment={"RANK": "x", "WORLD_SIZE": "2"}), 'RANK is "x"')

    def test_rank_that_never_comes(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.assert_fails(self.run_host(sets=["fsdp.debug.timeout_s=2"], environment=environment),
                          f"rank 0 of 3 did not meet the others at 127.0.0.1:{port}: rank 1, 2 of 3 did not come within 2 s")
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", int(port)))
            taken.listen()
            self.assert_fails(self.run_host(environment=environment), "the port is in use")


if __name__ == "__main__":
    unittest.main()
