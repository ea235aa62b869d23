"""Door 1 replaces a file at once (S1-08): whoever reads it meanwhile sees the old bytes or the new, whole."""
import os
import threading

from unpack_box import Box, Stream, main

ROUNDS = 40
SIZE = 400_000


class Atomic(Box):
    def test_S1_08_a_reader_sees_old_or_new(self):
        """One file, replaced over and over while a reader opens it as fast as it can; each round another letter."""
        self.write("one", b"A" * SIZE)
        self.sync_in()
        seen, over, reads = set(), threading.Event(), [0]

        def read():
            while not over.is_set():
                try:
                    with open(self.path("one"), "rb") as f:
                        data = f.read()
                except FileNotFoundError:
                    data = b""
                seen.add((len(data), bytes(sorted(set(data)))))
                reads[0] += 1

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for n in range(ROUNDS):
                # The host has what the round before left: each round is a plain change of one file.
                self.assert_ok(self.unpack(Stream().file("one", chr(66 + n % 20) * SIZE), "--take"))
        finally:
            over.set()
            reader.join()
        self.assertGreater(reads[0], ROUNDS)
        self.assertGreater(len(seen), 5, "the reader was not there while files were replaced")
        for size, letters in seen:
            self.assertEqual((size, len(letters)), (SIZE, 1), "a reader saw half a file")

    def test_S1_08_an_open_file_keeps_its_bytes(self):
        self.write("one", b"A" * SIZE)
        self.sync_in()
        with open(self.path("one"), "rb") as f:
            f.read(1000)
            self.assert_ok(self.unpack(Stream().file("one", "B" * SIZE)))
            self.assertEqual(f.read(), b"A" * (SIZE - 1000))
        self.assertEqual(self.read("one"), "B" * SIZE)
        self.assertEqual(os.listdir(self.root), ["one"])


if __name__ == "__main__":
    main()
