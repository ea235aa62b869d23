// The peer's own synchronisation with a shell on this machine as its sandbox: no network, so its best case.
// argv: directory of the package, workspace, empty directory that plays the sandbox, how many files to change in it.
// Prints one JSON line: milliseconds in and out.
import { spawn } from "node:child_process";
import { appendFile, readdir } from "node:fs/promises";

const [dir, local, remote, changes] = process.argv.slice(2);
const { prepareCommandManagedRuntime } = await import(`${dir}/dist/command-managed-runtime.js`);

let execs = 0;
const runner = {
  execute: (q) => new Promise((resolve) => {
    execs++;
    const startedAt = new Date().toISOString();
    const child = spawn(q.command, q.args ?? [], { cwd: q.cwd, env: { ...process.env, ...q.env } });
    const text = { stdout: [], stderr: [] };
    let said = Promise.resolve();
    for (const name of ["stdout", "stderr"]) {
      child[name].on("data", (chunk) => {
        text[name].push(chunk);
        if (q.onLog) said = said.then(() => q.onLog(name, chunk.toString()));
      });
    }
    child.on("error", (e) => resolve({
      exitCode: 127, signal: null, timedOut: false, stdout: "", stderr: String(e), pid: null, startedAt,
    }));
    child.on("close", async (exitCode, signal) => {
      await said;
      resolve({
        exitCode, signal, timedOut: false, pid: child.pid ?? null, startedAt,
        stdout: Buffer.concat(text.stdout).toString(), stderr: Buffer.concat(text.stderr).toString(),
      });
    });
    child.stdin.on("error", () => {});
    child.stdin.end(q.stdin ?? "");
  }),
};

const from = performance.now();
const prepared = await prepareCommandManagedRuntime({
  runner, spec: { remoteCwd: remote, timeoutMs: 600_000 }, adapterKey: "claude", workspaceLocalDir: local,
});
const there = performance.now();
const folders = (await readdir(remote)).filter((n) => !n.startsWith(".")).sort();
for (let i = 0; i < Number(changes); i++) {
  const folder = `${remote}/${folders[Math.floor(i * folders.length / Number(changes))]}`;
  await appendFile(`${folder}/${(await readdir(folder)).sort()[i % 10]}`, "changed\n");
}
const changed = performance.now();
await prepared.restoreWorkspace();
console.log(JSON.stringify({ in_ms: there - from, out_ms: performance.now() - changed, execs }));
