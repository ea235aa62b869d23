"""Door 1 against the attack corpus (cases A, B, C, D of the sync specification; S1-01, S1-02, S1-03, B-04).

No check inside has any part in this: the streams go straight to airlock-unpack. The corpus is met twice, as a list
of changes from a native layer and as the whole tree that a plain tar over exec sends (S1-06). For each archive: the verdict and rule of the table; a rejected stream leaves the host byte-identical;
nothing is ever written beside the root.
"""
import os
import subprocess

from unpack_box import Box, main, tree


class Hostile(Box):
    def fresh(self):
        subprocess.run(["rm", "-rf", self.root, self.outside], check=True)
        os.mkdir(self.root)
        os.mkdir(self.outside)
        self.write("kept", "kept\n")
        for name, target in ("baseabs", "/opt/tool"), ("basein", "real"):
            os.symlink(target, self.path(name))
        self.sync_in()
        for name in "baseabs", "basein":
            os.unlink(self.path(name))
        subprocess.run([os.environ["MKHOSTILE"], "--host", self.root], check=True)

    def test_S1_06_corpus_as_native_changes(self):
        self.corpus()

    def test_S1_06_corpus_as_the_command_fallback(self):
        self.corpus("--full")

    def corpus(self, *mode):
        corpus = os.path.join(self.top, "corpus")
        os.mkdir(corpus)
        subprocess.run([os.environ["MKHOSTILE"], corpus], check=True, stdout=subprocess.DEVNULL)
        seen = {"accept": 0, "refused": 0, "hostile": 0}
        with open(os.path.join(corpus, "rules.txt"), encoding="utf-8") as f:
            cases = [line.split() for line in f]
        for name, rule in cases:
            verdict = name.split(".")[-2]
            with self.subTest(name):
                subprocess.run(["rm", "-rf", os.path.join(self.top, "layer")], check=True)
                self.fresh()
                before = tree(self.root)
                with open(os.path.join(corpus, name), "rb") as f:
                    data = f.read()
                res = self.unpack(data, *mode)
                if verdict == "hostile":
                    self.assertTrue(res["rejected"], res)
                    self.assertEqual((res["rule"], res["code"]), (rule, "hostile"))
                    self.assertEqual(tree(self.root), before)
                    with open(os.path.join(self.run_dir, "rejected.tar"), "rb") as f:
                        self.assertTrue(data.startswith(f.read()))
                else:
                    self.assertEqual(res["ret"], 0, res)
                    self.assertFalse(os.path.exists(os.path.join(self.run_dir, "rejected.tar")))
                    rules = {c.get("rule") for c in res["changes"] if c["action"] == "refuse"}
                    rules.discard("unreadable")
                    if verdict == "refused":
                        self.assertIn(rule, rules, res)
                        # --strict turns the same into a rejection
                        subprocess.run(["rm", "-rf", os.path.join(self.top, "layer")], check=True)
                        self.fresh()
                        before = tree(self.root)
                        res = self.unpack(data, "--strict", *mode)
                        self.assertTrue(res["rejected"], res)
                        self.assertEqual(tree(self.root), before)
                    else:
                        self.assertEqual(rules, set(), res)
                        if "-5g." in name:  # A19: with its holes
                            st = os.lstat(self.path("sparse"))
                            self.assertGreater(st.st_size, 4 << 30)
                            self.assertLess(st.st_blocks * 512, 1 << 20)
                self.assert_clean()
                self.assertEqual(os.listdir(self.outside), [])
            seen[verdict] += 1
        self.assertTrue(min(seen.values()) >= 5, seen)


if __name__ == "__main__":
    main()
