"""Door 1 over real trees: the merge table of DESIGN section 3 (cases G of the sync specification; S1-04 ff)."""
import os
import tarfile

from unpack_box import Box, Stream, main, tree


class Merge(Box):
    def test_simple_end_to_end(self):
        self.write("a.txt", "one\n")
        self.write("gone.txt", "bye\n")
        self.write("same/x", "x\n")
        self.sync_in()
        res = self.unpack(Stream().file("a.txt", "two\n").delete("gone.txt").dir("new").file("new/n", "n\n", 0o755))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a.txt": "change", "gone.txt": "delete", "new": "add:dir", "new/n": "add"})
        self.assertEqual(tree(self.root), {
            "a.txt": ("f", 0o644, b"two\n"), "same": ("d", 0o755), "same/x": ("f", 0o644, b"x\n"),
            "new": ("d", 0o755), "new/n": ("f", 0o755, b"n\n")})


if __name__ == "__main__":
    main()
